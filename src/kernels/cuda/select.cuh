// The router's choice for one row by one warp.
#pragma once

#include "kernels/cuda/device.cuh"

namespace cohort::cuda {

struct Choice {
  int expert;    // of slot `lane`
  float weight;  // before a scale of the expert
};

/// Softmax over a row's logits, in place. K = experts / 32, rounded up; x[i]: the logit of expert lane + 32 * i, -inf
/// for what is absent.
template <int K>
__device__ __forceinline__ void probabilities(float (&x)[K]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  float maximum = __int_as_float(0xff800000);
#pragma unroll
  for (int i = 0; i < K; ++i) maximum = fmaxf(maximum, x[i]);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(kFullMask, maximum, offset));
  // sum16: lane j takes experts j, j + 16, ... in order; an absent expert adds +0 to a sum that is never -0.
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    x[i] = numerics::exp<Ops>(__fsub_rn(x[i], maximum));
    sum = __fadd_rn(sum, __shfl_sync(kFullMask, x[i], lane & 15));
    sum = __fadd_rn(sum, __shfl_sync(kFullMask, x[i], (lane & 15) + 16));
  }
  const float inverse = __fdiv_rn(1.0F, tree16(sum));
#pragma unroll
  for (int i = 0; i < K; ++i) x[i] = __fmul_rn(x[i], inverse);
}
/// The weight of slot `lane`, 0 past the last slot: divided by the sum of all, if the model says so.
__device__ __forceinline__ float renormalised(float weight, bool renormalise) {
  // sum16 over the slots in order: lane j adds slots j and j + 16.
  const float upper = __shfl_xor_sync(kFullMask, weight, 16);
  const float total = tree16((threadIdx.x & 31) < 16 ? __fadd_rn(weight, upper) : __fadd_rn(upper, weight));
  return renormalise ? __fdiv_rn(weight, total) : weight;
}

/// Softmax over a row's logits (as probabilities) and its top k.
template <int K>
__device__ __forceinline__ Choice choose_experts(float (&x)[K], int experts, int top_k, bool renormalise) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  probabilities<K>(x);
  // Keys: numbers (never negative) keep their order, NaN comes after them, what is chosen or absent is 0.
  unsigned key[K];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    key[i] = lane + i * 32 >= experts ? 0U : x[i] != x[i] ? 1U : __float_as_uint(x[i]) + 2U;
  }
  float weight = 0.0F;
  int expert = 0;
  for (int slot = 0; slot < top_k; ++slot) {
    unsigned best = key[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < K; ++i) {
      if (key[i] > best) {
        best = key[i];
        at = i;
      }
    }
    const unsigned highest = __reduce_max_sync(kFullMask, best);
    const unsigned chosen =
        __reduce_min_sync(kFullMask, best == highest ? static_cast<unsigned>(at * 32 + lane) : 0xffffffffU);
    if (lane == slot) {
      expert = static_cast<int>(chosen);
      weight = highest == 1U ? __uint_as_float(0x7fc00000U) : __uint_as_float(highest - 2U);
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (chosen == static_cast<unsigned>(i * 32 + lane)) key[i] = 0U;
    }
  }
  return {expert, renormalised(weight, renormalise)};
}

}  // namespace cohort::cuda
