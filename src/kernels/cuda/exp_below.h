// numerics::exp for arguments that are not above zero, in fewer instructions: softmax subtracts the maximum first.
#pragma once

#include "numerics/functions.h"

namespace cohort::cuda {

/// A policy of numerics::exp whose results are ScalarOps' for x <= 0 and NaN. Adding 1.5 * 2^23 rounds what is small
/// enough to an integer (ties to even, as rint) that then lies in the low bits.
struct BelowOps : numerics::ScalarOps {
  static constexpr float kRound = 12582912.0F;
  COHORT_HD static F rint(F a) { return sub(add(a, set(kRound)), set(kRound)); }
  COHORT_HD static F exp2_int(F n) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float((__float_as_uint(add(n, kRound)) << 23) + 0x3f800000U);
#else
    return std::bit_cast<float>((std::bit_cast<uint32_t>(add(n, kRound)) << 23) + 0x3f800000U);
#endif
  }
  /// NaN stays, so that finish_exp need not look for it.
  COHORT_HD static F clamp_exp(F x) {
    return x < numerics::kExpMin ? numerics::kExpMin : x;
  }
  COHORT_HD static F finish_exp(F x, F inside) {
    return x < numerics::kExpMin ? 0.0F : inside;
  }
};

/// exp(x) by rule 6 for x <= 0 or NaN.
COHORT_HD inline float exp_below(float x) {
  return numerics::exp<BelowOps>(x);
}

}  // namespace cohort::cuda
