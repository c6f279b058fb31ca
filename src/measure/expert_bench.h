// The pass over the experts alone: how fast it is at each number of tokens, for any pair of types and any overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/expert_lab.h"

namespace cohort {

struct ExpertBenchOptions {
  ExpertShape shape;
  std::vector<int32_t> tokens{1, 2, 3, 4, 6, 8};
  /// Of the routes of every row but the first, how many repeat an expert; below 0: uniformly random experts.
  double share = -1;
  Isa isa = best_isa();
  int threads = 1;
  int32_t repeats = 5;
  double bandwidth = 0, int8_peak = 0;  // of the machine; 0: no roofline
};

struct ExpertBenchPoint {
  int32_t tokens = 0;
  double distinct = 0;             // mean over layers
  double share = 0;                // of all routes but the first row's: those that repeat an expert
  double seconds = 0, spread = 0;  // a layer: median, (slowest - fastest) / median
  double bytes = 0, operations = 0;
};

struct ExpertBenchReport {
  ExpertBenchOptions options;
  std::vector<ExpertBenchPoint> points;
};

/// Walks all layers in turn, so that weights come from memory when there are enough layers. Errors: check_shape(),
/// counts out of range.
Expected<ExpertBenchReport> bench_experts(const ExpertBenchOptions& options,
                                          const std::function<void(const std::string&)>& progress = {});

std::string to_markdown(const ExpertBenchReport& report);
std::string to_csv(const ExpertBenchReport& report);
std::string to_json(const ExpertBenchReport& report);

}  // namespace cohort
