// The router's choice in the kernels of all layers (flow.cuh, flow_rows.cuh), by one warp a row: the order of the
// experts first, from the logits alone, so that their weights can be asked for; the softmax while those are on their
// way.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/flow.h"
#include "kernels/cuda/select.cuh"

namespace cohort::cuda {
namespace flow {

inline constexpr int kLogits = FlowShape::kExperts / 32;  // of a lane: those of experts lane + 32 * i

struct Ranking {
  int expert;  // of slot `lane`
  uint4 mask;  // of the chosen experts
};

/// Rule 5 orders the experts by their rounded probabilities. Two logits that are this far apart give probabilities in
/// the same order, and different ones: the maximum is subtracted with an error of 2^-18 at most (down to -80, which is
/// asked for below), so exp sees a difference of 2^-16 or more, a factor of 128 ulp, and errs by less than 2 ulp.
inline constexpr float kLeastGap = 0x1p-15F;
inline constexpr float kLeastLogit = -80.0F;  // below the largest: every probability in question is a normal number

/// The order by logits; false where the first nine are not all far enough apart to be sure of it.
__device__ __forceinline__ bool rank_logits(const float (&x)[kLogits], Ranking& out) {
  // A key's low bits make way for the expert: no two are equal, and the largest says whose it is.
  constexpr int kLow = FlowShape::kExperts - 1, kTaken = static_cast<int>(0x80000000U);
  const int lane = static_cast<int>(threadIdx.x & 31);
  int key[kLogits], mine = 0;
  bool sure = true;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    key[i] = (float_key(x[i]) & ~kLow) | (kLow - (lane + i * 32));
    sure = sure && x[i] == x[i];
  }
  const auto highest = [&] { return __reduce_max_sync(kFullMask, max(max(key[0], key[1]), max(key[2], key[3]))); };
#pragma unroll 4
  for (int slot = 0; slot < FlowShape::kTopK; ++slot) {
    const int best = highest();
    if (lane == slot) mine = best;
#pragma unroll
    for (int i = 0; i < kLogits; ++i) key[i] = key[i] == best ? kTaken : key[i];
  }
  const int left = highest();
  out.expert = kLow - (mine & kLow);
  out.mask = make_uint4(__ballot_sync(kFullMask, key[0] == kTaken), __ballot_sync(kFullMask, key[1] == kTaken),
                        __ballot_sync(kFullMask, key[2] == kTaken), __ballot_sync(kFullMask, key[3] == kTaken));
  // Lane s: ranks s and s + 1. What a key has lost is less than a factor of 2^-16.
  const int after = __shfl_down_sync(kFullMask, mine, 1), first = __shfl_sync(kFullMask, mine, 0);
  const float logit = key_float(mine & ~kLow);
  const float next = key_float((lane == FlowShape::kTopK - 1 ? left : after) & ~kLow);
  const float gap = __fmaf_rn(fmaxf(fabsf(logit), fabsf(next)), 0x1p-16F, kLeastGap);
  const bool apart = __fsub_rn(logit, next) >= gap && __fsub_rn(logit, key_float(first & ~kLow)) > kLeastLogit;
  return __all_sync(kFullMask, sure && (lane >= FlowShape::kTopK || apart)) != 0;
}

/// The experts of slots `lane` as bits.
__device__ __forceinline__ uint4 mask_of(int expert) {
  const bool chosen = static_cast<int>(threadIdx.x & 31) < FlowShape::kTopK;
  const auto word = [&](int i) {
    return __reduce_or_sync(kFullMask, chosen && expert / 32 == i ? 1U << expert % 32 : 0U);
  };
  return make_uint4(word(0), word(1), word(2), word(3));
}

/// The same by probabilities.
__device__ __forceinline__ void rank_probabilities(const float (&x)[kLogits], Ranking& out) {
  float copy[kLogits];
#pragma unroll
  for (int i = 0; i < kLogits; ++i) copy[i] = x[i];
  out.expert = choose_experts<kLogits>(copy, FlowShape::kExperts, FlowShape::kTopK, false).expert;
  out.mask = mask_of(out.expert);
}

__device__ __forceinline__ Ranking rank_experts(const float (&x)[kLogits]) {
  Ranking out;
  if (!rank_logits(x, out)) rank_probabilities(x, out);
  return out;
}

/// The weight of slot `lane`, whose expert this lane has; x becomes the probabilities.
__device__ __forceinline__ float weight_of(float (&x)[kLogits], int expert, bool renormalise) {
  probabilities<kLogits>(x);
  float weight = 0.0F;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    const float p = __shfl_sync(kFullMask, x[i], expert & 31);
    if (expert / 32 == i) weight = p;
  }
  return renormalised(static_cast<int>(threadIdx.x & 31) < FlowShape::kTopK ? weight : 0.0F, renormalise);
}

}  // namespace flow
}  // namespace cohort::cuda
