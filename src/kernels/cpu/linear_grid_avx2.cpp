// Tile kernels for AVX2 of the formats with code books. Entries are loaded one by one, whole bytes: a gather of eight
// words takes 8 to 13 cycles on Zen 3, and what it finds would have to be spread. Values come in the order of q.
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/layout_lowbit.h"
#include "kernels/cpu/linear_avx2_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {
namespace {

// --- numbers of entries ----------------------------------------------------------------------------------------------
// A store of a half has them as bytes (r, p), place p of output r. Those of more than eight bits are put together in
// memory, in the order of unpacking.

struct Numbers {
  alignas(32) uint16_t at[32];
  COHORT_INLINE Numbers(__m256i low, __m256i high) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(at), _mm256_unpacklo_epi8(low, high));
    _mm256_store_si256(reinterpret_cast<__m256i*>(at) + 1, _mm256_unpackhi_epi8(low, high));
  }
  COHORT_INLINE uint16_t operator()(int output, int place) const {
    return at[output % 4 / 2 * 16 + output / 4 * 8 + output % 2 * 4 + place];
  }
};
struct ByteNumbers {
  const std::byte* at;
  COHORT_INLINE uint8_t operator()(int output, int place) const { return static_cast<uint8_t>(at[4 * output + place]); }
};

/// Two entries of eight bytes: of outputs kOutput and the next.
template <int kOutput, class Number>
COHORT_INLINE __m128d two_eights(const GridTable& table, const Number& number, int place) {
  const auto* first = reinterpret_cast<const double*>(table.eights + number(kOutput, place));
  const auto* second = reinterpret_cast<const double*>(table.eights + number(kOutput + 1, place));
  return _mm_loadh_pd(_mm_load_sd(first), second);
}

/// Entries of eight bytes of the groups at `place` of eight outputs: lane r of `first` has the first four of output r.
template <class Number>
COHORT_INLINE void look_up_eights(const GridTable& table, const Number& number, int place, __m256i& first,
                                  __m256i& last) {
  const __m256d a = _mm256_set_m128d(two_eights<4>(table, number, place), two_eights<0>(table, number, place));
  const __m256d b = _mm256_set_m128d(two_eights<6>(table, number, place), two_eights<2>(table, number, place));
  first = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b), 0x88));
  last = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b), 0xdd));
}

/// Two entries of four bytes. The second load is of 16 bytes, of which four count: so it is part of the instruction.
template <int kOutput, class Number>
COHORT_INLINE __m128i two_fours(const GridTable& table, const Number& number, int place) {
  const __m128i low = _mm_cvtsi32_si128(static_cast<int>(table.fours[number(kOutput, place)]));
  const auto* second = reinterpret_cast<const __m128i*>(table.fours + number(kOutput + 1, place));
  return _mm_unpacklo_epi32(low, _mm_loadu_si128(second));
}

/// The same for entries of four bytes.
template <class Number>
COHORT_INLINE __m256i look_up_fours(const GridTable& table, const Number& number, int place) {
  const __m128i low = _mm_unpacklo_epi64(two_fours<0>(table, number, place), two_fours<2>(table, number, place));
  const __m128i high = _mm_unpacklo_epi64(two_fours<4>(table, number, place), two_fours<6>(table, number, place));
  return _mm256_set_m128i(high, low);
}

/// Bit j of the 32 of a half to byte j, as 0 or 1.
COHORT_INLINE __m256i bits_to_bytes(const std::byte* p, int half) {
  const __m256i mask = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p + 4 * half));
  const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const __m256i mine = _mm256_and_si256(_mm256_shuffle_epi8(mask, bytes_of_bits()), bits);
  return _mm256_and_si256(_mm256_cmpeq_epi8(mine, bits), _mm256_set1_epi8(1));
}

/// Byte kByte of each lane four times.
template <int kByte>
COHORT_INLINE __m256i byte_of_lanes(__m256i v) {
  constexpr int kFour = 0x01010101;
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_setr_epi32(kByte * kFour, (kByte + 4) * kFour,
                                                                           (kByte + 8) * kFour, (kByte + 12) * kFour)));
}

// --- signs -----------------------------------------------------------------------------------------------------------

/// Where the signs of values 4 kVector .. 4 kVector + 3 are: all in one byte of a lane.
template <Layout kLayout, int kVector>
struct SignBits {
  static constexpr int kByte = sign_place(kLayout, 4 * kVector) / 8;
  static constexpr int at(int j) { return sign_place(kLayout, 4 * kVector + j) % 8; }
  /// One less a bit is below zero unless it is bit 0: then all bits are taken one place up.
  static constexpr bool kDoubled = at(0) == 0 || at(1) == 0 || at(2) == 0 || at(3) == 0;
  static constexpr uint32_t bit(int j) { return 1U << (at(j) + (kDoubled ? 1 : 0)) << (8 * j); }
  static constexpr uint32_t kBits = bit(0) | bit(1) | bit(2) | bit(3);
  static_assert(!kDoubled || (at(0) < 7 && at(1) < 7 && at(2) < 7 && at(3) < 7));
};

struct Signs {
  __m256i plain, doubled;
  COHORT_INLINE explicit Signs(__m256i v) : plain(v), doubled(_mm256_add_epi8(v, v)) {}
  /// Magnitudes with their signs and the bias.
  template <Layout kLayout, int kVector>
  COHORT_INLINE __m256i apply(__m256i magnitudes) const {
    using Bits = SignBits<kLayout, kVector>;
    const __m256i mine = byte_of_lanes<Bits::kByte>(Bits::kDoubled ? doubled : plain);
    const __m256i negative = _mm256_and_si256(mine, _mm256_set1_epi32(static_cast<int>(Bits::kBits)));
    const __m256i sign = _mm256_sub_epi8(_mm256_set1_epi8(1), negative);
    return _mm256_add_epi8(_mm256_sign_epi8(magnitudes, sign), _mm256_set1_epi8(layout_info(kLayout).bias));
  }
};

/// Bytes of signs of IQ2_XXS (layout_lowbit.h) with the missing one, which is the parity of the others, in the place of
/// the other bit there: it changes if the parity of all bits is odd.
COHORT_INLINE __m256i complete_signs(__m256i stored) {
  static_assert(kNinthBit == 2);
  const __m256i odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 4, 0, 4, 0, 0, 4, 4, 0, 0, 4, 0, 4, 4, 0));
  const __m256i both = _mm256_xor_si256(stored, _mm256_srli_epi16(stored, 4));
  return _mm256_xor_si256(stored, _mm256_shuffle_epi8(odd, _mm256_and_si256(both, _mm256_set1_epi8(15))));
}

// --- quants ----------------------------------------------------------------------------------------------------------

template <Layout kLayout, int kMostInSixteen>
struct GridQuants {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr int kInSixteen = kMostInSixteen;
  static constexpr bool kSigned = false;
  const GridTable& table = grid_table(kLayout);
};

/// IQ2.
template <Layout kLayout>
struct Eights : GridQuants<kLayout, 1> {
  /// The bits of the numbers beyond eight, as bytes (r, p).
  static COHORT_INLINE __m256i high_bits(const std::byte* p, int half, __m256i stored) {
    if constexpr (kLayout == Layout::iq2_xxs)
      return _mm256_and_si256(_mm256_srli_epi16(stored, kNinthBit), _mm256_set1_epi8(1));
    if constexpr (kLayout == Layout::iq2_xs) return bits_to_bytes(p + 128, half);
    const __m256i four = _mm256_cvtepu8_epi32(load_half_bytes(p + 128 + 8 * half));
    const __m256i two = _mm256_or_si256(four, _mm256_slli_epi32(four, 12));  // bits 0 .. 3, then 4 .. 7
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi32(two, 6)), _mm256_set1_epi8(3));
  }
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    const __m256i stored = load_bytes(p + 64 + 32 * half);
    const Numbers numbers(load_bytes(p + 32 * half), high_bits(p, half, stored));
    const Signs signs(kLayout == Layout::iq2_xxs ? complete_signs(stored) : stored);
    group<0>(numbers, signs, w);
    group<1>(numbers, signs, w);
    group<2>(numbers, signs, w);
    group<3>(numbers, signs, w);
  }
  template <int k>
  COHORT_INLINE void group(const Numbers& numbers, const Signs& signs, __m256i* w) const {
    __m256i first, last;
    look_up_eights(this->table, numbers, group_place(kLayout, k), first, last);
    w[2 * k] = signs.apply<kLayout, 2 * k>(first);
    w[2 * k + 1] = signs.apply<kLayout, 2 * k + 1>(last);
  }
};

/// IQ3.
template <Layout kLayout, int kMostInSixteen>
struct Fours : GridQuants<kLayout, kMostInSixteen> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    const Signs signs(load_bytes(p + 128 + 32 * half));
    sixteen<0>(p, half, signs, w);
    sixteen<1>(p, half, signs, w);
  }
  template <int h>
  COHORT_INLINE void sixteen(const std::byte* p, int half, const Signs& signs, __m256i* w) const {
    const std::byte* low = p + 64 * h + 32 * half;
    if constexpr (kLayout == Layout::iq3_s) {
      vectors<h>(Numbers(load_bytes(low), bits_to_bytes(p + 192 + 8 * h, half)), signs, w);
    } else {
      vectors<h>(ByteNumbers{low}, signs, w);
    }
  }
  template <int h, class Number>
  COHORT_INLINE void vectors(const Number& numbers, const Signs& signs, __m256i* w) const {
    w[4 * h] = signs.apply<kLayout, 4 * h>(look_up_fours(this->table, numbers, 0));
    w[4 * h + 1] = signs.apply<kLayout, 4 * h + 1>(look_up_fours(this->table, numbers, 1));
    w[4 * h + 2] = signs.apply<kLayout, 4 * h + 2>(look_up_fours(this->table, numbers, 2));
    w[4 * h + 3] = signs.apply<kLayout, 4 * h + 3>(look_up_fours(this->table, numbers, 3));
  }
};

/// IQ1: entries are biased, and shifted by one up or down.
template <Layout kLayout>
struct Shifted : GridQuants<kLayout, 4> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    // The nibbles of 16 bits to four bytes.
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 64 + 16 * half)));
    high = _mm256_and_si256(_mm256_or_si256(high, _mm256_slli_epi32(high, 8)), _mm256_set1_epi32(0x00ff00ff));
    high = _mm256_and_si256(_mm256_or_si256(high, _mm256_slli_epi32(high, 4)), _mm256_set1_epi8(15));
    const Numbers numbers(load_bytes(p + 32 * half), _mm256_and_si256(high, _mm256_set1_epi8(7)));
    const __m256i two = _mm256_and_si256(_mm256_srli_epi16(high, 2), _mm256_set1_epi8(2));
    const __m256i shifts = _mm256_sub_epi8(_mm256_set1_epi8(1), two);
    group<0>(numbers, shifts, w);
    group<1>(numbers, shifts, w);
    group<2>(numbers, shifts, w);
    group<3>(numbers, shifts, w);
  }
  template <int k>
  COHORT_INLINE void group(const Numbers& numbers, __m256i shifts, __m256i* w) const {
    constexpr int kPlace = group_place(kLayout, k);
    __m256i first, last;
    look_up_eights(this->table, numbers, kPlace, first, last);
    const __m256i shift = byte_of_lanes<kPlace>(shifts);
    w[2 * k] = _mm256_add_epi8(first, shift);
    w[2 * k + 1] = _mm256_add_epi8(last, shift);
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

constexpr float power_of_two(int exponent) {
  return exponent < 0 ? 1.0F / static_cast<float>(1 << -exponent) : static_cast<float>(1 << exponent);
}

/// 2 s + 1 of the four bits from `shift` on of each word.
COHORT_INLINE __m256 odd_scale(const std::byte* words, int64_t shift) {
  const __m256i shifted = _mm256_srl_epi32(load_bytes(words), _mm_cvtsi64_si128(shift));
  const __m256i s = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
  return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1)));
}

template <SumKind kStart, int kExponent>
struct OddOne : IntScale<kStart> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 96 * (block / 8);
    this->d = _mm256_mul_ps(load_half(super + 16 * half), _mm256_set1_ps(power_of_two(kExponent)));
    this->s = odd_scale(super + 32 + 32 * half, 4 * (block % 8));
  }
};

template <SumKind kLow, SumKind kHigh, int kExponent>
struct OddTwo : KSixteen<kLow, kHigh> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 160 * (block / 8);
    const std::byte* words = super + 32 + 64 * (block % 8 / 4) + 32 * half;
    this->d = _mm256_mul_ps(load_half(super + 16 * half), _mm256_set1_ps(power_of_two(kExponent)));
    this->s0 = odd_scale(words, 8 * (block % 4));
    this->s1 = odd_scale(words, 8 * (block % 4) + 4);
  }
};

}  // namespace

// Biased codes of IQ2 reach 107 and of IQ3_XXS 126: 2 * 126 * 127 fits into 16 bits once. IQ3_S reaches 31, IQ1 25.
constinit const TileKernel kAvx2GridTiles[kGridLayouts] = {
    tile_all<Eights<Layout::iq2_xxs>, OddOne<kNeg64, -3>>,
    tile_all<Eights<Layout::iq2_xs>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Eights<Layout::iq2_s>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Fours<Layout::iq3_xxs, 1>, OddOne<kNeg64, -2>>,
    tile_all<Fours<Layout::iq3_s, 4>, OddOne<kNeg16, 0>>,
    tile_all<Shifted<Layout::iq1_s>, OddOne<kNeg16, -3>>,
    tile_all<Shifted<Layout::iq1_m>, OddTwo<kNeg16Low, kNeg16High, -3>>};

}  // namespace cohort::cpu
