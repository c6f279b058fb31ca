// The types of cached values, as types: kernels are templates over float, Half, Brain and Eight.
#pragma once

#include <cstdint>

#include "quant/half.h"

namespace cohort::numerics {

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
/// The code of a q8_0 cache; its scale, which 32 of them share, stands elsewhere.
struct Eight {
  int8_t code;
};

}  // namespace cohort::numerics
