// The largest logits of a row, so that the host need not read a whole vocabulary to choose a token.
//
// One block a row. Every thread finds the largest of the logits that it owns (every 1024th); of these 1024 maxima the
// 64th is not above the row's 64th largest logit, because the 64 maxima from it up are logits themselves. So all that
// is wanted lies at or above it, and only the 64 threads with those maxima can own any of it: that bounds the list of
// candidates, which is then sorted. Logits are unique keys: the value's order in the upper half, the id (lower ones
// first) in the lower.
#include "kernels/cuda/device.cuh"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 1024;
using Key = unsigned long long;

/// Orders floats as unsigned integers; NaN above everything, -0 as +0.
__device__ __forceinline__ uint32_t order_key(float x) {
  if (x != x) return 0xffffffffU;
  if (x == 0.0F) x = 0.0F;
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ Key key_of(float x, int id) {
  return static_cast<Key>(order_key(x)) << 32 | (0xffffffffU - static_cast<uint32_t>(id));
}
__device__ __forceinline__ int id_of(Key key) {
  return static_cast<int>(0xffffffffU - static_cast<uint32_t>(key));
}

/// Sorts kThreads keys in shared memory, the largest first.
__device__ void sort_keys(Key* keys) {
  const int i = static_cast<int>(threadIdx.x);
  for (int size = 2; size <= kThreads; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int other = i ^ stride;
      if (other <= i) continue;
      const Key a = keys[i], b = keys[other];
      const bool descending = (i & size) == 0;
      if (descending ? a < b : a > b) {
        keys[i] = b;
        keys[other] = a;
      }
    }
  }
  __syncthreads();
}

/// The largest of every thread's key; all threads get it.
__device__ Key block_max(Key key, Key* warps) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Key other = __shfl_xor_sync(kFullMask, key, offset);
    key = other > key ? other : key;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = key;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) key = warps[w] > key ? warps[w] : key;
  return key;
}

__global__ void __launch_bounds__(kThreads) top_kernel(const __grid_constant__ TopArgs args) {
  extern __shared__ Key candidates[];
  __shared__ Key keys[kThreads];
  __shared__ int found;
  wait_and_pass_on();
  const int thread = static_cast<int>(threadIdx.x);
  const int sampled = args.step.header[kSampled];
  for (int row = static_cast<int>(blockIdx.x); row < sampled; row += static_cast<int>(gridDim.x)) {
    const float* logits = args.logits + int64_t{row} * args.vocabulary;
    Key best = 0;
    for (int i = thread; i < args.vocabulary; i += kThreads) {
      const Key key = key_of(logits[i], i);
      best = key > best ? key : best;
    }
    __syncthreads();  // the row before is done with the shared memory
    keys[thread] = best;
    if (thread == 0) found = 0;
    sort_keys(keys);
    const Key threshold = keys[kTopLogits - 1];
    if (best != 0 && best >= threshold) {
      for (int i = thread; i < args.vocabulary; i += kThreads) {
        const Key key = key_of(logits[i], i);
        if (key >= threshold) candidates[atomicAdd(&found, 1)] = key;
      }
    }
    __syncthreads();
    const int count = found;
    if (count <= kThreads) {
      keys[thread] = thread < count ? candidates[thread] : 0;
      sort_keys(keys);
    } else {  // many large logits in few threads' shares: rare, so slow
      Key limit = ~Key{0};
      Key mine = 0;
      for (int k = 0; k < kTopLogits; ++k) {
        Key largest = 0;
        for (int i = thread; i < count; i += kThreads) {
          const Key key = candidates[i];
          if (key < limit && key > largest) largest = key;
        }
        limit = block_max(largest, keys);
        if (thread == k) mine = limit;
      }
      __syncthreads();
      if (thread < kTopLogits) keys[thread] = mine;
      __syncthreads();
    }
    if (thread < kTopLogits) {
      const Key key = keys[thread];
      const int id = key == 0 ? -1 : id_of(key);
      args.ids[row * kTopLogits + thread] = id;
      args.values[row * kTopLogits + thread] = id < 0 ? 0.0F : logits[id];
    }
  }
}

/// The candidates that the threads of the kTopLogits largest maxima can own.
size_t shared_bytes(int32_t vocabulary) {
  return static_cast<size_t>(kTopLogits) * static_cast<size_t>((vocabulary + kThreads - 1) / kThreads) * sizeof(Key);
}

}  // namespace

bool top_fits(int32_t vocabulary) {
  constexpr size_t kMost = 200 << 10;
  return shared_bytes(vocabulary) <= kMost;
}

void launch_top(const TopArgs& args, int sms, cudaStream_t stream) {
  launch(&top_kernel, sms, kThreads, shared_bytes(args.vocabulary), stream, args);
}

}  // namespace cohort::cuda
