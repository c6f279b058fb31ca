// Which rows run in the next step, and how many of them may be prompts'. Pure functions of the sequences' states and of
// measured times, so that they can be tested without a model. What they decide changes when a token comes, never which.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

/// What the scheduler sees of a running sequence. They come in the order in which they give way to each other.
struct Pending {
  int32_t rows = 0;       // tokens whose K and V are not in the cache yet; 0: nothing to do in this step
  bool decoding = false;  // the prompt has been read
  int32_t priority = 0;   // lower goes first
};

/// Rows to run of each sequence (0 = not in this step). Decoding sequences always get all their rows. Of the
/// `prefill_rows`, a quarter belongs to the first prompt, so that it gets done whatever arrives; the rest goes to the
/// most urgent, and of one priority to those with the fewest rows left, so that a short one does not wait for a long
/// one and prompts wait least on average.
std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows);

/// Who shares a step, as PrefillBudget counts them.
struct Load {
  int64_t decoding = 0;
  int64_t prompts = 0;  // with rows to read; only those no less urgent than the most urgent stream that decodes,
                        // because others have no claim to its time
};
Load load_of(std::span<const Pending> sequences);

/// How many prompt rows a step may have while others decode, by what earlier steps took. Time goes to streams: with P
/// prompts and D decoding streams, a step may take max(1, P / D) times as long again as its decoding alone. So one
/// prompt at most doubles the time between two tokens, however long it is; and when most clients wait for their first
/// token, most of the time is theirs.
class PrefillBudget {
 public:
  /// `rows`: at most; `stall`: seconds that a step may take longer because of prompts, whoever waits; 0 = as above.
  PrefillBudget(int32_t rows, double stall) : rows_(rows), stall_(stall) {}

  /// Rows of the next step. At least 1.
  int32_t next(Load load) const;
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
