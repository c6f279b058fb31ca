// Decoding of code books with AVX-512 VBMI (layout_lowbit.h, grid_tables.h).
//
// Tables are looked up in registers: one permutation is 64 entries for 64 indices at once, and further bits of the
// index choose between permutations by masks. A block of IQ2 (64 indices, two bytes of codes each) takes 8 permutations
// for 256 entries and 16 for 512, one of IQ3 (128 indices) twice as many. IQ1 with its 2048 entries is gathered, 16
// indices at once: the 64 of a block cost about 30 cycles of the load ports. Then signs go into bits beside the codes,
// such that six bits have two values, and one more permutation a vector makes bytes of them.
#pragma once

#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/linear_avx512_impl.h"

namespace cohort::cpu {
namespace {

/// b where `mask` has bits, else a.
COHORT_INLINE __m512i select(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xac);
}

COHORT_INLINE __mmask64 load_mask(const std::byte* p) {
  return _load_mask64(reinterpret_cast<__mmask64*>(const_cast<std::byte*>(p)));
}

/// Which entry of a table an index means, by its bits 6 and up; bits 0 to 5 choose among 64.
template <int kBits>
struct IndexMasks {
  __mmask64 mask[1 << (kBits - 6)];  // indices with all these bits
  /// `high`: bits 8 and up.
  COHORT_INLINE IndexMasks(__m512i index, const __mmask64* high) {
    mask[1] = _mm512_movepi8_mask(_mm512_add_epi8(index, index));
    mask[2] = _mm512_movepi8_mask(index);
    if constexpr (kBits > 8) mask[4] = high[0];
    if constexpr (kBits > 9) mask[8] = high[1];
#pragma GCC unroll 16
    for (int i = 3; i < 1 << (kBits - 6); ++i) {
      if ((i & (i - 1)) != 0) mask[i] = _kand_mask64(mask[i & (i - 1)], mask[i & -i]);
    }
  }
  COHORT_INLINE __m512i lookup(const uint8_t* table, __m512i index) const {
    __m512i v = _mm512_permutexvar_epi8(index, _mm512_load_si512(table));
#pragma GCC unroll 16
    for (int i = 1; i < 1 << (kBits - 6); ++i)
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
  groups[0] = _mm512_i32gather_epi32(group_index<0, kBits>(low, high), table.fives, 4);
  groups[1] = _mm512_i32gather_epi32(group_index<1, kBits>(low, high), table.fives, 4);
  groups[2] = _mm512_i32gather_epi32(group_index<2, kBits>(low, high), table.fives, 4);
  groups[3] = _mm512_i32gather_epi32(group_index<3, kBits>(low, high), table.fives, 4);
}

template <Layout kLayout>
struct Eights {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr Order kOrder = kLayout == Layout::iq2_xxs ? Order::strided : Order::transposed;
  static constexpr bool kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    constexpr int kBits = kLayout == Layout::iq2_xxs ? 8 : kLayout == Layout::iq2_xs ? 9 : 10;
    const __m512i index = load_bytes(p), signs = load_bytes(p + 64);
    __mmask64 high[2] = {};
#pragma GCC unroll 2
    for (int i = 0; i < kBits - 8; ++i) high[i] = load_mask(p + 128 + 8 * i);
    const IndexMasks<kBits> masks(index, high);
    __m512i first = masks.lookup(table.bytes[0], index), second = masks.lookup(table.bytes[1], index);
    if constexpr (kOrder == Order::transposed) {
      // To values 0-15 and 16-31: in each lane bytes 0 and 1 of a group, then of the next.
      const __m512i even = _mm512_set1_epi16(0xff), both = first;
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
      const __mmask64 high = kBits > 8 ? load_mask(p + 192 + 8 * h) : 0;
      const IndexMasks<kBits> masks(index, &high);
      const __m512i first =
          select(_mm512_set1_epi8(static_cast<char>(0x88)), masks.lookup(table.bytes[0], index), signs);
      const __m512i second = select(_mm512_set1_epi8(0x44), masks.lookup(table.bytes[1], index), signs);
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
