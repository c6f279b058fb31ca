// Rule 3 and 4 for a warp of the streaming kernels: segments of one 16-row tile times up to 8 * NT columns that lie as
// records (Quantised) in shared memory.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

inline constexpr int kSharedTwo = 113 << 10;  // of each of two blocks on an SM
inline constexpr int kSharedOne = 226 << 10;

/// Records of columns in shared memory.
struct SharedColumns {
  const std::byte* base;
  int stride;   // bytes
  int blocks;   // of K
  int n_tiles;  // 8-column groups in use
};

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

/// One segment from +0. `tile`, `block`: where its weights are; `column_block`: where its activations are. SB: its
/// 32-blocks when known at compile time (then column_block is a multiple of it), else 0.
template <Format F, int NT, int SB>
__device__ __forceinline__ void segment_sum(const std::byte* tile, int block, int column_block, int blocks,
                                            const SharedColumns& x, bool two_groups, Lane at, float (&acc)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0F;
  }
  const std::byte* values = x.base + at.g * x.stride + column_block * 32 + at.t * 8;
  const std::byte* scales = x.base + at.t * 2 * x.stride + x.blocks * 32 + column_block * 4;
  const int count = SB > 0 ? SB : blocks;
  constexpr int kScales = SB > 0 ? SB : 2;
  ColumnScales<kScales> d[NT];
  if constexpr (SB > 0) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (NT == 1 || n < x.n_tiles) d[n].load(scales + n * 8 * x.stride, scales + (n * 8 + 1) * x.stride);
    }
  }
#pragma unroll(SB > 0 ? SB : 2)
  for (int b = 0; b < count; ++b) {
    Block<F> w;
    w.load(tile, block + b, at, two_groups);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (NT > 1 && n >= x.n_tiles) break;
      Columns c;
      const uint2 q = *reinterpret_cast<const uint2*>(values + n * 8 * x.stride + b * 32);
      c.b0 = q.x;
      c.b1 = q.y;
      const std::byte* column = scales + n * 8 * x.stride + b * 4;
      if constexpr (SB > 0) {
        c.d0 = d[n].d0[b];
        c.d1 = d[n].d1[b];
      } else {
        c.d0 = *reinterpret_cast<const float*>(column);
        c.d1 = *reinterpret_cast<const float*>(column + x.stride);
      }
      if constexpr (Block<F>::kSums) {
        c.sums0 = *reinterpret_cast<const int32_t*>(column + x.blocks * 4);
        c.sums1 = *reinterpret_cast<const int32_t*>(column + x.blocks * 4 + x.stride);
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

/// The tree over `count` (a power of two, at most 32) segments: pairs stand side by side as independent work; above
/// them it runs like a binary counter.
template <Format F, int NT, int SB>
__device__ __forceinline__ void segments_tree(const std::byte* tile, int block, int column_block, int segment_blocks,
                                              int count, const SharedColumns& x, bool two_groups, Lane at,
                                              float (&acc)[NT][4]) {
  const int blocks = SB > 0 ? SB : segment_blocks;
  if (count == 1) {
    segment_sum<F, NT, SB>(tile, block, column_block, blocks, x, two_groups, at, acc);
    return;
  }
  float two[NT][4], four[NT][4], eight[NT][4], sixteen[NT][4];
  for (int pair = 0; pair < count / 2; ++pair) {
    float first[NT][4];
    segment_sum<F, NT, SB>(tile, block, column_block, blocks, x, two_groups, at, first);
    segment_sum<F, NT, SB>(tile, block + blocks, column_block + blocks, blocks, x, two_groups, at, acc);
    add_to<NT>(acc, first);
    block += 2 * blocks;
    column_block += 2 * blocks;
    if ((pair & 1) == 0) {
      copy_to<NT>(two, acc);
      continue;
    }
    add_to<NT>(acc, two);
    if ((pair & 2) == 0) {
      copy_to<NT>(four, acc);
      continue;
    }
    add_to<NT>(acc, four);
    if ((pair & 4) == 0) {
      copy_to<NT>(eight, acc);
      continue;
    }
    add_to<NT>(acc, eight);
    if ((pair & 8) == 0) {
      copy_to<NT>(sixteen, acc);
      continue;
    }
    add_to<NT>(acc, sixteen);
  }
}

}  // namespace cohort::cuda
