// One head of one row: norm and rope, by a warp or, for 128 dimensions, by half a warp.
#pragma once

#include "kernels/cuda/device.cuh"

namespace cohort::cuda {

/// x [dims] in shared memory becomes the normalised and rotated head.
__device__ __forceinline__ void head_row(const HeadInput& in, int head, int dims, int row, int position, int lane,
                                         float* x) {
  const float* source = in.rows.data + int64_t{row} * in.rows.stride + head * dims;
  const float* cosines = in.cosines + int64_t{position} * in.pairs;
  const float* sines = in.sines + int64_t{position} * in.pairs;
  if (in.cosines != nullptr && lane * 32 < in.pairs) {
    prefetch(cosines + lane * 32);
    prefetch(sines + lane * 32);
  }
  if (in.norm && in.norm_weight != nullptr && lane * 32 < dims) prefetch(in.norm_weight + lane * 32);
#pragma unroll 4
  for (int i = lane; i < dims; i += 32) x[i] = source[i];
  __syncwarp();
  if (in.norm) {
    const float factor = norm_factor(squares16_shared(x, dims, lane), dims, in.eps);
    __syncwarp();
    for (int i = lane; i < dims; i += 32) {
      const float y = __fmul_rn(x[i], factor);
      x[i] = in.norm_weight != nullptr ? __fmul_rn(y, in.norm_weight[i]) : y;
    }
    __syncwarp();
  }
  if (in.cosines != nullptr) {
    for (int i = lane; i < in.pairs; i += 32) {
      const float c = cosines[i], s = sines[i];
      const int i0 = in.adjacent ? 2 * i : i, i1 = in.adjacent ? 2 * i + 1 : i + in.rotary / 2;
      const float x0 = x[i0], x1 = x[i1];
      x[i0] = __fmaf_rn(x0, c, -__fmul_rn(x1, s));
      x[i1] = __fmaf_rn(x0, s, __fmul_rn(x1, c));
    }
    __syncwarp();
  }
}

inline constexpr int kHalfWarpDims = 128;
/// Whether head_values can do this head's rope.
inline bool half_warp_rope(const HeadInput& in) {
  return in.cosines == nullptr || in.adjacent || in.pairs * 2 == kHalfWarpDims;
}

/// One head of 128 dimensions by half a warp, lane = dimension mod 16; the same as head_row, in registers.
__device__ __forceinline__ void head_values(const HeadInput& in, int head, int row, int position, int lane,
                                            float (&x)[8]) {
  const float* source = in.rows.data + int64_t{row} * in.rows.stride + head * kHalfWarpDims + lane;
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = source[i * 16];
  const bool rope = in.cosines != nullptr;
  const int64_t table = int64_t{position} * in.pairs;
  float c[8], s[8];
  if (rope) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int pair = in.adjacent ? (lane + i * 16) >> 1 : lane + (i & 3) * 16;
      if (!in.adjacent && i >= 4) break;
      c[i] = pair < in.pairs ? in.cosines[table + pair] : 1.0F;
      s[i] = pair < in.pairs ? in.sines[table + pair] : 0.0F;
    }
  }
  float weight[8];  // asked for along with the values
#pragma unroll
  for (int i = 0; i < 8; ++i) weight[i] = in.norm && in.norm_weight != nullptr ? in.norm_weight[lane + i * 16] : 1.0F;
  if (in.norm) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fmaf_rn(x[i], x[i], sum);
    const float factor = norm_factor(tree16_half(sum), kHalfWarpDims, in.eps);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = __fmul_rn(x[i], factor);
      if (in.norm_weight != nullptr) x[i] = __fmul_rn(x[i], weight[i]);
    }
  }
  if (!rope) return;
  if (in.adjacent) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float other = __shfl_xor_sync((threadIdx.x & 16) != 0 ? 0xffff0000U : 0x0000ffffU, x[i], 1);
      const float x0 = (lane & 1) != 0 ? other : x[i], x1 = (lane & 1) != 0 ? x[i] : other;
      const float y =
          (lane & 1) != 0 ? __fmaf_rn(x0, s[i], __fmul_rn(x1, c[i])) : __fmaf_rn(x0, c[i], -__fmul_rn(x1, s[i]));
      if ((lane + i * 16) >> 1 < in.pairs) x[i] = y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x0 = x[i], x1 = x[i + 4];
      x[i] = __fmaf_rn(x0, c[i], -__fmul_rn(x1, s[i]));
      x[i + 4] = __fmaf_rn(x0, s[i], __fmul_rn(x1, c[i]));
    }
  }
}

}  // namespace cohort::cuda
