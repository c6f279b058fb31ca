// Where the time of steps goes: filled by the CPU backend while one is attached, for `cohort profile`.
#pragma once

#include <cstdint>
#include <vector>

namespace cohort::cpu {

struct OpProfile {
  double busy_seconds = 0;  // summed over threads
  double bytes = 0;         // of weights (as packed) or of the KV cache read
  int64_t jobs = 0;         // row items count rows
};

struct StageProfile {
  double seconds = 0;                // wall, barrier included
  std::vector<double> wait_seconds;  // per thread: stage time minus its own work
};

/// Sums over `steps` steps.
struct StepProfile {
  std::vector<OpProfile> ops;        // by index into Program::ops
  std::vector<StageProfile> stages;  // by index into the plan (see CpuBackend::plan_text)
  double seconds = 0;
  double serial_seconds = 0;  // outside of stages: grouping routes, planning attention
  int64_t steps = 0;
};

}  // namespace cohort::cpu
