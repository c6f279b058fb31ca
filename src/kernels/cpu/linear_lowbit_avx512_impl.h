// Decoding and scales of the formats of one to four bits with AVX-512 (layout_lowbit.h), as in linear_avx512_impl.h.
#pragma once

#include "kernels/cpu/linear_avx512_impl.h"

namespace cohort::cpu {
namespace {

// --- quants ----------------------------------------------------------------------------------------------------------

struct OneBit {
  static constexpr int64_t kBytes = 64;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    const __m512i two = _mm512_set1_epi8(2), v = load_bytes(p);
    w[0] = _mm512_and_si512(_mm512_add_epi8(v, v), two);
    w[1] = _mm512_and_si512(v, two);
#pragma GCC unroll 6
    for (int i = 2; i < 8; ++i) w[i] = _mm512_and_si512(_mm512_srli_epi16(v, static_cast<unsigned>(i - 1)), two);
  }
};

struct TwoBits {
  static constexpr int64_t kBytes = 128;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    const __m512i three = _mm512_set1_epi8(3);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i v = load_bytes(p + 64 * h);
      w[4 * h] = _mm512_and_si512(v, three);
#pragma GCC unroll 3
      for (int c = 1; c < 4; ++c)
        w[4 * h + c] = _mm512_and_si512(_mm512_srli_epi16(v, static_cast<unsigned>(2 * c)), three);
    }
  }
};

struct ThreeBits {
  static constexpr int64_t kBytes = 192;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    const __m512i four = _mm512_set1_epi8(4), high = load_bytes(p + 128);
    TwoBits::decode(p, w);
    const auto merge = [four](__m512i low, __m512i shifted) {
      return _mm512_ternarylogic_epi32(low, shifted, four, 0xf8);  // low | (shifted & four)
    };
    w[0] = merge(w[0], _mm512_slli_epi16(high, 2));
    w[1] = merge(w[1], _mm512_slli_epi16(high, 1));
    w[2] = merge(w[2], high);
#pragma GCC unroll 5
    for (int i = 3; i < 8; ++i) w[i] = merge(w[i], _mm512_srli_epi16(high, static_cast<unsigned>(i - 2)));
  }
};

/// Nibbles that index 16 codes, given with the bias.
template <class Table>
struct TableNibbles {
  static constexpr int64_t kBytes = 256;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    const __m512i table = _mm512_broadcast_i32x4(Table::values());
    Nibbles::decode(p, w);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = _mm512_shuffle_epi8(table, w[i]);
  }
};
struct Iq4Table {  // quant::iq4_values + 128
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15);
  }
};
struct Fp4Table {  // quant::fp4_values + 16
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

COHORT_INLINE __m512i load_u8_int(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

struct KPairs {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kNoSum, kStartHigh = kNoSum;
  __m512 d, dmin, s0, s1, m0, m1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 320 * (block / 8);
    const std::byte* at = super + 64 + 32 * (block % 8);
    const __m512i low = _mm512_set1_epi32(15), p0 = load_u8_int(at), p1 = load_u8_int(at + 16);
    d = load_half(super);
    dmin = load_half(super + 32);
    s0 = _mm512_cvtepi32_ps(_mm512_and_si512(p0, low));
    s1 = _mm512_cvtepi32_ps(_mm512_and_si512(p1, low));
    m0 = _mm512_cvtepi32_ps(_mm512_srli_epi32(p0, 4));
    m1 = _mm512_cvtepi32_ps(_mm512_srli_epi32(p1, 4));
  }
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512 isum =  // exact, as msum
        _mm512_fmadd_ps(s1, _mm512_cvtepi32_ps(high), _mm512_mul_ps(s0, _mm512_cvtepi32_ps(low)));
    const __m512 msum =
        _mm512_fmadd_ps(m1, set_float(x.sums[kSumHigh] + at), _mm512_mul_ps(m0, set_float(x.sums[kSumLow] + at)));
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), isum, acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(dmin, dx), msum, acc);
  }
};

/// What the formats with one integer scale for a block share.
template <SumKind kBias>
struct IntScale {
  static constexpr bool kHalves = false;
  static constexpr SumKind kStart = kBias, kStartHigh = kNoSum;
  __m512 d, s;
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.d[at])), _mm512_mul_ps(s, _mm512_cvtepi32_ps(dot)), acc);
  }
};

struct KOne : IntScale<kNeg128> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 160 * (block / 8);
    d = load_half(super);
    s = load_i8(super + 32 + 16 * (block % 8));
  }
};

constexpr float power_of_two(int exponent) {
  return exponent < 0 ? 1.0F / static_cast<float>(1 << -exponent) : static_cast<float>(1 << exponent);
}

template <SumKind kBias, int kExponent>
struct OddOne : IntScale<kBias> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 96 * (block / 8);
    const __m512i pairs = load_u8_int(super + 32 + 16 * (block % 8 / 2));
    // Twice the nibble, and one.
    const __m512i shifted = block % 2 != 0 ? _mm512_srli_epi32(pairs, 3) : _mm512_slli_epi32(pairs, 1);
    const __m512i odd = _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi32(30), _mm512_set1_epi32(1), 0xea);
    this->d = _mm512_mul_ps(load_half(super), _mm512_set1_ps(power_of_two(kExponent)));
    this->s = _mm512_cvtepi32_ps(odd);
  }
};

template <SumKind kLow, SumKind kHigh, int kExponent>
struct OddTwo {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kLow, kStartHigh = kHigh;
  __m512 d, s0, s1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 160 * (block / 8);
    const __m512i pairs = load_u8_int(super + 32 + 16 * (block % 8));
    const __m512i mask = _mm512_set1_epi32(30), one = _mm512_set1_epi32(1);
    d = _mm512_mul_ps(load_half(super), _mm512_set1_ps(power_of_two(kExponent)));
    s0 = _mm512_cvtepi32_ps(_mm512_ternarylogic_epi32(_mm512_slli_epi32(pairs, 1), mask, one, 0xea));
    s1 = _mm512_cvtepi32_ps(_mm512_ternarylogic_epi32(_mm512_srli_epi32(pairs, 3), mask, one, 0xea));
  }
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512 isum =
        _mm512_fmadd_ps(s1, _mm512_cvtepi32_ps(high), _mm512_mul_ps(s0, _mm512_cvtepi32_ps(low)));  // exact
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.d[at])), isum, acc);
  }
};

struct E8m0 : One<kNeg16> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const __m512i e = load_u8_int(scales + 16 * block);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    d = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, tiny, _mm512_set1_epi32(0x00200000), e));
  }
};

struct E4m3Two {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kNeg16Low, kStartHigh = kNeg16High;
  __m512 d0, d1;
  /// The seven bits of E4M3 are an f16 that is 2^8 times too small.
  static COHORT_INLINE __m512 half_of(const std::byte* p) {
    const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(bytes, 7)), _mm512_set1_ps(0x1p7F));
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    d0 = half_of(scales + 32 * block);
    d1 = half_of(scales + 32 * block + 16);
  }
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d0, dx), _mm512_cvtepi32_ps(low), acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(d1, dx), _mm512_cvtepi32_ps(high), acc);
  }
};

}  // namespace
}  // namespace cohort::cpu
