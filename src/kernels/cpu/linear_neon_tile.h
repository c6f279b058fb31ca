// Tile kernels for NEON with dot products (Armv8.2).
//
// One call: 16 outputs in four quarters of 4 lanes times up to 16 rows, four rows at once. Codes are decoded to signed
// bytes, so that sdot needs no correction for a bias. The float operations per lane are those of the other instruction
// sets, hence the same bits.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile_prefetch.h"

namespace cohort::cpu {
namespace {

constexpr int kQuarters = 4;  // of 4 outputs

COHORT_INLINE const uint8_t* bytes_at(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}
COHORT_INLINE float32x4_t load_half(const std::byte* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))));
}
COHORT_INLINE float32x4_t load_float(const std::byte* p) {
  return vld1q_f32(reinterpret_cast<const float*>(p));
}
COHORT_INLINE uint8x8_t load_four(const std::byte* p) {
  return vreinterpret_u8_u32(vdup_n_u32(*reinterpret_cast<const uint32_t*>(p)));
}
COHORT_INLINE float32x4_t load_u8(const std::byte* p) {
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_four(p)))));
}
COHORT_INLINE float32x4_t load_i8(const std::byte* p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_four(p))))));
}
COHORT_INLINE float32x4_t load_i16(const std::byte* p) {
  return vcvtq_f32_s32(vmovl_s16(vld1_s16(reinterpret_cast<const int16_t*>(p))));
}
COHORT_INLINE float32x4_t set_float(const int32_t* p) {
  return vreinterpretq_f32_s32(vdupq_n_s32(*p));
}

// --- quants: the eight vectors of one quarter of a block, unsigned codes ---------------------------------------------

struct Nibbles {
  static constexpr int64_t kBytes = 256;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t v = vld1q_u8(bytes_at(p + 64 * i + 16 * quarter));
      w[i] = vandq_u8(v, vdupq_n_u8(15));
      w[i + 4] = vshrq_n_u8(v, 4);
    }
  }
};

struct FiveBits {
  static constexpr int64_t kBytes = 320;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    Nibbles::decode(p, quarter, w);
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ULL));
    for (int i = 0; i < 8; ++i) {
      const uint8_t* mask = bytes_at(p + 256 + 8 * i + 2 * quarter);
      const uint8x16_t spread = vcombine_u8(vdup_n_u8(mask[0]), vdup_n_u8(mask[1]));
      w[i] = vorrq_u8(w[i], vandq_u8(vtstq_u8(spread, bits), vdupq_n_u8(16)));
    }
  }
};

struct SixBits {
  static constexpr int64_t kBytes = 384;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    Nibbles::decode(p, quarter, w);
    const uint8x16_t mask = vdupq_n_u8(0x30);
    for (int h = 0; h < 2; ++h) {
      const uint8x16_t v = vld1q_u8(bytes_at(p + 256 + 64 * h + 16 * quarter));
      w[4 * h] = vorrq_u8(w[4 * h], vandq_u8(vshlq_n_u8(v, 4), mask));
      w[4 * h + 1] = vorrq_u8(w[4 * h + 1], vandq_u8(vshlq_n_u8(v, 2), mask));
      w[4 * h + 2] = vorrq_u8(w[4 * h + 2], vandq_u8(v, mask));
      w[4 * h + 3] = vorrq_u8(w[4 * h + 3], vandq_u8(vshrq_n_u8(v, 2), mask));
    }
  }
};

struct Bytes {
  static constexpr int64_t kBytes = 512;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    for (int i = 0; i < 8; ++i) w[i] = vld1q_u8(bytes_at(p + 64 * i + 16 * quarter));
  }
};

/// Dot products of four vectors with 16 activations.
COHORT_INLINE int32x4_t dot16(const int8x16_t* w, const int8_t* q) {
  const int8x16_t x = vld1q_s8(q);
  int32x4_t t = vdotq_laneq_s32(vdupq_n_s32(0), w[0], x, 0);
  t = vdotq_laneq_s32(t, w[1], x, 1);
  t = vdotq_laneq_s32(t, w[2], x, 2);
  return vdotq_laneq_s32(t, w[3], x, 3);
}

// --- scales: as in linear_avx512_impl.h, for one quarter; low and high are the dot products of 0-15 and 16-31
// ---------

/// One scale for 2^kShift blocks.
template <int kShift = 0>
struct One {
  float32x4_t d;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    d = load_half(scales + 32 * (block >> kShift) + 8 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    return vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), vcvtq_f32_s32(vaddq_s32(low, high)));
  }
};

struct OneMin {
  float32x4_t d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    d = load_half(scales + 64 * block + 8 * quarter);
    m = load_half(scales + 64 * block + 32 + 8 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    acc = vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), vcvtq_f32_s32(vaddq_s32(low, high)));
    return vfmaq_f32(acc, vmulq_n_f32(m, x.d[at]), set_float(x.sums[kSumAll] + at));
  }
};

struct KMin {
  float32x4_t d, dmin, s, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 320 * (block / 8);
    d = load_half(super + 8 * quarter);
    dmin = load_half(super + 32 + 8 * quarter);
    s = load_u8(super + 64 + 32 * (block % 8) + 4 * quarter);
    m = load_u8(super + 80 + 32 * (block % 8) + 4 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    acc = vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), vmulq_f32(s, vcvtq_f32_s32(vaddq_s32(low, high))));
    return vfmaq_f32(acc, vmulq_n_f32(dmin, x.d[at]), vmulq_f32(m, set_float(x.sums[kSumAll] + at)));
  }
};

struct KSixteen {
  float32x4_t d, s0, s1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 288 * (block / 8);
    d = load_half(super + 8 * quarter);
    s0 = load_i8(super + 32 + 32 * (block % 8) + 4 * quarter);
    s1 = load_i8(super + 48 + 32 * (block % 8) + 4 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    const float32x4_t isum = vfmaq_f32(vmulq_f32(s0, vcvtq_f32_s32(low)), s1, vcvtq_f32_s32(high));  // exact
    return vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), isum);
  }
};

struct Affine {
  float32x4_t d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    d = load_float(scales + 128 * block + 16 * quarter);
    m = load_float(scales + 128 * block + 64 + 16 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    acc = vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), vcvtq_f32_s32(vaddq_s32(low, high)));
    return vfmaq_f32(acc, vmulq_n_f32(m, x.d[at]), set_float(x.sums[kSumAll] + at));
  }
};

// --- the walk over K
// --------------------------------------------------------------------------------------------------

COHORT_INLINE void store_lanes(float* out, float32x4_t v, int32_t lanes) {
  if (lanes >= 4) {
    vst1q_f32(out, v);
    return;
  }
  float all[4];
  vst1q_f32(all, v);
  for (int32_t i = 0; i < lanes; ++i) out[i] = all[i];
}

template <class Quants, class Scales, int kRows>
void quarter_rows(const TileCall& call, int quarter, int32_t first, int32_t pass, int32_t passes) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const std::byte* quants = call.tile + shape.scale_bytes;
  const int32_t per_segment = shape.blocks / shape.segments;
  const int8x16_t bias = vdupq_n_s8(static_cast<int8_t>(layout_info(shape.layout).bias));
  float32x4_t waiting[6][kRows];  // finished segments, as the carries of a binary counter
  TilePrefetcher<> prefetcher(call, pass, passes);
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    float32x4_t acc[kRows];
    for (int r = 0; r < kRows; ++r) acc[r] = vdupq_n_f32(0);
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      prefetcher.advance();
      uint8x16_t codes[8];
      Quants::decode(quants + block * Quants::kBytes, quarter, codes);
      int8x16_t w[8];
      for (int v = 0; v < 8; ++v) w[v] = vsubq_s8(vreinterpretq_s8_u8(codes[v]), bias);
      Scales s;
      s.load(call.tile, block, quarter);
      const int64_t at = block * x.rows + first;
      for (int r = 0; r < kRows; ++r) {
        const int8_t* q = x.q + (at + r) * kBlockValues;
        acc[r] = s.finish(acc[r], dot16(w, q), dot16(w + 4, q + 16), x, at + r);
      }
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
      for (int r = 0; r < kRows; ++r) acc[r] = vaddq_f32(waiting[level][r], acc[r]);
    }
    for (int r = 0; r < kRows; ++r) waiting[level][r] = acc[r];
  }
  const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
  for (int r = 0; r < kRows; ++r)
    store_lanes(call.out + (first + r) * call.out_stride + 4 * quarter, waiting[top][r], call.outputs - 4 * quarter);
}

template <class Quants, class Scales>
void tile_all(const TileCall& call) {
  const int32_t parts = std::min(kQuarters, (call.outputs + 3) / 4);
  const int32_t passes = parts * ((call.x->rows + 3) / 4);
  int32_t pass = -1;
  for (int quarter = 0; quarter < kQuarters && call.outputs > 4 * quarter; ++quarter) {
    for (int32_t first = 0; first < call.x->rows; first += 4) {
      ++pass;
      switch (call.x->rows - first) {
        case 1:
          quarter_rows<Quants, Scales, 1>(call, quarter, first, pass, passes);
          break;
        case 2:
          quarter_rows<Quants, Scales, 2>(call, quarter, first, pass, passes);
          break;
        case 3:
          quarter_rows<Quants, Scales, 3>(call, quarter, first, pass, passes);
          break;
        default:
          quarter_rows<Quants, Scales, 4>(call, quarter, first, pass, passes);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::cpu
