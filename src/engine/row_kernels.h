// What sampling does to whole rows of logits, which is most of what it costs: a vocabulary has 10^4 to 10^5 tokens.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/isa.h"

namespace cohort {

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
};

/// Of an instruction set that this machine has.
const RowKernels& row_kernels(Isa isa);

}  // namespace cohort
