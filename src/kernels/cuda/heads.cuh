// One head of one row: norm and rope, by a warp.
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

}  // namespace cohort::cuda
