#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_neon.h"

namespace cohort::cpu {

float fma_peak_neon(int64_t rounds);
int32_t int8_peak_neon(int64_t rounds);

float fma_peak_neon(int64_t rounds) {
  return fma_peak<numerics::NeonOps>(rounds);
}

// 16 chains of 16 multiply-adds.
int32_t int8_peak_neon(int64_t rounds) {
  int32x4_t chains[16];
  for (int i = 0; i < 16; ++i) chains[i] = vdupq_n_s32(i);
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
  for (; rounds > 0; --rounds) {
    asm volatile("" : "+w"(a), "+w"(b));  // or the loop would be computed once
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) chains[i] = vdotq_s32(chains[i], a, b);
  }
  for (int i = 1; i < 16; ++i) chains[0] = vaddq_s32(chains[0], chains[i]);
  return vaddvq_s32(chains[0]);
}

}  // namespace cohort::cpu
