// Tile kernels for AVX2 of the formats of one to four bits that decode by shifts or one table of 16, and of those with
// code books, whose entries are gathered. Stores and scales are in layout_lowbit.h and layout.h.
#include "kernels/cpu/grid_numbers.h"
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/linear_avx2_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {
namespace {

// --- quants ----------------------------------------------------------------------------------------------------------

struct OneBit {
  static constexpr int64_t kBytes = 64;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i two = _mm256_set1_epi8(2), v = load_bytes(p + 32 * half);
    w[0] = _mm256_and_si256(_mm256_add_epi8(v, v), two);
    w[1] = _mm256_and_si256(v, two);
#pragma GCC unroll 6
    for (int i = 2; i < 8; ++i) w[i] = _mm256_and_si256(_mm256_srli_epi16(v, i - 1), two);
  }
};

struct TwoBits {
  static constexpr int64_t kBytes = 128;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i three = _mm256_set1_epi8(3);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i v = load_bytes(p + 64 * h + 32 * half);
      w[4 * h] = _mm256_and_si256(v, three);
#pragma GCC unroll 3
      for (int c = 1; c < 4; ++c) w[4 * h + c] = _mm256_and_si256(_mm256_srli_epi16(v, 2 * c), three);
    }
  }
};

struct ThreeBits {
  static constexpr int64_t kBytes = 192;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i four = _mm256_set1_epi8(4), high = load_bytes(p + 128 + 32 * half);
    TwoBits::decode(p, half, w);
    const auto merge = [four](__m256i low, __m256i shifted) {
      return _mm256_or_si256(low, _mm256_and_si256(shifted, four));
    };
    w[0] = merge(w[0], _mm256_slli_epi16(high, 2));
    w[1] = merge(w[1], _mm256_slli_epi16(high, 1));
    w[2] = merge(w[2], high);
#pragma GCC unroll 5
    for (int i = 3; i < 8; ++i) w[i] = merge(w[i], _mm256_srli_epi16(high, i - 2));
  }
};

/// Nibbles that index a table of 16 codes.
template <class Table>
struct TableNibbles {
  static constexpr int64_t kBytes = 256;
  static constexpr int kInSixteen = Table::kInSixteen;
  static constexpr bool kSigned = Table::kSigned;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i table = _mm256_broadcastsi128_si256(Table::values());
    Nibbles::decode(p, half, w);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = _mm256_shuffle_epi8(table, w[i]);
  }
};
struct Iq4Table {  // quant::iq4_values
  static constexpr int kInSixteen = 1;
  static constexpr bool kSigned = true;
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  }
};
struct Fp4Table {  // quant::fp4_values + 16: 4 * 2 * 28 * 127 fits into 16 bits
  static constexpr int kInSixteen = 4;
  static constexpr bool kSigned = false;
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
  }
};

// --- code books: eight outputs, gathered 32 bits at a time -----------------------------------------------------------

/// b where `mask` has bits, else a.
COHORT_INLINE __m256i select(__m256i mask, __m256i a, __m256i b) {
  return _mm256_or_si256(_mm256_andnot_si256(mask, a), _mm256_and_si256(mask, b));
}

COHORT_INLINE __m256i gather(const GridTable& table, __m256i index) {
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(table.words), index, 4);
}

/// From words of a and b: all even bytes to a, all odd ones to b.
COHORT_INLINE void pair_bytes(__m256i& a, __m256i& b) {
  const __m256i even = _mm256_set1_epi16(0xff), from = a;
  a = select(even, _mm256_slli_epi16(b, 8), from);
  b = select(even, b, _mm256_srli_epi16(from, 8));
}

/// Nibbles (h, p) at nibbles[2h + p] to the eight vectors of bytes.
COHORT_INLINE void to_bytes(const GridTable& table, const __m256i* nibbles, __m256i* w) {
  const __m256i values = _mm256_load_si256(reinterpret_cast<const __m256i*>(table.nibble_values));
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    w[2 * c] = _mm256_shuffle_epi8(values, _mm256_and_si256(nibbles[c], low));
    w[2 * c + 1] = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(nibbles[c], 4), low));
  }
}

/// The signs of eights, whose two of a vector of nibbles are neighbours, and of fours.
COHORT_INLINE void add_signs(const std::byte* p, int half, __m256i* nibbles, bool eights) {
  const __m256i signs = load_bytes(p + 32 * half), mask = _mm256_set1_epi8(static_cast<char>(0x88));
  if (!eights) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) nibbles[c] = select(mask, nibbles[c], _mm256_slli_epi32(signs, c));
    return;
  }
  const __m256i low = _mm256_set1_epi8(0x08), high = _mm256_set1_epi8(static_cast<char>(0x80));
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    // Bits 4 and 5 for c = 0, 0 and 1 for c = 1, then the same two bits up.
    const int bit = c == 0 ? 4 : c == 1 ? 0 : c == 2 ? 6 : 2;
    const __m256i first = bit > 3 ? _mm256_srli_epi32(signs, bit - 3) : _mm256_slli_epi32(signs, 3 - bit);
    nibbles[c] = select(low, nibbles[c], first);
    nibbles[c] = select(high, nibbles[c], _mm256_slli_epi32(signs, 6 - bit));
  }
}

/// Byte `place` of each lane.
template <int place>
COHORT_INLINE __m256i byte_of(__m256i v) {
  return place == 3 ? _mm256_srli_epi32(v, 24)
                    : _mm256_and_si256(_mm256_srli_epi32(v, 8 * place), _mm256_set1_epi32(0xff));
}

/// Entries of four places of each output: the low byte of an index from `low`, the others from `high`, kBits for each.
template <int kBits>
COHORT_INLINE void gather_places(const GridTable& table, __m256i low, __m256i high, __m256i* entries) {
  const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1);
  const auto index = [&](__m256i byte, int place) {
    const __m256i more = _mm256_and_si256(_mm256_srli_epi32(high, kBits * place), mask);
    return kBits == 0 ? byte : _mm256_or_si256(byte, _mm256_slli_epi32(more, 8));
  };
  entries[0] = gather(table, index(byte_of<0>(low), 0));
  entries[1] = gather(table, index(byte_of<1>(low), 1));
  entries[2] = gather(table, index(byte_of<2>(low), 2));
  entries[3] = gather(table, index(byte_of<3>(low), 3));
}

/// The same for numbers of nine bits (grid_numbers.h): the ninth is in the byte of signs.
COHORT_INLINE void gather_numbers(const GridTable& table, __m256i low, __m256i signs, __m256i* entries) {
  const __m256i ninth = _mm256_set1_epi32(256);
  const auto number = [ninth](__m256i byte, __m256i bit) {
    return _mm256_or_si256(byte, _mm256_and_si256(bit, ninth));
  };
  entries[0] = gather(table, number(byte_of<0>(low), _mm256_slli_epi32(signs, 8 - kNinthBit)));
  entries[1] = gather(table, number(byte_of<1>(low), _mm256_srli_epi32(signs, kNinthBit)));
  entries[2] = gather(table, number(byte_of<2>(low), _mm256_srli_epi32(signs, 8 + kNinthBit)));
  entries[3] = gather(table, number(byte_of<3>(low), _mm256_srli_epi32(signs, 16 + kNinthBit)));
}

/// The 32 bits of this half of a mask of 64 (four for each output) to the lanes.
COHORT_INLINE __m256i spread_mask(const std::byte* p, int half) {
  const __m256i bits = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p + 4 * half));
  return _mm256_srlv_epi32(bits, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}

template <Layout kLayout, int kMostInSixteen>
struct GridQuants {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr int kInSixteen = kMostInSixteen;
  static constexpr bool kSigned = false;
  static constexpr Order kOrder = (layout_info(kLayout).sums & kStrided) != 0 ? Order::strided : Order::transposed;
  const GridTable& table = grid_table(kLayout);
};

/// Bytes of signs of IQ2_XXS (layout_lowbit.h) with the missing one, which is the parity of the others, in the place of
/// the other bit there: it changes if the parity of all bits is odd.
COHORT_INLINE __m256i complete_signs(__m256i stored) {
  static_assert(kNinthBit == 2);
  const __m256i odd = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 4, 0, 4, 0, 0, 4, 4, 0, 0, 4, 0, 4, 4, 0));
  const __m256i both = _mm256_xor_si256(stored, _mm256_srli_epi16(stored, 4));
  return _mm256_xor_si256(stored, _mm256_shuffle_epi8(odd, _mm256_and_si256(both, _mm256_set1_epi8(15))));
}

/// IQ2_XXS.
struct Pairs : GridQuants<Layout::iq2_xxs, 1> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    const __m256i stored = load_bytes(p + 64 + 32 * half), signs = complete_signs(stored);
    __m256i places[4];
    gather_numbers(table, load_bytes(p + 32 * half), stored, places);
    __m256i first = _mm256_blend_epi16(places[0], places[2], 0xaa);
    __m256i second = _mm256_blend_epi16(places[1], places[3], 0xaa);
    pair_bytes(first, second);
    const __m256i mask = _mm256_set1_epi8(static_cast<char>(0x88));
    const __m256i nibbles[4] = {select(mask, first, _mm256_slli_epi32(signs, 3)),
                                select(mask, _mm256_srli_epi16(first, 2), _mm256_slli_epi32(signs, 2)),
                                select(mask, second, _mm256_slli_epi32(signs, 1)),
                                select(mask, _mm256_srli_epi16(second, 2), signs)};
    __m256i values[8];
    to_bytes(table, nibbles, values);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[kPairValues[i / 2][i % 2]] = values[i];
  }
};

template <Layout kLayout>
struct Eights : GridQuants<kLayout, 1> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    const __m256i low = load_bytes(p + 32 * half);
    __m256i places[4];
    if constexpr (kLayout == Layout::iq2_s) {
      gather_places<2>(this->table, low, _mm256_cvtepu8_epi32(load_half_bytes(p + 128 + 8 * half)), places);
    } else {
      gather_places<1>(this->table, low, spread_mask(p + 128, half), places);
    }
    const __m256i first = _mm256_blend_epi16(places[0], places[2], 0xaa);
    const __m256i second = _mm256_blend_epi16(places[1], places[3], 0xaa);
    __m256i nibbles[4] = {first, _mm256_srli_epi16(first, 2), second, _mm256_srli_epi16(second, 2)};
    add_signs(p + 64, half, nibbles, true);
    to_bytes(this->table, nibbles, w);
  }
};

template <Layout kLayout, int kMostInSixteen>
struct Fours : GridQuants<kLayout, kMostInSixteen> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    __m256i nibbles[4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i low = load_bytes(p + 64 * h + 32 * half);
      __m256i places[4];
      if constexpr (kLayout == Layout::iq3_s) {
        gather_places<1>(this->table, low, spread_mask(p + 192 + 8 * h, half), places);
      } else {
        gather_places<0>(this->table, low, low, places);
      }
      nibbles[2 * h] = _mm256_blend_epi16(places[0], places[2], 0xaa);  // bytes 0 and 1 of groups 0 and 2
      nibbles[2 * h + 1] = _mm256_blend_epi16(places[1], places[3], 0xaa);
      pair_bytes(nibbles[2 * h], nibbles[2 * h + 1]);
    }
    add_signs(p + 128, half, nibbles, false);
    to_bytes(this->table, nibbles, w);
  }
};

template <Layout kLayout>
struct Shifted : GridQuants<kLayout, 4> {
  COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) const {
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 64 + 16 * half));
    __m256i places[4], nibbles[4];
    gather_places<4>(this->table, load_bytes(p + 32 * half), _mm256_cvtepu16_epi32(high), places);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i first = places[h], second = places[h + 2];  // groups 2h and 2h + 1
      nibbles[2 * h] = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa);
      nibbles[2 * h + 1] = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xaa);
    }
    to_bytes(this->table, nibbles, w);
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

COHORT_INLINE __m256i load_u8_int(const std::byte* p) {
  return _mm256_cvtepu8_epi32(load_half_bytes(p));
}

/// Sums of 16 codes of two bits fit into 16 bits, so one madd adds them up and applies their scale.
struct KPairs {
  __m256 d, dmin;
  __m256i s0, s1, m;  // two of 16 bits; s0 and s1 twice the same
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 320 * (block / 8);
    const std::byte* at = super + 64 + 32 * (block % 8) + 16 * half;
    const __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    d = load_half(super + 16 * half);
    dmin = load_half(super + 32 + 16 * half);
    const __m256i s = _mm256_and_si256(both, _mm256_set1_epi16(15));
    s0 = twice<0>(s);
    s1 = twice<2>(s);
    m = _mm256_srli_epi16(both, 4);
  }
  template <int kByte>
  static COHORT_INLINE __m256i twice(__m256i v) {
    constexpr char a = kByte, b = kByte + 1;
    const __m128i places = _mm_setr_epi8(a, b, a, b, a + 4, b + 4, a + 4, b + 4, a + 8, b + 8, a + 8, b + 8, a + 12,
                                         b + 12, a + 12, b + 12);
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(places));
  }
  /// Dot products of four vectors, in two parts of 16 bits.
  static COHORT_INLINE __m256i pairs(const __m256i* w, const int8_t* q) {
    const __m256i first =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[0], set_four(q)), _mm256_maddubs_epi16(w[1], set_four(q + 4)));
    const __m256i last =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[2], set_four(q + 8)), _mm256_maddubs_epi16(w[3], set_four(q + 12)));
    return _mm256_add_epi16(first, last);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i low = _mm256_madd_epi16(pairs(w, q), s0), high = _mm256_madd_epi16(pairs(w + 4, q + 16), s1);
    const __m256 isum = _mm256_cvtepi32_ps(_mm256_add_epi32(low, high));
    const __m256 msum = _mm256_cvtepi32_ps(_mm256_madd_epi16(m, set_int(x.sums[kSumPair] + at)));
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), isum, acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(dmin, dx), msum, acc);
  }
};

/// What the formats with one integer scale for a block share.
template <SumKind kStart>
struct IntScale {
  __m256 d, s;
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256 dot = to_float(dots<Quants, 8>(x.sums[kStart] + at, w, q));
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[at])), _mm256_mul_ps(s, dot), acc);
  }
};

struct KOne : IntScale<kNeg128> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 160 * (block / 8);
    d = load_half(super + 16 * half);
    s = load_i8(super + 32 + 16 * (block % 8) + 8 * half);
  }
};

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

struct E8m0 : One<kNeg16> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const __m256i e = load_u8_int(scales + 16 * block + 8 * half);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    d = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }
};

struct E4m3Two {
  __m256 d0, d1;
  /// The seven bits of E4M3 are an f16 that is 2^8 times too small.
  static COHORT_INLINE __m256 half_of(const std::byte* p) {
    const __m128i halves = _mm_slli_epi16(_mm_cvtepu8_epi16(load_half_bytes(p)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p7F));
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d0 = half_of(scales + 32 * block + 8 * half);
    d1 = half_of(scales + 32 * block + 16 + 8 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256 low = to_float(dots<Quants, 4>(x.sums[kNeg16Low] + at, w, q));
    const __m256 high = to_float(dots<Quants, 4>(x.sums[kNeg16High] + at, w + 4, q + 16));
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d0, dx), low, acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(d1, dx), high, acc);
  }
};

}  // namespace

constinit const TileKernel kAvx2LowbitTiles[kLowbitLayouts] = {tile_all<OneBit, One<kNeg1, 2>>,
                                                               tile_all<TwoBits, One<kNeg1, 1>>,
                                                               tile_all<TwoBits, One<kNeg1, 2>>,
                                                               tile_all<TwoBits, One<kNeg1, 3>>,
                                                               tile_all<TwoBits, KPairs>,
                                                               tile_all<ThreeBits, KSixteen<kNeg4Low, kNeg4High>>,
                                                               tile_all<TableNibbles<Iq4Table>, One<kNeg128>>,
                                                               tile_all<TableNibbles<Iq4Table>, KOne>,
                                                               tile_all<TableNibbles<Fp4Table>, E8m0>,
                                                               tile_all<TableNibbles<Fp4Table>, E4m3Two>};

// Biased codes of IQ2 reach 107 and of IQ3_XXS 126: 2 * 126 * 127 fits into 16 bits once. IQ3_S reaches 31, IQ1 25.
constinit const TileKernel kAvx2GridTiles[kGridLayouts] = {
    tile_all<Pairs, OddOne<kNeg64, -3>>,
    tile_all<Eights<Layout::iq2_xs>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Eights<Layout::iq2_s>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Fours<Layout::iq3_xxs, 1>, OddOne<kNeg64, -2>>,
    tile_all<Fours<Layout::iq3_s, 4>, OddOne<kNeg16, 0>>,
    tile_all<Shifted<Layout::iq1_s>, OddOne<kNeg16, -3>>,
    tile_all<Shifted<Layout::iq1_m>, OddTwo<kNeg16Low, kNeg16High, -3>>};

}  // namespace cohort::cpu
