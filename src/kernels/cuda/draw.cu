// A block a row whose rule asks for it; the others are left at once. Weights are exp(logit / temperature - maximum),
// those below min_p are 0; sums go in chunks of 256 ids, in order inside a chunk, then chunks in order: a thread a
// chunk, and one thread over the chunks. Bound by the arithmetic of exp on one SM: 150,000 ids take some tens of
// microseconds.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/draw.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 1024, kChunk = 256;

__device__ __forceinline__ float weight_of(float logit, const DrawRule& rule, float maximum) {
  const float weight = numerics::exp<Ops>(__fsub_rn(__fdiv_rn(logit, rule.temperature), maximum));
  return weight < rule.min_p ? 0.0F : weight;
}

/// The largest of every thread's x; all threads get it. NaN anywhere gives NaN.
__device__ float block_max(float x, float* warps) {
  const auto larger = [](float a, float b) { return a != a || a > b ? a : b; };
  for (int offset = 16; offset > 0; offset /= 2) x = larger(x, __shfl_xor_sync(kFullMask, x, offset));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = x;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) x = larger(warps[w], x);
  return x;
}

/// The first place at which the running sum exceeds the target, else the last one that min_p did not drop.
__device__ int find_in_chunk(const float* weights, int count, bool all, float running, float target) {
  int last = 0;
  for (int i = 0; i < count; ++i) {
    if (all || weights[i] > 0.0F) last = i;
    running = __fadd_rn(running, weights[i]);
    if (running > target) return i;
  }
  return last;  // the chunk's sum may round above its running sum
}

__global__ void __launch_bounds__(kThreads) draw_kernel(const __grid_constant__ DrawArgs args) {
  extern __shared__ float sums[];  // [chunks]
  __shared__ float warps[kThreads / 32], weights[kChunk], start, target;
  __shared__ int chosen;
  wait_and_pass_on();
  const int thread = static_cast<int>(threadIdx.x), vocabulary = args.vocabulary;
  const int sampled = args.step.header[kSampled], chunks = (vocabulary + kChunk - 1) / kChunk;
  for (int row = static_cast<int>(blockIdx.x); row < sampled; row += static_cast<int>(gridDim.x)) {
    const DrawRule rule = args.rules[row];
    if (rule.temperature <= 0.0F) continue;
    const bool all = rule.min_p <= 0.0F;
    const float* logits = args.logits + int64_t{row} * vocabulary;
    float largest = logits[0];
    for (int i = thread; i < vocabulary; i += kThreads) {
      const float x = logits[i];
      if (x != x || x > largest) largest = x;
    }
    largest = block_max(largest, warps);
    const float maximum = __fdiv_rn(largest, rule.temperature);
    if (!(fabsf(maximum) < INFINITY)) {  // NaN as well: the host says what is wrong
      if (thread == 0) args.draws[row] = {-1, 0.0F};
      continue;
    }
    for (int c = thread; c < chunks; c += kThreads) {
      const int end = min(vocabulary, (c + 1) * kChunk);
      float sum = 0.0F;
#pragma unroll 4
      for (int i = c * kChunk; i < end; ++i) sum = __fadd_rn(sum, weight_of(logits[i], rule, maximum));
      sums[c] = sum;
    }
    __syncthreads();
    if (thread == 0) {
      float total = 0.0F;
      for (int c = 0; c < chunks; ++c) total = __fadd_rn(total, sums[c]);
      target = __fmul_rn(rule.u, total);
      args.draws[row].total = total;
      float running = 0.0F;
      int at = 0, last = 0;
      float before_last = 0.0F;
      for (; at < chunks; ++at) {
        const float with = __fadd_rn(running, sums[at]);
        if (with > target) break;
        if (all || sums[at] > 0.0F) {
          last = at;
          before_last = running;
        }
        running = with;
      }
      // None (sums round): the last id that may be chosen.
      if (at == chunks) target = INFINITY;
      chosen = at == chunks ? last : at;
      start = at == chunks ? before_last : running;
    }
    __syncthreads();
    const int first = chosen * kChunk, count = min(kChunk, vocabulary - first);
    if (thread < count) weights[thread] = weight_of(logits[first + thread], rule, maximum);
    __syncthreads();
    if (thread == 0) args.draws[row].token = first + find_in_chunk(weights, count, all, start, target);
    __syncthreads();  // before the next row
  }
}

size_t shared_bytes(int32_t vocabulary) {
  return static_cast<size_t>((vocabulary + kChunk - 1) / kChunk) * sizeof(float);
}

}  // namespace

bool draw_fits(int32_t vocabulary) {
  constexpr size_t kMost = 64 << 10;
  return shared_bytes(vocabulary) <= kMost;
}

void launch_draw(const DrawArgs& args, int sms, cudaStream_t stream) {
  launch(&draw_kernel, sms, kThreads, shared_bytes(args.vocabulary), stream, args);
}

}  // namespace cohort::cuda
