// Where the time of steps goes, by operation and by layer (on a device: by kind of kernel), against what the machine
// could do, and in words: what bounds each number of streams, and why the batch does or does not scale.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/engine.h"

namespace cohort {

struct ProfileOptions {
  EngineOptions engine;
  int32_t prompt_tokens = 128;  // of each stream
  int32_t steps = 32;           // decode steps
  std::vector<int32_t> streams{1, 4, 16};
  int32_t repeats = 3;  // the one with the median time counts
  /// What the machine can do (measure/machine.h): bytes, int8 and f32 operations a second on all threads, a
  /// multiply-add counted as 2.
  double bandwidth = 0, int8_peak = 0, float_peak = 0;
};

/// An operation (summed over layers) or a layer (summed over operations), per step. seconds: of the whole team, so
/// that entries, waiting and serial time add up to the step.
struct ProfileEntry {
  std::string name, kind;
  double seconds = 0, bytes = 0, operations = 0;
  double roofline_seconds = 0;  // the larger of bytes / bandwidth and operations / peak
  int64_t jobs = 0;             // for operations on rows: rows
};

struct ProfilePoint {
  int32_t streams = 0;
  bool prefill = false;                          // the steps that read one stream's prompt, else decode steps
  double rows = 0;                               // of a step
  double seconds = 0;                            // of a step
  double distinct_experts = 0;                   // mean over layers
  double wait_seconds = 0;                       // threads without work before a barrier, mean over threads
  double serial_seconds = 0;                     // one thread plans while the others wait
  double core_use = 0;                           // share of the threads' time that is spent in jobs
  double roofline_seconds = 0;                   // of the whole step
  double bytes = 0;                              // of a step, where operations do not say (a device)
  bool memory_bound = true;                      // which limit roofline_seconds is
  std::vector<ProfileEntry> operations, layers;  // operations: the longest first
  std::string explanation;
};

struct ProfileReport {
  std::string model, type, device;
  int32_t threads = 0, prompt_tokens = 0, steps = 0;
  double bandwidth = 0, int8_peak = 0, float_peak = 0;
  std::vector<ProfilePoint> points;  // decode at each number of streams, then prefill
};

/// Streams are fed as by bench_steps(). device `auto` is the CPU. Errors: as bench_steps(); unsupported for the
/// reference.
Expected<ProfileReport> profile_steps(const ProfileOptions& options,
                                      const std::function<void(const std::string&)>& progress = {});

std::string to_markdown(const ProfileReport& report);
std::string to_json(const ProfileReport& report);
/// One page that needs nothing else: for each point a bar of the step's time by operation, its table and its words, and
/// the layers of all points.
std::string to_html(const ProfileReport& report);

}  // namespace cohort
