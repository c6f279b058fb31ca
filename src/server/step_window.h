// What steps did over about the last second: rates and means for /stats and the page.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>

#include "cohort/engine.h"

namespace cohort::server {

/// Sums over the steps of the last second, or of as long as the last step took where that is more.
class StepWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A step that ended at `now` and gave `tokens` tokens.
  void add(Time now, const StepReport& step, size_t tokens) {
    const Figures figures{step.seconds, step.distinct_experts, step.bytes,
                          step.rows,    step.prefill_rows,     static_cast<int64_t>(tokens)};
    sum_.add(figures, 1);
    entries_.push_back({now, figures});
    forget(now);
  }

  struct View {
    size_t steps = 0;
    double rows_per_second = 0, tokens_per_second = 0;
    // Means of a step; 0 without one.
    double rows = 0, prefill_rows = 0, distinct_experts = 0, seconds = 0;
    double bytes_per_second = 0;  // of weights, while steps ran
  };
  View view(Time now) {
    forget(now);
    if (entries_.empty()) return {};
    const auto steps = static_cast<double>(entries_.size());
    const double length = seconds();
    View out;
    out.steps = entries_.size();
    out.rows_per_second = static_cast<double>(sum_.rows) / length;
    out.tokens_per_second = static_cast<double>(sum_.tokens) / length;
    out.rows = static_cast<double>(sum_.rows) / steps;
    out.prefill_rows = static_cast<double>(sum_.prefill_rows) / steps;
    out.distinct_experts = sum_.distinct_experts / steps;
    out.seconds = sum_.seconds / steps;
    if (sum_.seconds > 0) out.bytes_per_second = sum_.bytes / sum_.seconds;
    return out;
  }

 private:
  struct Figures {
    double seconds = 0, distinct_experts = 0, bytes = 0;
    int64_t rows = 0, prefill_rows = 0, tokens = 0;
    void add(const Figures& other, int sign) {
      seconds += sign * other.seconds;
      distinct_experts += sign * other.distinct_experts;
      bytes += sign * other.bytes;
      rows += sign * other.rows;
      prefill_rows += sign * other.prefill_rows;
      tokens += sign * other.tokens;
    }
  };
  struct Entry {
    Time end;
    Figures figures;
  };

  double seconds() const { return entries_.empty() ? 1.0 : std::max(1.0, entries_.back().figures.seconds); }
  void forget(Time now) {
    const double length = seconds();
    while (!entries_.empty() && std::chrono::duration<double>(now - entries_.front().end).count() >= length) {
      sum_.add(entries_.front().figures, -1);
      entries_.pop_front();
    }
    if (entries_.empty()) sum_ = {};  // what rounding has left
  }

  std::deque<Entry> entries_;
  Figures sum_;
};

}  // namespace cohort::server
