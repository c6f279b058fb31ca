// A quantised block of 32 activations on its way to memory: what AVX2 and AVX-512 have in common.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/kernels.h"

// Nothing that the linker could merge with the same functions of another instruction set.
namespace cohort::cpu {
namespace {

/// Sum of 16 signed bytes. They are biased to unsigned for the sum of absolute differences with zero.
COHORT_INLINE int32_t sum_bytes(__m128i v) {
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

/// Values 0-15 (q0) and 16-31 (q1) with the scale d become block `at` of the chunk, in every order and with every sum
/// that its readers want.
COHORT_INLINE void store_block(const ActivationChunk& chunk, int64_t at, float d, __m128i q0, __m128i q1) {
  int8_t* q = chunk.q + at * kBlockValues;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), q0);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), q1);
  if (chunk.transposed != nullptr) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    auto* to = reinterpret_cast<__m128i*>(chunk.transposed + at * kBlockValues);
    _mm_storeu_si128(to, _mm_shuffle_epi8(q0, order));
    _mm_storeu_si128(to + 1, _mm_shuffle_epi8(q1, order));
  }
  if (chunk.strided != nullptr) {
    // Pairs of values 8 apart, then fours of them.
    const __m128i low = _mm_unpacklo_epi8(q0, _mm_srli_si128(q0, 8)),
                  high = _mm_unpacklo_epi8(q1, _mm_srli_si128(q1, 8));
    auto* to = reinterpret_cast<__m128i*>(chunk.strided + at * kBlockValues);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(low, high));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(low, high));
  }
  chunk.d[at] = d;
  const int32_t low = sum_bytes(q0), high = sum_bytes(q1);
  const int32_t part[3] = {low + high, low, high};
  chunk.store_sums(at, part);
}

}  // namespace
}  // namespace cohort::cpu
