// Decoding of code books with AVX-512 VBMI (layout_lowbit.h, grid_tables.h).
//
// Tables of 256 and 512 entries of two bytes are looked up in registers: a permutation of two registers is 128 entries
// for 64 indices at once, so that a block of IQ2 (64 indices) takes 4 of them for each 256 entries, and one of IQ3 (128
// indices) 8. Larger tables are gathered, 16 indices at once: the 64 of a block cost about 30 cycles of the load ports,
// as much as 16 permutations. From there every type goes the same way: nibbles, whose bit 3 takes the sign, to bytes
// through a table of 16.
#pragma once

#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/linear_avx512_impl.h"

namespace cohort::cpu {
namespace {

/// b where `mask` has bits, else a.
COHORT_INLINE __m512i select(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xac);
}

COHORT_INLINE __m512i lookup_128(const uint8_t* table, __m512i index) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + 64));
}
/// Bit 7 of the indices chooses the half; bit 8, if there are 512 entries, is in `ninth`.
COHORT_INLINE __m512i lookup_256(const uint8_t* table, __m512i index, __mmask64 eighth) {
  return _mm512_mask_blend_epi8(eighth, lookup_128(table, index), lookup_128(table + 128, index));
}
template <bool kNinth>
COHORT_INLINE __m512i lookup(const uint8_t* table, __m512i index, __mmask64 eighth, __mmask64 ninth) {
  if constexpr (!kNinth) return lookup_256(table, index, eighth);
  return _mm512_mask_blend_epi8(ninth, lookup_256(table, index, eighth), lookup_256(table + 256, index, eighth));
}
COHORT_INLINE __mmask64 load_mask(const std::byte* p) {
  return _load_mask64(reinterpret_cast<__mmask64*>(const_cast<std::byte*>(p)));
}

/// Nibbles (h, p) at nibbles[2h + p] to the eight vectors of bytes.
COHORT_INLINE void to_bytes(const GridTable& table, const __m512i* nibbles, __m512i* w) {
  const __m512i values = _mm512_load_si512(table.values);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    w[2 * c] = _mm512_permutexvar_epi8(nibbles[c], values);
    w[2 * c + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(nibbles[c], 4), values);
  }
}

/// The signs of nibbles c = 2h + p.
template <int c>
COHORT_INLINE __m512i with_signs(__m512i nibbles, __m512i signs) {
  return select(_mm512_set1_epi8(static_cast<char>(0x88)), nibbles, _mm512_slli_epi32(signs, 3 - c));
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
  groups[0] = _mm512_i32gather_epi32(group_index<0, kBits>(low, high), table.words, 4);
  groups[1] = _mm512_i32gather_epi32(group_index<1, kBits>(low, high), table.words, 4);
  groups[2] = _mm512_i32gather_epi32(group_index<2, kBits>(low, high), table.words, 4);
  groups[3] = _mm512_i32gather_epi32(group_index<3, kBits>(low, high), table.words, 4);
}

template <Layout kLayout>
struct Eights {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr bool kTransposed = true, kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    const __m512i index = load_bytes(p), signs = load_bytes(p + 64);
    __m512i half[2];  // of values 0-15 and 16-31: in each lane bytes 0 and 1 of a group, then of the next
    if constexpr (kLayout == Layout::iq2_s) {
      const __m512i high = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 128)));
      __m512i groups[4];
      gather_groups<2>(table, index, high, groups);
      half[0] = _mm512_mask_blend_epi16(0xaaaaaaaaU, groups[0], groups[1]);
      half[1] = _mm512_mask_blend_epi16(0xaaaaaaaaU, groups[2], groups[3]);
    } else {
      constexpr bool kNinth = kLayout == Layout::iq2_xs;
      const __mmask64 eighth = _mm512_movepi8_mask(index), ninth = kNinth ? load_mask(p + 128) : 0;
      const __m512i first = lookup<kNinth>(table.bytes[0], index, eighth, ninth);
      const __m512i second = lookup<kNinth>(table.bytes[1], index, eighth, ninth);
      const __m512i even = _mm512_set1_epi16(0xff);
      half[0] = select(even, _mm512_slli_epi16(second, 8), first);
      half[1] = select(even, second, _mm512_srli_epi16(first, 8));
    }
    const __m512i nibbles[4] = {with_signs<0>(half[0], signs), with_signs<1>(_mm512_srli_epi16(half[0], 2), signs),
                                with_signs<2>(half[1], signs), with_signs<3>(_mm512_srli_epi16(half[1], 2), signs)};
    to_bytes(table, nibbles, w);
  }
};

template <Layout kLayout>
struct Fours {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr bool kTransposed = true, kSlow = true;
  const GridTable& table = grid_table(kLayout);

  COHORT_INLINE void decode(const std::byte* p, __m512i* w) const {
    constexpr bool kNinth = kLayout == Layout::iq3_s;
    const __m512i signs = load_bytes(p + 128);
    __m512i nibbles[4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i index = load_bytes(p + 64 * h);
      const __mmask64 eighth = _mm512_movepi8_mask(index), ninth = kNinth ? load_mask(p + 192 + 8 * h) : 0;
      nibbles[2 * h] = lookup<kNinth>(table.bytes[0], index, eighth, ninth);
      nibbles[2 * h + 1] = lookup<kNinth>(table.bytes[1], index, eighth, ninth);
    }
    nibbles[0] = with_signs<0>(nibbles[0], signs);
    nibbles[1] = with_signs<1>(nibbles[1], signs);
    nibbles[2] = with_signs<2>(nibbles[2], signs);
    nibbles[3] = with_signs<3>(nibbles[3], signs);
    to_bytes(table, nibbles, w);
  }
};

template <Layout kLayout>
struct Shifted {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr bool kTransposed = true, kSlow = true;
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
    to_bytes(table, nibbles, w);
  }
};

}  // namespace
}  // namespace cohort::cpu
