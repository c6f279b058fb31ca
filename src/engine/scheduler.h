// Which rows run in the next step, and how many of them may be prompts'. Pure functions of the sequences' states and of
// measured times, so that they can be tested without a model. What they decide changes when a token comes, never which.
#pragma once

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
/// `prefill_rows`, half belong to the oldest prompt, so that it gets done whatever arrives; the rest goes to the
/// prompts with the fewest rows left, so that a short one does not wait for a long one.
std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows);

/// How many prompt rows a step may have while others decode: so many that the step takes at most `stall` seconds longer
/// than it would without them, by what earlier steps took.
class PrefillBudget {
 public:
  /// `rows`: at most; `stall`: seconds, 0 = as long as a step of the decoding streams takes, so that the time between
  /// two tokens at most doubles.
  PrefillBudget(int32_t rows, double stall) : rows_(rows), stall_(stall) {}

  /// Rows of the next step, in which `decoding` sequences decode.
  int32_t next(int64_t decoding) const;
  void observe(int64_t prefill_rows, int64_t decode_rows, double seconds);

 private:
  /// Prompts always go on by so many rows, however slow the machine is: one cache line's worth of a weight is used by
  /// that many rows at little more than the price of one.
  static constexpr int32_t kLeast = 16;
  static constexpr double kMemory = 0.2;  // share of a new measurement in the running means
  int32_t rows_;
  double stall_;
  double decode_seconds_ = 0;  // of a step without prompts
  double row_seconds_ = 0;     // of one more prompt row
};

}  // namespace cohort
