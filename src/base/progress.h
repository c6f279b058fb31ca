// Progress of long work: one bar that redraws itself on a terminal, a line now and then when the output goes elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace cohort {

/// "1.2 GB", "348 bytes": powers of 1000, as disks are sold.
std::string human_bytes(uint64_t bytes);

class Progress {
 public:
  /// `what`: the verb at the start of the line, e.g. "converting". The stream's kind decides the form.
  /// `unit`: what is counted ("windows"); empty: bytes.
  Progress(std::string what, std::FILE* stream, std::string unit = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// `done` and `total` in the unit; `note` is what is being worked on. Cheap enough to call often.
  void update(uint64_t done, uint64_t total, std::string_view note);
  /// Removes the bar, so that ordinary lines can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(uint64_t done, uint64_t total, std::string_view note) const;

  std::string amount(uint64_t count) const;

  std::string what_, unit_;
  std::FILE* stream_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point begin_;
  Clock::time_point next_;      // nothing is written before
  uint64_t next_percent_ = 10;  // elsewhere: the percentage of the next line
};

}  // namespace cohort
