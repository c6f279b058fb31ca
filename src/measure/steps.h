// The ladder over concurrency: how fast steps are at each number of streams. The columns are llama-batched-bench's,
// plus spread, bytes, distinct experts, GB/s and % of roofline.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/engine.h"

namespace cohort {

struct StepsOptions {
  EngineOptions engine;
  int32_t prompt_tokens = 128;    // of each stream
  int32_t generated_tokens = 32;  // decode steps
  std::vector<int32_t> streams{1, 2, 4, 8, 16, 32};
  int32_t repeats = 5;
  /// Bytes a second that the host reads (0: unknown, no roofline). A device measures its own memory unless
  /// bandwidth_given.
  double bandwidth = 0;
  bool bandwidth_given = false;
  bool shared_tokens = false;  // best case: every stream is fed the same tokens, so all rows choose the same experts
};

struct StepsPoint {
  int32_t streams = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // medians over repeats, for all streams together
  double decode_spread = 0;                        // (slowest - fastest) / median of the decode time
  double bytes_per_step = 0;                       // weights read once, distinct experts once, and the KV cache
  double distinct_experts = 0;                     // mean over layers and steps
};

struct StepsReport {
  std::string model, type, device;
  int32_t prompt_tokens = 0, generated_tokens = 0, repeats = 0;
  double bandwidth = 0;
  size_t resident_bytes = 0, weight_bytes = 0;
  std::vector<StepsPoint> points;
};

/// Prompts and fed tokens are random and differ between streams (a model with random weights would otherwise fall into
/// one loop in all of them); nothing is sampled. One repeat more than asked for is run first and not counted.
/// `progress` gets a line before each point.
Expected<StepsReport> bench_steps(const StepsOptions& options,
                                  const std::function<void(const std::string&)>& progress = {});

std::string to_markdown(const StepsReport& report);
std::string to_csv(const StepsReport& report);
std::string to_json(const StepsReport& report);

}  // namespace cohort
