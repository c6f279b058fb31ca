// Rule 3 and 4 for a warp of the streaming kernels: segments of one 16-row tile times up to 8 * NT columns that lie as
// records (Quantised) in shared memory.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

/// Count adjacent words, in wide loads; aligned to 16 bytes where Count is a multiple of 4, else to 8 if it is even.
template <int Count, class T>
__device__ __forceinline__ void load_words(const std::byte* p, T (&out)[Count]) {
  static_assert(sizeof(T) == 4);
  constexpr int kWide = Count % 4 == 0 ? 4 : Count % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < Count; i += kWide) {
    if constexpr (kWide == 4) {
      *reinterpret_cast<uint4*>(out + i) = *reinterpret_cast<const uint4*>(p + i * 4);
    } else if constexpr (kWide == 2) {
      *reinterpret_cast<uint2*>(out + i) = *reinterpret_cast<const uint2*>(p + i * 4);
    } else {
      out[i] = *reinterpret_cast<const T*>(p + i * 4);
    }
  }
}

/// Where a lane reads its columns' records: the values of column g and the scales of columns 2t and 2t + 1, of the
/// first 8-column group. In shared or in device memory.
struct ColumnPointers {
  const std::byte* values;
  const std::byte* scales0;
  const std::byte* scales1;
  int group_stride;  // bytes to the next 8 columns
  int sums;          // bytes from scales to sums

  /// Block `block` of the column of group `n`.
  __device__ __forceinline__ uint2 value(int n, int block) const {
    return *reinterpret_cast<const uint2*>(values + n * group_stride + block * 32);
  }
  /// Scales of Count blocks from `block` on (load_words' alignment), and their sums.
  template <int Count>
  __device__ __forceinline__ void scales(int n, int block, float (&d0)[Count], float (&d1)[Count]) const {
    load_words(scales0 + n * group_stride + block * 4, d0);
    load_words(scales1 + n * group_stride + block * 4, d1);
  }
  template <int Count>
  __device__ __forceinline__ void column_sums(int n, int block, int32_t (&s0)[Count], int32_t (&s1)[Count]) const {
    load_words(scales0 + n * group_stride + block * 4 + sums, s0);
    load_words(scales1 + n * group_stride + block * 4 + sums, s1);
  }
};
/// Columns that copy_column left `stride` bytes (shared_record) apart.
__device__ __forceinline__ ColumnPointers columns_at(const std::byte* base, int stride, int blocks, Lane at) {
  const std::byte* scales = base + at.t * 2 * stride + blocks * 32 + (at.t >> 1) * kScaleGap;
  return {base + at.g * stride + at.t * 8, scales, scales + stride, 8 * stride, blocks * 4};
}
/// Copies a record's first `bytes` to its place among columns; the scales of every other four columns lie kScaleGap
/// further, for those of columns 2t would share their banks with those of 2t + 4.
__device__ __forceinline__ void copy_column(std::byte* columns, int column, int stride, const std::byte* record,
                                            int blocks, int bytes, uint64_t* barrier) {
  std::byte* to = columns + column * stride;
  bulk_copy(to, record, static_cast<uint32_t>(blocks * 32), barrier);
  bulk_copy(to + blocks * 32 + (column >> 2 & 1) * kScaleGap, record + blocks * 32,
            static_cast<uint32_t>(bytes - blocks * 32), barrier);
}

/// Blocks of a segment of SB whose unpacked weights a lane keeps while the columns go by.
template <Format F, int SB>
COHORT_HD constexpr int held_blocks() {
  if (F == Format::k4 || F == Format::k6) return SB % 2 == 0 ? 2 : 1;  // more registers
  return SB % 4 == 0 ? 4 : 2;
}

template <int NT>
__device__ __forceinline__ void clear(float (&acc)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0F;
  }
}

/// A segment of SB blocks from +0: straight-line code. All: all NT column groups are in use.
template <Format F, int NT, int SB, bool All, class X>
__device__ __forceinline__ void known_segment_sum(const std::byte* tile, int block, int column_block, const X& x,
                                                  int n_tiles, bool two_groups, Lane at, float (&acc)[NT][4]) {
  constexpr int kHeld = held_blocks<F, SB>();
  static_assert(SB % kHeld == 0);
  clear<NT>(acc);
#pragma unroll
  for (int first = 0; first < SB; first += kHeld) {
    Block<F> w[kHeld];
#pragma unroll
    for (int b = 0; b < kHeld; ++b) w[b].load(tile, block + first + b, at, two_groups);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (!All && n >= n_tiles) break;
      const int from = column_block + first;
      float d0[kHeld], d1[kHeld];
      x.scales(n, from, d0, d1);
      [[maybe_unused]] int32_t sums0[kHeld], sums1[kHeld];
      if constexpr (Block<F>::kSums) x.column_sums(n, from, sums0, sums1);
#pragma unroll
      for (int b = 0; b < kHeld; ++b) {
        Columns c;
        const uint2 q = x.value(n, from + b);
        c.b0 = q.x;
        c.b1 = q.y;
        c.d0 = d0[b];
        c.d1 = d1[b];
        if constexpr (Block<F>::kSums) {
          c.sums0 = sums0[b];
          c.sums1 = sums1[b];
        }
        w[b].add(acc[n], c);
      }
    }
  }
}

/// One 32-block more of up to NT column groups.
template <Format F, int NT, class X>
__device__ __forceinline__ void block_sum(const std::byte* tile, int block, int column_block, const X& x, int n_tiles,
                                          bool two_groups, Lane at, float (&acc)[NT][4]) {
  Block<F> w;
  w.load(tile, block, at, two_groups);
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    if (NT > 1 && n >= n_tiles) break;
    Columns c;
    const uint2 q = x.value(n, column_block);
    c.b0 = q.x;
    c.b1 = q.y;
    float d0[1], d1[1];
    x.scales(n, column_block, d0, d1);
    c.d0 = d0[0];
    c.d1 = d1[0];
    if constexpr (Block<F>::kSums) {
      int32_t sums0[1], sums1[1];
      x.column_sums(n, column_block, sums0, sums1);
      c.sums0 = sums0[0];
      c.sums1 = sums1[0];
    }
    w.add(acc[n], c);
  }
}

/// One segment from +0. `tile`, `block`: where its weights are; `column_block`: where its activations are; n_tiles:
/// 8-column groups in use. SB: its 32-blocks when known at compile time (then column_block is a multiple of it), else
/// 0.
template <Format F, int NT, int SB>
__device__ __forceinline__ void segment_sum(const std::byte* tile, int block, int column_block, int blocks,
                                            const ColumnPointers& x, int n_tiles, bool two_groups, Lane at,
                                            float (&acc)[NT][4]) {
  if constexpr (SB > 0 && F != Format::generic) {  // generic: too much code
    if (NT == 1 || n_tiles == NT) {
      known_segment_sum<F, NT, SB, true>(tile, block, column_block, x, NT, two_groups, at, acc);
    } else {
      known_segment_sum<F, NT, SB, false>(tile, block, column_block, x, n_tiles, two_groups, at, acc);
    }
  } else {
    clear<NT>(acc);
    const int count = SB > 0 ? SB : blocks;
#pragma unroll(SB > 0 && NT == 1 ? SB : 2)
    for (int b = 0; b < count; ++b)
      block_sum<F, NT>(tile, block + b, column_block + b, x, n_tiles, two_groups, at, acc);
  }
}

template <int NT>
__device__ __forceinline__ void add_to(float (&acc)[NT][4], const float (&first)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = __fadd_rn(first[n][i], acc[n][i]);
  }
}
template <int NT>
__device__ __forceinline__ void copy_to(float (&to)[NT][4], const float (&from)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[n][i] = from[n][i];
  }
}

/// The tree over Count segments, all of it straight-line code.
template <Format F, int SB, int Count>
__device__ __forceinline__ void segments_tree_of(const std::byte* tile, int block, int column_block,
                                                 const ColumnPointers& x, bool two_groups, Lane at,
                                                 float (&acc)[1][4]) {
  if constexpr (Count == 1) {
    segment_sum<F, 1, SB>(tile, block, column_block, SB, x, 1, two_groups, at, acc);
  } else {
    constexpr int kHalf = Count / 2;
    float first[1][4];
    segments_tree_of<F, SB, kHalf>(tile, block, column_block, x, two_groups, at, first);
    segments_tree_of<F, SB, kHalf>(tile, block + kHalf * SB, column_block + kHalf * SB, x, two_groups, at, acc);
    add_to<1>(acc, first);
  }
}

/// The same with four segments; of long formats the two pairs by a loop.
template <Format F, int SB>
__device__ __forceinline__ void two_pairs_tree_of(const std::byte* tile, int block, const ColumnPointers& x, Lane at,
                                                  float (&acc)[1][4]) {
  if constexpr (kLong<F>) {
    float first[1][4];
    clear<1>(acc);
#pragma unroll 1
    for (int from = block; from < block + 4 * SB; from += 2 * SB) {
      copy_to<1>(first, acc);
      segments_tree_of<F, SB, 2>(tile, from, from, x, false, at, acc);
    }
    add_to<1>(acc, first);
  } else {
    segments_tree_of<F, SB, 4>(tile, block, block, x, false, at, acc);
  }
}

/// The tree over `count` (a power of two, at most 32) segments of one 8-column group: pairs stand side by side as
/// independent work; above them it runs like a binary counter. Count: `count` when known at compile time, else 0.
template <Format F, int SB, int Count>
__device__ __forceinline__ void segments_tree(const std::byte* tile, int column_block, int segment_blocks, int count,
                                              const ColumnPointers& x, bool two_groups, Lane at, float (&acc)[1][4]) {
  if constexpr (SB > 0 && Count > 0) {
    segments_tree_of<F, SB, Count>(tile, 0, column_block, x, two_groups, at, acc);
    return;
  }
  const int blocks = SB > 0 ? SB : segment_blocks;
  if (count == 1) {
    segment_sum<F, 1, SB>(tile, 0, column_block, blocks, x, 1, two_groups, at, acc);
    return;
  }
  float two[1][4], four[1][4], eight[1][4], sixteen[1][4];
  for (int pair = 0; pair < count / 2; ++pair) {
    float first[1][4];
    const int block = pair * 2 * blocks;
    segment_sum<F, 1, SB>(tile, block, column_block + block, blocks, x, 1, two_groups, at, first);
    segment_sum<F, 1, SB>(tile, block + blocks, column_block + block + blocks, blocks, x, 1, two_groups, at, acc);
    add_to<1>(acc, first);
    if ((pair & 1) == 0) {
      copy_to<1>(two, acc);
      continue;
    }
    add_to<1>(acc, two);
    if ((pair & 2) == 0) {
      copy_to<1>(four, acc);
      continue;
    }
    add_to<1>(acc, four);
    if ((pair & 4) == 0) {
      copy_to<1>(eight, acc);
      continue;
    }
    add_to<1>(acc, eight);
    if ((pair & 8) == 0) {
      copy_to<1>(sixteen, acc);
      continue;
    }
    add_to<1>(acc, sixteen);
  }
}

}  // namespace cohort::cuda
