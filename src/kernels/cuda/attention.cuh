// What both attention kernels share: the cache's types and maxima in integer order.
#pragma once

#include "kernels/cuda/heads.cuh"

namespace cohort::cuda {

inline constexpr int kSplit = 256;    // positions of a split
inline constexpr int kPageRows = 32;  // positions of a page
inline constexpr int kSplitPages = kSplit / kPageRows;

/// The maximum of a head's scores, its sink's among them.
__device__ __forceinline__ float with_sink(const AttentionArgs& args, int head, float maximum) {
  return args.sinks != nullptr ? fmaxf(maximum, args.sinks[head]) : maximum;
}
/// The sum of a head's weights below that maximum, its sink's added last.
__device__ __forceinline__ float add_sink(const AttentionArgs& args, int head, float maximum, float sum) {
  if (args.sinks == nullptr) return sum;
  return __fadd_rn(sum, numerics::exp<Ops>(__fsub_rn(args.sinks[head], maximum)));
}

template <CacheType T>
struct Cached;
template <>
struct Cached<CacheType::f32> {
  static constexpr int kChunk = 4;
  __device__ static void unpack(uint4 raw, float* out) {
    out[0] = __uint_as_float(raw.x);
    out[1] = __uint_as_float(raw.y);
    out[2] = __uint_as_float(raw.z);
    out[3] = __uint_as_float(raw.w);
  }
  __device__ static float2 load2(const std::byte* base, int64_t index) {
    return *reinterpret_cast<const float2*>(base + index * 4);
  }
  __device__ static void store(std::byte* base, int64_t index, float x) { reinterpret_cast<float*>(base)[index] = x; }
  __device__ static float rounded(float x) { return x; }
};
template <>
struct Cached<CacheType::f16> {
  static constexpr int kChunk = 8;
  __device__ static float2 pair(uint32_t bits) { return __half22float2(*reinterpret_cast<const __half2*>(&bits)); }
  __device__ static void unpack(uint4 raw, float* out) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = pair(words[i]);
      out[2 * i] = v.x;
      out[2 * i + 1] = v.y;
    }
  }
  __device__ static float2 load2(const std::byte* base, int64_t index) {
    return pair(*reinterpret_cast<const uint32_t*>(base + index * 2));
  }
  __device__ static void store(std::byte* base, int64_t index, float x) {
    reinterpret_cast<__half*>(base)[index] = __float2half_rn(x);
  }
  __device__ static float rounded(float x) {
    return __half2float(__float2half_rn(x));
  }
};
template <>
struct Cached<CacheType::bf16> {
  static constexpr int kChunk = 8;
  __device__ static float2 pair(uint32_t bits) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000U));
  }
  __device__ static void unpack(uint4 raw, float* out) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = pair(words[i]);
      out[2 * i] = v.x;
      out[2 * i + 1] = v.y;
    }
  }
  __device__ static float2 load2(const std::byte* base, int64_t index) {
    return pair(*reinterpret_cast<const uint32_t*>(base + index * 2));
  }
  __device__ static void store(std::byte* base, int64_t index, float x) {
    reinterpret_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16_rn(x);
  }
  __device__ static float rounded(float x) {
    return __bfloat162float(__float2bfloat16_rn(x));
  }
};

/// Floats in the order of integers; a NaN counts as -inf.
__device__ __forceinline__ int float_key(float x) {
  const int bits = x == x ? __float_as_int(x) : static_cast<int>(0xff800000U);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ __forceinline__ float key_float(int key) {
  return __int_as_float(key ^ ((key >> 31) & 0x7fffffff));
}

/// H adjacent floats.
template <int H>
__device__ __forceinline__ void load_heads(const float* p, float (&out)[H]) {
  if constexpr (H >= 4) {
#pragma unroll
    for (int h = 0; h < H; h += 4) *reinterpret_cast<float4*>(out + h) = *reinterpret_cast<const float4*>(p + h);
  } else if constexpr (H == 2) {
    *reinterpret_cast<float2*>(out) = *reinterpret_cast<const float2*>(p);
  } else {
    out[0] = p[0];
  }
}

}  // namespace cohort::cuda
