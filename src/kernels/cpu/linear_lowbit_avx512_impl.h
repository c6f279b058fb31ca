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
      for (int c = 1; c < 4; ++c) {
#ifdef __GFNI__  // bits 2c and 2c + 1 in one operation
        const auto bits = static_cast<long long>(uint64_t{1} << (56 + 2 * c) | uint64_t{2} << (48 + 2 * c));
        w[4 * h + c] = _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(bits), 0);
#else
        w[4 * h + c] = _mm512_and_si512(_mm512_srli_epi16(v, static_cast<unsigned>(2 * c)), three);
#endif
      }
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

/// The scales and mins of the two halves of a block stay 16-bit pairs: dot products of 16 codes of 2 bits fit, too.
struct KPairs {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kNoSum, kStartHigh = kNoSum;
  static constexpr int64_t kPeriod = 8;
  __m512 d, dmin;
  __m512i s, m;
  COHORT_INLINE void open(const std::byte* scales, int64_t super) {
    d = load_half(scales + 320 * super);
    dmin = load_half(scales + 320 * super + 32);
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* at = scales + 320 * (block / 8) + 64 + 32 * (block % 8);
    const __m512i both = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    s = _mm512_and_si512(both, _mm512_set1_epi16(15));
    m = _mm512_srli_epi16(both, 4);
  }
  template <bool>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512i real = _mm512_set1_epi32(kRealBits);  // whose low 16 bits are zero
    const __m512i dots = _mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_slli_epi32(high, 16));
    const __m512 isum = to_float<true>(_mm512_dpwssd_epi32(real, dots, s));
    const __m512 msum = to_float<true>(_mm512_dpwssd_epi32(real, m, set_int(x.sums[kSumPair] + at)));
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
  static constexpr int64_t kPeriod = 8;
  __m512 d;
  ExactScale s;
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.d[at])), s.template times<kReal>(dot), acc);
  }
};

struct KOne : IntScale<kNeg128> {
  COHORT_INLINE void open(const std::byte* scales, int64_t super) { d = load_half(scales + 160 * super); }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    s.set(load_i8(scales + 160 * (block / 8) + 32 + 16 * (block % 8)));
  }
};

constexpr float power_of_two(int exponent) {
  return exponent < 0 ? 1.0F / static_cast<float>(1 << -exponent) : static_cast<float>(1 << exponent);
}

/// 2 s + 1 of the four bits from `shift` on of each word.
COHORT_INLINE __m512 odd_scale(const std::byte* words, int64_t shift) {
  static constexpr int32_t kShifts[8] = {0, 4, 8, 12, 16, 20, 24, 28};
  const __m512i index = _mm512_srlv_epi32(load_bytes(words), set_int(kShifts + shift / 4));
  const __m512 odd = _mm512_setr_ps(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutexvar_ps(index, odd);
}

template <SumKind kBias, int kExponent>
struct OddOne : IntScale<kBias> {
  COHORT_INLINE void open(const std::byte* scales, int64_t super) {
    this->d = _mm512_mul_ps(load_half(scales + 96 * super), _mm512_set1_ps(power_of_two(kExponent)));
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    this->s.set(odd_scale(scales + 96 * (block / 8) + 32, 4 * (block % 8)));
  }
};

template <SumKind kLow, SumKind kHigh, int kExponent>
struct OddTwo : TwoScales<kLow, kHigh> {
  COHORT_INLINE void open(const std::byte* scales, int64_t super) {
    this->d = _mm512_mul_ps(load_half(scales + 160 * super), _mm512_set1_ps(power_of_two(kExponent)));
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* words = scales + 160 * (block / 8) + 32 + 64 * (block % 8 / 4);
    this->s0.set(odd_scale(words, 8 * (block % 4)));
    this->s1 = odd_scale(words, 8 * (block % 4) + 4);
  }
};

struct E8m0 : One<kNeg16> {
  COHORT_INLINE void open(const std::byte* scales, int64_t block) {
    const __m512i e = load_u8_int(scales + 16 * block);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    d = _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, tiny, _mm512_set1_epi32(0x00200000), e));
  }
};

struct E4m3Two {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kNeg16Low, kStartHigh = kNeg16High;
  static constexpr int64_t kPeriod = 1;
  __m512 d0, d1;
  /// The seven bits of E4M3 are an f16 that is 2^8 times too small.
  static COHORT_INLINE __m512 half_of(const std::byte* p) {
    const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(bytes, 7)), _mm512_set1_ps(0x1p7F));
  }
  COHORT_INLINE void load(const std::byte*, int64_t) {}
  COHORT_INLINE void open(const std::byte* scales, int64_t block) {
    d0 = half_of(scales + 32 * block);
    d1 = half_of(scales + 32 * block + 16);
  }
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d0, dx), to_float<kReal>(low), acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(d1, dx), to_float<kReal>(high), acc);
  }
};

}  // namespace
}  // namespace cohort::cpu
