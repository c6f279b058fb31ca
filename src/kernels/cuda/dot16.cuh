// Rows of floats that come into shared memory for dot16.
#pragma once

#include "kernels/cuda/device.cuh"

namespace cohort::cuda {

inline constexpr int kRowGap =
    16;  // floats between rows in shared memory: half-warps of neighbours read different banks

/// Bulk copies of `rows` rows of k floats to `shared`, by one warp.
__device__ __forceinline__ void copy_rows(float* shared, const Rows& input, int64_t first, int rows, int k,
                                          uint64_t* barrier) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (lane == 0) barrier_expect(barrier, static_cast<uint32_t>(rows * k * 4));
  __syncwarp();
  for (int r = lane; r < rows; r += 32)
    bulk_copy(shared + r * (k + kRowGap), input.data + (first + r) * input.stride, static_cast<uint32_t>(k * 4),
              barrier);
}

}  // namespace cohort::cuda
