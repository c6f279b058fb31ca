// Decoding of code books with AVX-512 VBMI (layout_lowbit.h, grid_tables.h).
//
// Tables are looked up in registers: one permutation is 64 entries for 64 indices at once, and further bits of the
// index choose between permutations by masks. A block of IQ2 (64 indices, two bytes of codes each) takes 16
// permutations for 512 entries and, as its entries are numbered for it (grid_numbers.h), 4 for 256; one of IQ3 (128
// indices) takes 16 or 32. IQ2_S and IQ1 with 1024 and 2048 entries are gathered, 16 indices at once: the 64 of a block
// cost about 30 cycles of the load ports. Then signs go into bits beside the codes, such that six bits have two values,
// and one more permutation a vector makes bytes of them.
#pragma once

#include "kernels/cpu/grid_numbers.h"
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/linear_avx512_impl.h"

namespace cohort::cpu {
namespace {

/// b where `mask` has bits, else a. (In this order a's register is overwritten, and no mask has to be copied.)
COHORT_INLINE __m512i select(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xd8);
}

COHORT_INLINE __mmask64 load_mask(const std::byte* p) {
  return _load_mask64(reinterpret_cast<__mmask64*>(const_cast<std::byte*>(p)));
}

/// Looks up tables of 2^kBits bytes: bits 0 to 5 of an index choose among 64, the others between permutations by masks.
template <int kBits>
struct Lookup {
  static constexpr int kParts = 1 << (kBits - 6);
  __m512i index;
  __mmask64 mask[kParts];  // indices with all these bits
  /// `high`: bit 8 of the indices.
  COHORT_INLINE Lookup(__m512i low, const std::byte* high) : index(low) {
    mask[1] = _mm512_movepi8_mask(_mm512_add_epi8(index, index));
    mask[2] = _mm512_movepi8_mask(index);
    mask[3] = _kand_mask64(mask[1], mask[2]);
    if constexpr (kBits > 8) {
      mask[4] = load_mask(high);
#pragma GCC unroll 3
      for (int i = 5; i < kParts; ++i) mask[i] = _kand_mask64(mask[4], mask[i - 4]);
    }
  }
  COHORT_INLINE __m512i in(const uint8_t* table) const {
    __m512i v = _mm512_permutexvar_epi8(index, _mm512_load_si512(table));
#pragma GCC unroll 7
    for (int i = 1; i < kParts; ++i)
      v = _mm512_mask_permutexvar_epi8(v, mask[i], index, _mm512_load_si512(table + 64 * i));
    return v;
  }
};

COHORT_INLINE __m512i value_of(const GridTable& table, int which, __m512i six_bits) {
  return _mm512_permutexvar_epi8(six_bits, _mm512_load_si512(table.values[which]));
}

/// Four codes of two bits a byte, with the signs of the first half of the vectors, or of the second if shifted before.
COHORT_INLINE void eights_to_bytes(const GridTable& table, __m512i codes, __m512i signs, __m512i* w) {
  const __m512i first = select(_mm512_set1_epi8(0x30), codes, signs);
  const __m512i second = select(_mm512_set1_epi8(0x03), _mm512_srli_epi16(codes, 2), signs);
  w[0] = value_of(table, 0, first);
  w[1] = value_of(table, 1, first);
  w[2] = value_of(table, 2, second);
  w[3] = value_of(table, 3, second);
}

/// The index of group k of each output: its low byte from `low`, and the `kBits` at kBits * place of `high`.
template <int k, int kBits>
COHORT_INLINE __m512i group_index(__m512i low, __m512i high) {
  constexpr int kPlace = k == 1 ? 2 : k == 2 ? 1 : k;
  const __m512i spread = _mm512_broadcast_i32x4(
      _mm_setr_epi8(kPlace, -1, -1, -1, 4 + kPlace, -1, -1, -1, 8 + kPlace, -1, -1, -1, 12 + kPlace, -1, -1, -1));
  constexpr int kShift = 8 - kBits * kPlace;
  const __m512i shifted = kShift >= 0 ? _mm512_slli_epi32(high, static_cast<unsigned>(kShift >= 0 ? kShift : 0))
                                      : _mm512_srli_epi32(high, static_cast<unsigned>(kShift < 0 ? -kShift : 0));
  const __m512i mask = _mm512_set1_epi32(((1 << kBits) - 1) << 8);
  return _mm512_ternarylogic_epi32(_mm512_shuffle_epi8(low, spread), shifted, mask, 0xf8);  // low | (shifted & mask)
}

/// Entries of 32 bits of the four groups of each output.
template <int kBits>
COHORT_INLINE void gather_groups(const GridTable& table, __m512i low, __m512i high, __m512i* groups) {
  groups[0] = _mm512_i32gather_epi32(group_index<0, kBits>(low, high), table.gathered, 4);
  groups[1] = _mm512_i32gather_epi32(group_index<1, kBits>(low, high), table.gathered, 4);
  groups[2] = _mm512_i32gather_epi32(group_index<2, kBits>(low, high), table.gathered, 4);
  groups[3] = _mm512_i32gather_epi32(group_index<3, kBits>(low, high), table.gathered, 4);
}

/// IQ2_XXS.
struct Pairs {
  static constexpr int64_t kBytes = layout_info(Layout::iq2_xxs).quant_bytes;
  static constexpr Order kOrder = Order::strided;
  static constexpr bool kSlow = true;
  const PairTable& table = pair_table();

  /// A row of the matrix of an affine operation: bit `to` of a byte is the sum of these bits.
  static constexpr uint64_t bits_to(int to, uint64_t bits) { return bits << (8 * (7 - to)); }
  static COHORT_INLINE __m512i affine(__m512i v, uint64_t matrix) {
    return _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(static_cast<int64_t>(matrix)), 0);
  }
  static COHORT_INLINE __m512i look_up(__m512i index, const uint8_t* in) {
    return _mm512_permutexvar_epi8(index, _mm512_load_si512(in));
  }
  template <int kPair>
  COHORT_INLINE void values(__m512i codes, __m512i signs, __m512i* w) const {
    const __m512i mask = _mm512_set1_epi8(kPair % 2 == 0 ? 0x11 : 0x22);
    const __m512i both = kPair == 2 ? select(mask, codes, signs)
                                    : _mm512_ternarylogic_epi32(codes, signs, mask, 0xf8);  // codes | (signs & mask)
    w[kPairValues[kPair][0]] = look_up(both, table.values[kPair % 2 * 2]);
    w[kPairValues[kPair][1]] = look_up(both, table.values[kPair % 2 * 2 + 1]);
  }

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    const __m512i number = load_bytes(p), signs = load_bytes(p + 64);
    constexpr uint64_t kSecond = bits_to(0, 1) | bits_to(1, 2) | bits_to(2, 4) | bits_to(3, 8) | bits_to(4, 16) |
                                 bits_to(5, 64);  // pair_index(1, ..)
    constexpr uint64_t kUpper = bits_to(0, 0xfb) | bits_to(4, 64) | bits_to(1, 8) | bits_to(5, 128);
    constexpr uint64_t kFourth = bits_to(0, 1) | bits_to(4, 16) | bits_to(2, 64) | bits_to(3, 128);
    values<0>(look_up(number, table.pair[0]), signs, w);
    values<1>(look_up(affine(number, kSecond), table.pair[1]), signs, w);
    const __m512i index = select(_mm512_set1_epi8(1 << kNinthBit), number, signs);  // half_index()
    const __m512i half = _mm512_mask_permutexvar_epi8(look_up(index, table.half), _mm512_movepi8_mask(number), index,
                                                      _mm512_load_si512(table.half + 64));
    const __m512i upper = affine(signs, kUpper);
    values<3>(affine(half, kFourth), upper, w);
    values<2>(half, upper, w);
  }
};

template <Layout kLayout>
struct Eights {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr Order kOrder = Order::transposed;
  static constexpr bool kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    const __m512i index = load_bytes(p), signs = load_bytes(p + 64);
    __m512i first, second;  // the codes of values 0-3 and 4-7 of each group
    if constexpr (kLayout == Layout::iq2_s) {
      // Here of values 0-15 and 16-31: in each lane bytes 0 and 1 of a group, then of the next.
      const __m512i high = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 128)));
      __m512i groups[4];
      gather_groups<2>(table, index, high, groups);
      first = _mm512_mask_blend_epi16(0xaaaaaaaaU, groups[0], groups[1]);
      second = _mm512_mask_blend_epi16(0xaaaaaaaaU, groups[2], groups[3]);
    } else {
      const Lookup<9> entries(index, p + 128);
      const __m512i both = entries.in(table.bytes[0]);
      second = entries.in(table.bytes[1]);
      // To the same.
      const __m512i even = _mm512_set1_epi16(0xff);
      first = select(even, _mm512_slli_epi16(second, 8), both);
      second = select(even, second, _mm512_srli_epi16(both, 8));
    }
    eights_to_bytes(table, first, signs, w);
    eights_to_bytes(table, second, _mm512_srli_epi16(signs, 2), w + 4);
  }
};

template <Layout kLayout>
struct Fours {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr Order kOrder = Order::transposed;
  static constexpr bool kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    constexpr int kBits = kLayout == Layout::iq3_s ? 9 : 8;
    const __m512i all_signs = load_bytes(p + 128);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i index = load_bytes(p + 64 * h);
      const __m512i signs = h == 0 ? all_signs : _mm512_slli_epi16(all_signs, 2);
      const Lookup<kBits> entries(index, p + 192 + 8 * h);
      const __m512i first = select(_mm512_set1_epi8(static_cast<char>(0x88)), entries.in(table.bytes[0]), signs);
      const __m512i second = select(_mm512_set1_epi8(0x44), entries.in(table.bytes[1]), signs);
      w[4 * h] = value_of(table, 0, first);
      w[4 * h + 1] = value_of(table, 0, _mm512_srli_epi16(first, 4));
      w[4 * h + 2] = value_of(table, 1, second);
      w[4 * h + 3] = value_of(table, 1, _mm512_srli_epi16(second, 4));
    }
  }
};

template <Layout kLayout>
struct Shifted {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr Order kOrder = Order::transposed;
  static constexpr bool kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64)));
    __m512i groups[4], nibbles[4];
    gather_groups<4>(table, load_bytes(p), high, groups);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i first = groups[2 * h], second = groups[2 * h + 1];
      nibbles[2 * h] = _mm512_mask_blend_epi16(0xaaaaaaaaU, first, _mm512_slli_epi32(second, 16));
      nibbles[2 * h + 1] = _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(first, 16), second);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      w[2 * c] = value_of(table, 0, nibbles[c]);
      w[2 * c + 1] = value_of(table, 1, nibbles[c]);
    }
  }
};

}  // namespace
}  // namespace cohort::cpu
