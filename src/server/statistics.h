// What /metrics, /stats and the page say of the engine: counters and histograms that the engine thread fills.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/engine.h"

namespace cohort::server {

/// A Prometheus histogram: how many values were at most each bound.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// The lines of the exposition format; `labels` without braces.
  void write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const;
  uint64_t count() const { return total_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;  // of each bucket alone; the last is above all bounds
  uint64_t total_ = 0;
  double sum_ = 0;
};

/// Names as vLLM has them where the meaning is the same; what only Cohort has begins with cohort_.
struct Statistics {
  Histogram first_token{{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}};  // seconds
  Histogram inter_token{{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2}};   // seconds
  Histogram request{{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}};               // seconds
  Histogram step{{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}};     // seconds
  Histogram rows{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}};
  Histogram distinct_experts{{1, 2, 4, 8, 16, 32, 64, 128, 256}};
  uint64_t prompt_tokens = 0, generation_tokens = 0, reused_tokens = 0, preemptions = 0;
  uint64_t guesses = 0, right_guesses = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_failed = 0, refused = 0;
  double weight_bytes = 0;  // in sum over steps

  /// Gauges of the moment, beside the counters.
  struct Now {
    size_t running = 0;
    std::map<int32_t, size_t> waiting;  // by priority
    Capacity capacity;
    StepReport last;       // without its events
    double bandwidth = 0;  // GB/s; 0: not known
  };
  /// The exposition format, version 0.0.4. `model` becomes the label model_name.
  std::string prometheus(const Now& now, std::string_view model) const;
};

}  // namespace cohort::server
