// The 16-bit types of cached values, as types: kernels are templates over float, Half and Brain.
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

}  // namespace cohort::numerics
