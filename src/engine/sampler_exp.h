// exp over a row of logits, which is most of what sampling costs: a vocabulary has 10^4 to 10^5 tokens.
#pragma once

#include <span>

#include "kernels/cpu/isa.h"

namespace cohort {

/// values[i] = exp(values[i] - maximum): the bits of numerics::exp on every instruction set.
using ExpBelow = void (*)(std::span<float> values, float maximum);

/// Of an instruction set that this machine has.
ExpBelow exp_below(Isa isa);

}  // namespace cohort
