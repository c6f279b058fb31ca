// Rule 3 and 4 for a warp of the streaming kernels: segments of one 16-row tile times up to 8 * NT columns that lie as
// records (Quantised) in shared memory.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

/// Where a lane reads its columns' records: the values of column g and the scales of columns 2t and 2t + 1, of the
/// first 8-column group. In shared or in device memory.
struct ColumnPointers {
  const std::byte* values;
  const std::byte* scales0;
  const std::byte* scales1;
  int group_stride;  // bytes to the next 8 columns
  int sums;          // bytes from scales to sums
};
/// Columns that lie as records `stride` bytes apart.
__device__ __forceinline__ ColumnPointers columns_at(const std::byte* base, int stride, int blocks, Lane at) {
  const std::byte* scales = base + at.t * 2 * stride + blocks * 32;
  return {base + at.g * stride + at.t * 8, scales, scales + stride, 8 * stride, blocks * 4};
}

/// The scales of columns 2t and 2t + 1 for SB blocks from `block` on, in wide loads where they are aligned.
template <int SB>
struct ColumnScales {
  float d0[SB], d1[SB];
  __device__ __forceinline__ void load(const std::byte* p0, const std::byte* p1) {
    if constexpr (SB % 4 == 0) {
#pragma unroll
      for (int b = 0; b < SB; b += 4) {
        *reinterpret_cast<float4*>(d0 + b) = *reinterpret_cast<const float4*>(p0 + b * 4);
        *reinterpret_cast<float4*>(d1 + b) = *reinterpret_cast<const float4*>(p1 + b * 4);
      }
    } else {
      static_assert(SB % 2 == 0);
#pragma unroll
      for (int b = 0; b < SB; b += 2) {
        *reinterpret_cast<float2*>(d0 + b) = *reinterpret_cast<const float2*>(p0 + b * 4);
        *reinterpret_cast<float2*>(d1 + b) = *reinterpret_cast<const float2*>(p1 + b * 4);
      }
    }
  }
};

/// One segment from +0. `tile`, `block`: where its weights are; `column_block`: where its activations are; n_tiles:
/// 8-column groups in use. SB: its 32-blocks when known at compile time (then column_block is a multiple of it), else
/// 0.
template <Format F, int NT, int SB>
__device__ __forceinline__ void segment_sum(const std::byte* tile, int block, int column_block, int blocks,
                                            const ColumnPointers& x, int n_tiles, bool two_groups, Lane at,
                                            float (&acc)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0F;
  }
  const std::byte* values = x.values + column_block * 32;
  const std::byte* scales0 = x.scales0 + column_block * 4;
  const std::byte* scales1 = x.scales1 + column_block * 4;
  const int count = SB > 0 ? SB : blocks;
  constexpr bool kWide = SB > 0 && NT == 1;  // more columns: the registers do not suffice
  ColumnScales<kWide ? SB : 2> d;
  if constexpr (kWide) d.load(scales0, scales1);
#pragma unroll(SB > 0 ? SB : 2)
  for (int b = 0; b < count; ++b) {
    Block<F> w;
    w.load(tile, block + b, at, two_groups);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (NT > 1 && n >= n_tiles) break;
      Columns c;
      const int offset = n * x.group_stride + b * 4;
      const uint2 q = *reinterpret_cast<const uint2*>(values + n * x.group_stride + b * 32);
      c.b0 = q.x;
      c.b1 = q.y;
      if constexpr (kWide) {
        c.d0 = d.d0[b];
        c.d1 = d.d1[b];
      } else {
        c.d0 = *reinterpret_cast<const float*>(scales0 + offset);
        c.d1 = *reinterpret_cast<const float*>(scales1 + offset);
      }
      if constexpr (Block<F>::kSums) {
        c.sums0 = *reinterpret_cast<const int32_t*>(scales0 + offset + x.sums);
        c.sums1 = *reinterpret_cast<const int32_t*>(scales1 + offset + x.sums);
      }
      w.add(acc[n], c);
    }
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
