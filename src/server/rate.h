#pragma once

#include <chrono>
#include <deque>
#include <utility>

namespace cohort::server {

/// How much was done over about the last second.
class Rate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void add(Time now, double amount) {
    entries_.emplace_back(now, amount);
    sum_ += amount;
    forget(now);
  }
  double per_second(Time now) {
    forget(now);
    return sum_ / kWindow;
  }

 private:
  static constexpr double kWindow = 1.0;
  void forget(Time now) {
    while (!entries_.empty() && std::chrono::duration<double>(now - entries_.front().first).count() > kWindow) {
      sum_ -= entries_.front().second;
      entries_.pop_front();
    }
    if (entries_.empty()) sum_ = 0;
  }
  std::deque<std::pair<Time, double>> entries_;
  double sum_ = 0;
};

}  // namespace cohort::server
