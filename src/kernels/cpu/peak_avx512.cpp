#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort::cpu {

float fma_peak_avx512(int64_t rounds);
int32_t int8_peak_avx512(int64_t rounds);

float fma_peak_avx512(int64_t rounds) {
  return fma_peak<numerics::Avx512Ops>(rounds);
}

// 16 chains of 64 multiply-adds.
int32_t int8_peak_avx512(int64_t rounds) {
  __m512i chains[16];
  for (int i = 0; i < 16; ++i) chains[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
  for (; rounds > 0; --rounds) {
    asm volatile("" : "+v"(a), "+v"(b));  // or the loop would be computed once
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) chains[i] = _mm512_dpbusd_epi32(chains[i], a, b);
  }
  for (int i = 1; i < 16; ++i) chains[0] = _mm512_add_epi32(chains[0], chains[i]);
  return _mm512_reduce_add_epi32(chains[0]);
}

}  // namespace cohort::cpu
