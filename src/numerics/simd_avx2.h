// Ops on two 256-bit registers. What each operation means is written in simd_generic.h.
#pragma once

#include <immintrin.h>

#include <bit>

#include "numerics/cached.h"
#include "numerics/functions.h"

namespace cohort::numerics {

struct Avx2Ops {
  struct F {
    __m256 lo, hi;
  };
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 6;  // 12 of 16 registers

  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
  static F neg(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
  }
  static F rint(F a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, kNearest), _mm256_round_ps(a.hi, kNearest)};
  }
  static F exp2_int(F n) { return {exp2_half(n.lo), exp2_half(n.hi)}; }
  // max and min give their second operand when one is NaN.
  static F clamp_exp(F x) {
    const __m256 least = _mm256_set1_ps(kExpMin), most = _mm256_set1_ps(kExpMax);
    return {_mm256_min_ps(_mm256_max_ps(x.lo, least), most), _mm256_min_ps(_mm256_max_ps(x.hi, least), most)};
  }
  static F at_most(F x, F limit) { return {_mm256_min_ps(limit.lo, x.lo), _mm256_min_ps(limit.hi, x.hi)}; }
  static F at_least(F x, F limit) { return {_mm256_max_ps(limit.lo, x.lo), _mm256_max_ps(limit.hi, x.hi)}; }
  static F finish_exp(F x, F inside) { return {finish_half(x.lo, inside.lo), finish_half(x.hi, inside.hi)}; }

  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load(const Half* p) { return {_mm256_cvtph_ps(load8(p)), _mm256_cvtph_ps(load8(p + 8))}; }
  static F load(const Brain* p) { return {widen(load8(p)), widen(load8(p + 8))}; }
  static F load(const Eight* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)))};
  }
  static F load_part(const float* p, int n, float fill) {
    const __m256i lo = below(n), hi = below(n - 8);
    const __m256 other = _mm256_set1_ps(fill);
    return {_mm256_blendv_ps(other, _mm256_maskload_ps(p, lo), _mm256_castsi256_ps(lo)),
            _mm256_blendv_ps(other, _mm256_maskload_ps(p + 8, hi), _mm256_castsi256_ps(hi))};
  }
  static void store(float* p, F v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
  }
  static void store(Half* p, F v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, kNearest));
  }
  static void store(Brain* p, F v) {
    // packus works in 128-bit halves: lo 0-3, hi 0-3, lo 4-7, hi 4-7; the permutation puts them in order.
    const __m256i packed = _mm256_packus_epi32(round_brain(v.lo), round_brain(v.hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static void store_part(float* p, F v, int n) {
    _mm256_maskstore_ps(p, below(n), v.lo);
    _mm256_maskstore_ps(p + 8, below(n - 8), v.hi);
  }
  static F within(F v, F other, int lo, int hi) {
    const __m256i inside = _mm256_andnot_si256(below(lo), below(hi));
    const __m256i inside8 = _mm256_andnot_si256(below(lo - 8), below(hi - 8));
    return {_mm256_blendv_ps(other.lo, v.lo, _mm256_castsi256_ps(inside)),
            _mm256_blendv_ps(other.hi, v.hi, _mm256_castsi256_ps(inside8))};
  }
  static F max_number(F v, F m) { return {_mm256_max_ps(v.lo, m.lo), _mm256_max_ps(v.hi, m.hi)}; }
  static float tree16(F v) {
    const __m256 t8 = _mm256_add_ps(v.lo, v.hi);
    const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
  }
  static float max16(F v) {
    const __m256 t8 = _mm256_max_ps(v.lo, v.hi);
    const __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
  }
  static int first_equal(F v, F x) {
    const auto lo = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(v.lo, x.lo, _CMP_EQ_OQ)));
    const auto hi = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(v.hi, x.hi, _CMP_EQ_OQ)));
    return __builtin_ctz(lo | hi << 8 | 0x10000U);
  }
  static void load_pairs(const float* p, F& even, F& odd) {
    const F a = load(p), b = load(p + 16);
    even = {gather_pairs<0x88>(a), gather_pairs<0x88>(b)};
    odd = {gather_pairs<0xdd>(a), gather_pairs<0xdd>(b)};
  }
  static void store_pairs(float* p, F even, F odd) {
    store(p, spread_pairs(even.lo, odd.lo));
    store(p + 16, spread_pairs(even.hi, odd.hi));
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

 private:
  static __m256i below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256 exp2_half(__m256 n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static __m256 finish_half(__m256 x, __m256 inside) {
    const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMax), _CMP_GT_OQ);
    const __m256 not_below = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMin), _CMP_GE_OQ);
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 y = _mm256_and_ps(inside, not_below);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(std::bit_cast<float>(0x7f800000U)), above);
    return _mm256_blendv_ps(y, x, nan);
  }
  template <class T>
  static __m128i load8(const T* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m256 widen(__m128i brain) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(brain), 16));
  }
  static __m256i round_brain(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  }
  // The even (0x88) or odd (0xdd) of 16 values: the shuffle gives 0 2 8 10 | 4 6 12 14, the permutation orders them.
  template <int kPick>
  static __m256 gather_pairs(F v) {
    const __m256 picked = _mm256_shuffle_ps(v.lo, v.hi, kPick);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(picked), 0xd8));
  }
  static F spread_pairs(__m256 even, __m256 odd) {
    const __m256 a = _mm256_unpacklo_ps(even, odd), b = _mm256_unpackhi_ps(even, odd);
    return {_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)};
  }
};

}  // namespace cohort::numerics
