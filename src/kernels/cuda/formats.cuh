// The five weight formats as the A operand of an int8 mma, and rule 3 for one 32-block of 16 rows by 8 columns.
//
// The integer accumulator starts at the bits of 1.5 * 2^23 (times a power of two when the codes sit in the upper bits
// of their bytes), so that it is a float whose value is the sum plus that constant: the conversion is one exact
// subtraction.
#pragma once

#include "kernels/cuda/device.cuh"

namespace cohort::cuda {

struct Lane {
  int g, t, lane;
  __device__ __forceinline__ explicit Lane(int lane_) : g(lane_ >> 2), t(lane_ & 3), lane(lane_) {}
};

/// One activation block of 8 columns as a lane sees it: its operand, and the scales and sums of columns 2t and 2t + 1.
struct Columns {
  uint32_t b0, b1;
  float d0, d1;
  int sums0, sums1;
};

__device__ __forceinline__ float2 half_pair(uint32_t bits) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}

/// Byte i of a word as a float, by a byte permutation and an exact subtraction: conversions have a fourth of the rate
/// and were what bound the K formats.
template <int I>
__device__ __forceinline__ float byte_float(uint32_t word) {
  return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4B000000U, 0x7440U | I)), 8388608.0F);
}
/// The same for signed bytes of a word whose sign bits were flipped.
template <int I>
__device__ __forceinline__ float flipped_byte_float(uint32_t word) {
  return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4B000000U, 0x7440U | I)), 8388736.0F);
}
/// Signed 16-bit half I of a word whose sign bits were flipped.
template <int I>
__device__ __forceinline__ float flipped_half_float(uint32_t word) {
  return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4B000000U, I == 0 ? 0x7410U : 0x7432U)), 8421376.0F);
}
/// A whole number of less than 22 bits.
__device__ __forceinline__ float small_float(int x) {
  return __fsub_rn(__int_as_float(x + 0x4B400000), 12582912.0F);
}
/// The sums of a block's first and second half (Quantised).
__device__ __forceinline__ int first_sum(int packed) {
  return static_cast<int16_t>(packed);
}
__device__ __forceinline__ int second_sum(int packed) {
  return (packed - first_sum(packed)) >> 16;
}

// 1.5 * 2^23 as bits: an integer accumulator of unit 1. Four bits up: 1.5 * 2^19; two bits up: 1.5 * 2^21.
template <int Shift>
struct Magic {
  static constexpr int kBits = 0x4B400000 - (Shift << 23);
  static constexpr float kValue = 12582912.0F / static_cast<float>(1 << Shift);
  __device__ __forceinline__ static float to_float(int accumulator) {
    return __fsub_rn(__int_as_float(accumulator), kValue);
  }
};

/// acc[0..1]: row g, columns 2t and 2t + 1; acc[2..3]: row g + 8.
template <class Scale>
__device__ __forceinline__ void add_scaled(float (&acc)[4], float s0, float s1, const Columns& c, Scale&& value) {
  acc[0] = __fmaf_rn(__fmul_rn(s0, c.d0), value(0), acc[0]);
  acc[1] = __fmaf_rn(__fmul_rn(s0, c.d1), value(1), acc[1]);
  acc[2] = __fmaf_rn(__fmul_rn(s1, c.d0), value(2), acc[2]);
  acc[3] = __fmaf_rn(__fmul_rn(s1, c.d1), value(3), acc[3]);
}

/// Exact sums of a block: of formats with one scale, and of those with one a half.
template <int Shift>
struct WholeSums {
  int d[4];
  __device__ __forceinline__ WholeSums() {
#pragma unroll
    for (int& x : d) x = Magic<Shift>::kBits;
  }
  __device__ __forceinline__ void add(const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_k32_more(d, a, b0, b1);
  }
};
template <int Shift>
struct HalfSums {
  int first[4], second[4];
  __device__ __forceinline__ HalfSums() {
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = second[i] = Magic<Shift>::kBits;
  }
  __device__ __forceinline__ void add(const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_k16_more(first, a[0], a[1], b0);
    mma_k16_more(second, a[2], a[3], b1);
  }
};

/// Formats whose products take so many instructions that straight-line code for a layer would not fit the instruction
/// cache: the kernels of all layers multiply by loops then.
template <Format F>
inline constexpr bool kLong = F == Format::k4 || F == Format::k6;
/// body(i) for i from 0 to Count - 1, or until it is false: straight-line code, of long formats a loop.
template <Format F, int Count, class Body>
__device__ __forceinline__ void repeat(Body&& body) {
  if constexpr (kLong<F>) {
#pragma unroll 1
    for (int i = 0; i < Count; ++i) {
      if (!body(i)) break;
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      if (!body(i)) break;
    }
  }
}

/// codes and scales together are load; Sums::add of the codes and then finish are add.
template <Format F>
struct Block;

template <>
struct Block<Format::q4> {
  static constexpr bool kSums = false;
  using Sums = WholeSums<4>;
  uint32_t a[4];
  float s0, s1;
  __device__ __forceinline__ void load(const std::byte* tile, int b, Lane at, bool) {
    codes(tile, b, at);
    scales(tile, b, at);
  }
  __device__ __forceinline__ void codes(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + b * 288;
    const uint2 w = *reinterpret_cast<const uint2*>(p + at.lane * 8);
    a[0] = (w.x << 4) & 0xf0f0f0f0U;
    a[2] = w.x & 0xf0f0f0f0U;
    a[1] = (w.y << 4) & 0xf0f0f0f0U;
    a[3] = w.y & 0xf0f0f0f0U;
  }
  __device__ __forceinline__ void scales(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + b * 288;
    const float2 s = half_pair(*reinterpret_cast<const uint32_t*>(p + 256 + at.g * 4));
    s0 = s.x;
    s1 = s.y;
  }
  __device__ __forceinline__ void add(float (&acc)[4], const Columns& c) const {
    Sums sums;
    mma_k32(sums.d, a, c.b0, c.b1, Magic<4>::kBits);
    finish(acc, sums, c);
  }
  __device__ __forceinline__ void finish(float (&acc)[4], const Sums& sums, const Columns& c) const {
    add_scaled(acc, s0, s1, c, [&](int i) { return Magic<4>::to_float(sums.d[i]); });
  }
};

template <>
struct Block<Format::q8> {
  static constexpr bool kSums = false;
  using Sums = WholeSums<0>;
  uint32_t a[4];
  float s0, s1;
  __device__ __forceinline__ void load(const std::byte* tile, int b, Lane at, bool) {
    codes(tile, b, at);
    scales(tile, b, at);
  }
  __device__ __forceinline__ void codes(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + b * 544;
    const uint4 w = *reinterpret_cast<const uint4*>(p + at.lane * 16);
    a[0] = w.x;
    a[1] = w.y;
    a[2] = w.z;
    a[3] = w.w;
  }
  __device__ __forceinline__ void scales(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + b * 544;
    const float2 s = half_pair(*reinterpret_cast<const uint32_t*>(p + 512 + at.g * 4));
    s0 = s.x;
    s1 = s.y;
  }
  __device__ __forceinline__ void add(float (&acc)[4], const Columns& c) const {
    Sums sums;
    mma_k32(sums.d, a, c.b0, c.b1, Magic<0>::kBits);
    finish(acc, sums, c);
  }
  __device__ __forceinline__ void finish(float (&acc)[4], const Sums& sums, const Columns& c) const {
    add_scaled(acc, s0, s1, c, [&](int i) { return Magic<0>::to_float(sums.d[i]); });
  }
};

template <>
struct Block<Format::k4> {
  static constexpr bool kSums = true;
  using Sums = WholeSums<0>;
  uint32_t a[4];
  float d0, d1, m0, m1;              // super-scales of rows g and g + 8; m is negative
  float scale0, scale1, min0, min1;  // whole numbers
  __device__ __forceinline__ void load(const std::byte* tile, int b, Lane at, bool) {
    codes(tile, b, at);
    scales(tile, b, at);
  }
  __device__ __forceinline__ void codes(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + (b >> 3) * 2368 + (b & 7) * 288;
    const uint2 w = *reinterpret_cast<const uint2*>(p + at.lane * 8);
    a[0] = w.x & 0x0f0f0f0fU;
    a[2] = (w.x >> 4) & 0x0f0f0f0fU;
    a[1] = w.y & 0x0f0f0f0fU;
    a[3] = (w.y >> 4) & 0x0f0f0f0fU;
  }
  __device__ __forceinline__ void scales(const std::byte* tile, int b, Lane at) {
    const std::byte* super = tile + (b >> 3) * 2368;
    const std::byte* p = super + (b & 7) * 288;
    const uint32_t small = *reinterpret_cast<const uint32_t*>(p + 256 + at.g * 4);
    scale0 = byte_float<0>(small);
    min0 = byte_float<1>(small);
    scale1 = byte_float<2>(small);
    min1 = byte_float<3>(small);
    const uint2 large = *reinterpret_cast<const uint2*>(super + 2304 + at.g * 8);
    const float2 first = half_pair(large.x), second = half_pair(large.y);
    d0 = first.x;
    m0 = first.y;
    d1 = second.x;
    m1 = second.y;
  }
  __device__ __forceinline__ void add(float (&acc)[4], const Columns& c) const {
    Sums sums;
    mma_k32(sums.d, a, c.b0, c.b1, Magic<0>::kBits);
    finish(acc, sums, c);
  }
  __device__ __forceinline__ void finish(float (&acc)[4], const Sums& sums, const Columns& c) const {
    // scale * sum < 2^24: the product of two whole numbers is exact.
    add_scaled(acc, d0, d1, c,
               [&](int i) { return __fmul_rn(i < 2 ? scale0 : scale1, Magic<0>::to_float(sums.d[i])); });
    const float sum0 = small_float(first_sum(c.sums0) + second_sum(c.sums0));
    const float sum1 = small_float(first_sum(c.sums1) + second_sum(c.sums1));
    add_scaled(acc, m0, m1, c, [&](int i) { return __fmul_rn(i < 2 ? min0 : min1, i & 1 ? sum1 : sum0); });
  }
};

template <>
struct Block<Format::k6> {
  static constexpr bool kSums = false;
  using Sums = HalfSums<2>;
  uint32_t a[4];
  float d0, d1, first0, second0, first1, second1;
  __device__ __forceinline__ void load(const std::byte* tile, int b, Lane at, bool) {
    codes(tile, b, at);
    scales(tile, b, at);
  }
  __device__ __forceinline__ void codes(const std::byte* tile, int b, Lane at) {
    const std::byte* p = tile + (b >> 3) * 3360 + (b & 7) * 416;
    const uint2 w = *reinterpret_cast<const uint2*>(p + at.lane * 8);
    const uint32_t upper = *reinterpret_cast<const uint32_t*>(p + 256 + at.lane * 4);
    // Six-bit codes in the upper bits of their bytes.
    a[0] = ((w.x << 2) & 0x3c3c3c3cU) | ((upper << 6) & 0xc0c0c0c0U);
    a[1] = ((w.y << 2) & 0x3c3c3c3cU) | ((upper << 4) & 0xc0c0c0c0U);
    a[2] = ((w.x >> 2) & 0x3c3c3c3cU) | ((upper << 2) & 0xc0c0c0c0U);
    a[3] = ((w.y >> 2) & 0x3c3c3c3cU) | (upper & 0xc0c0c0c0U);
  }
  __device__ __forceinline__ void scales(const std::byte* tile, int b, Lane at) {
    const std::byte* super = tile + (b >> 3) * 3360;
    const std::byte* p = super + (b & 7) * 416;
    const uint32_t small = *reinterpret_cast<const uint32_t*>(p + 384 + at.g * 4) ^ 0x80808080U;
    first0 = flipped_byte_float<0>(small);
    second0 = flipped_byte_float<1>(small);
    first1 = flipped_byte_float<2>(small);
    second1 = flipped_byte_float<3>(small);
    const float2 d = half_pair(*reinterpret_cast<const uint32_t*>(super + 3328 + at.g * 4));
    d0 = d.x;
    d1 = d.y;
  }
  __device__ __forceinline__ void add(float (&acc)[4], const Columns& c) const {
    Sums sums;
    mma_k16(sums.first, a[0], a[1], c.b0, Magic<2>::kBits);
    mma_k16(sums.second, a[2], a[3], c.b1, Magic<2>::kBits);
    finish(acc, sums, c);
  }
  __device__ __forceinline__ void finish(float (&acc)[4], const Sums& sums, const Columns& c) const {
    // Whole numbers below 2^24: the fma is exact.
    add_scaled(acc, d0, d1, c, [&](int i) {
      return __fmaf_rn(i < 2 ? second0 : second1, Magic<2>::to_float(sums.second[i]),
                       __fmul_rn(i < 2 ? first0 : first1, Magic<2>::to_float(sums.first[i])));
    });
  }
};

template <>
struct Block<Format::generic> {
  static constexpr bool kSums = true;
  uint32_t a[4];
  float2 d, d2, d_offset;  // .x row g, .y row g + 8
  float first0, second0, first1, second1, offset00, offset01, offset10, offset11;
  bool two_groups;
  __device__ __forceinline__ void load(const std::byte* tile, int b, Lane at, bool two_groups_) {
    two_groups = two_groups_;
    const std::byte* p = tile + b * 832;
    const uint4 w = *reinterpret_cast<const uint4*>(p + at.lane * 16);
    a[0] = w.x;
    a[1] = w.y;
    a[2] = w.z;
    a[3] = w.w;
    d = *reinterpret_cast<const float2*>(p + 512 + at.g * 8);
    d2 = *reinterpret_cast<const float2*>(p + 576 + at.g * 8);
    d_offset = *reinterpret_cast<const float2*>(p + 640 + at.g * 8);
    const uint4 small = *reinterpret_cast<const uint4*>(p + 704 + at.g * 16);
    constexpr uint32_t kSigns = 0x80008000U;
    first0 = flipped_half_float<0>(small.x ^ kSigns);
    second0 = flipped_half_float<1>(small.x ^ kSigns);
    offset00 = flipped_half_float<0>(small.y ^ kSigns);
    offset01 = flipped_half_float<1>(small.y ^ kSigns);
    first1 = flipped_half_float<0>(small.z ^ kSigns);
    second1 = flipped_half_float<1>(small.z ^ kSigns);
    offset10 = flipped_half_float<0>(small.w ^ kSigns);
    offset11 = flipped_half_float<1>(small.w ^ kSigns);
  }
  __device__ __forceinline__ void add(float (&acc)[4], const Columns& c) const {
    int first[4], second[4];
    mma_k16(first, a[0], a[1], c.b0, Magic<0>::kBits);
    mma_k16(second, a[2], a[3], c.b1, Magic<0>::kBits);
    const auto first_part = [&](int i) { return __fmul_rn(i < 2 ? first0 : first1, Magic<0>::to_float(first[i])); };
    if (two_groups) {
      add_scaled(acc, d.x, d.y, c, first_part);
      add_scaled(acc, d2.x, d2.y, c,
                 [&](int i) { return __fmul_rn(i < 2 ? second0 : second1, Magic<0>::to_float(second[i])); });
    } else {
      add_scaled(acc, d.x, d.y, c, [&](int i) {
        return __fmaf_rn(i < 2 ? second0 : second1, Magic<0>::to_float(second[i]), first_part(i));
      });
    }
    // Types without an offset have d_offset = 0 and offsets 0: the term adds +0 to a sum that is never -0.
    add_scaled(acc, d_offset.x, d_offset.y, c, [&](int i) {
      const int sums = i & 1 ? c.sums1 : c.sums0;
      return __fmaf_rn(i < 2 ? offset01 : offset11, small_float(second_sum(sums)),
                       __fmul_rn(i < 2 ? offset00 : offset10, small_float(first_sum(sums))));
    });
  }
};

}  // namespace cohort::cuda
