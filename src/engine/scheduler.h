// Which rows run in the next step, and how many of them may be prompts'. Pure functions of the sequences' states and of
// measured times, so that they can be tested without a model. What they decide changes when a token comes, never which.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

/// What the scheduler sees of a running sequence, in order of arrival.
struct Pending {
  int32_t rows = 0;       // tokens whose K and V are not in the cache yet; 0: nothing to do in this step
  bool decoding = false;  // the prompt has been read
};

/// Rows to run of each sequence (0 = not in this step). Decoding sequences always get all their rows. Of the
/// `prefill_rows`, a quarter belongs to the oldest prompt, so that it gets done whatever arrives; the rest goes to the
/// prompts with the fewest rows left, so that a short one does not wait for a long one and prompts wait least on
/// average.
std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows);

/// How many prompt rows a step may have while others decode, by what earlier steps took. Time goes to streams: with P
/// prompts and D decoding streams, a step may take max(1, P / D) times as long again as its decoding alone. So one
/// prompt at most doubles the time between two tokens, however long it is; and when most clients wait for their first
/// token, most of the time is theirs.
class PrefillBudget {
 public:
  /// `rows`: at most; `stall`: seconds that a step may take longer because of prompts, whoever waits; 0 = as above.
  PrefillBudget(int32_t rows, double stall) : rows_(rows), stall_(stall) {}

  /// Rows of the next step, in which `decoding` sequences decode and `prompts` have rows to read. At least 1.
  int32_t next(int64_t decoding, int64_t prompts) const;
  void observe(int64_t prefill_rows, int64_t decode_rows, double seconds);

 private:
  /// Prompts always go on by so many rows, however slow the machine is: one cache line's worth of a weight is used by
  /// that many rows at little more than the price of one.
  static constexpr int32_t kLeast = 16;
  static constexpr double kMemory = 0.2;  // share of a new measurement in the running means
  /// A step of decoding alone is measured anew after so many with prompts: contexts grow, machines slow down.
  static constexpr int32_t kStale = 64;
  /// What a step of 2^k to 2^(k+1) - 1 decoding rows takes without prompts.
  struct Alone {
    double seconds = 0;  // 0: not measured yet
    int32_t age = 0;     // steps with prompts since the last measurement
  };
  static size_t size_class(int64_t rows);

  int32_t rows_;
  double stall_;
  std::array<Alone, 32> alone_{};
  double row_seconds_ = 0;  // of one more prompt row
};

}  // namespace cohort
