// Ops on one 512-bit register. What each operation means is written in simd_generic.h.
#pragma once

#include <immintrin.h>

#include <bit>

#include "numerics/cached.h"
#include "numerics/functions.h"

namespace cohort::numerics {

struct Avx512Ops {
  using F = __m512;
  static constexpr int kTileRows = 8;
  static constexpr int kTileVectors = 16;  // of 32 registers; two FMA units of latency 4 need 8 or more chains

  static F set(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F neg(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0F)); }
  static F rint(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F exp2_int(F n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  // max and min give their second operand when one is NaN.
  static F clamp_exp(F x) { return _mm512_min_ps(_mm512_max_ps(x, set(kExpMin)), set(kExpMax)); }
  static F at_most(F x, F limit) { return _mm512_min_ps(limit, x); }
  static F at_least(F x, F limit) { return _mm512_max_ps(limit, x); }
  static F finish_exp(F x, F inside) {
    const __mmask16 above = _mm512_cmp_ps_mask(x, set(kExpMax), _CMP_GT_OQ);
    const __mmask16 not_below = _mm512_cmp_ps_mask(x, set(kExpMin), _CMP_GE_OQ);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    F y = _mm512_maskz_mov_ps(not_below, inside);
    y = _mm512_mask_mov_ps(y, above, set(std::bit_cast<float>(0x7f800000U)));
    return _mm512_mask_mov_ps(y, nan, x);
  }

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static F load(const Brain* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static F load(const Eight* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F load_part(const float* p, int n, float fill) { return _mm512_mask_loadu_ps(set(fill), below(n), p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static void store(Half* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store(Brain* p, F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
  static void store_part(float* p, F v, int n) { _mm512_mask_storeu_ps(p, below(n), v); }
  static F within(F v, F other, int lo, int hi) {
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(below(hi) & ~below(lo)), v);
  }
  static F max_number(F v, F m) { return _mm512_max_ps(v, m); }
  static float tree16(F v) {
    const __m256 t8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return tree8(t8);
  }
  static float max16(F v) {
    const __m256 t8 = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
  }
  static int first_equal(F v, F x) {
    return __builtin_ctz(static_cast<unsigned>(_mm512_cmp_ps_mask(v, x, _CMP_EQ_OQ)) | 0x10000U);
  }
  static void load_pairs(const float* p, F& even, F& odd) {
    const F a = load(p), b = load(p + 16);
    even = _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
    odd = _mm512_permutex2var_ps(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
  }
  static void store_pairs(float* p, F even, F odd) {
    store(p,
          _mm512_permutex2var_ps(even, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), odd));
    store(p + 16, _mm512_permutex2var_ps(
                      even, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), odd));
  }
  // Into the second cache: the first has too few buffers for lines that are on their way.
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

 private:
  static __mmask16 below(int n) { return static_cast<__mmask16>((1U << n) - 1); }
  static float tree8(__m256 t8) {
    const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
  }
};

}  // namespace cohort::numerics
