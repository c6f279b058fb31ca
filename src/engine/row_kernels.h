// What sampling does to whole rows of logits, which is most of what it costs: a vocabulary has 10^4 to 10^5 tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/isa.h"

namespace cohort {

inline constexpr size_t kRowChunk = 256;  // sums over the vocabulary go in chunks of this many ids

struct RowScan {
  bool finite = false;  // no logit is infinite or NaN; else the rest means nothing
  int32_t token = 0;    // the first of the largest
  float value = 0;      // its logit
};

/// The bits are the same on every instruction set.
struct RowKernels {
  /// values[i] = exp(values[i] - maximum), with numerics::exp.
  void (*exp_below)(std::span<float> values, float maximum);
  /// `values` is not empty.
  RowScan (*scan)(std::span<const float> values);
  /// values[i] = values[i] / divisor.
  void (*divide)(std::span<float> values, float divisor);
  /// values[i] = e_i = exp(d_i) with d_i = values[i] - maximum. Of each chunk of kRowChunk values the sums of e_i and
  /// of e_i * d_i, in 16 lanes and tree16 (docs/NUMERICS.md, rule 10). sums, moments [chunks].
  void (*weigh)(std::span<float> values, float maximum, std::span<float> sums, std::span<float> moments);
};

/// Of an instruction set that this machine has.
const RowKernels& row_kernels(Isa isa);

}  // namespace cohort
