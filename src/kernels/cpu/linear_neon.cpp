// Tile kernels for NEON with dot products (Armv8.2).
//
// One call: 16 outputs in four quarters of 4 lanes times up to 16 rows, four rows at once. Codes are decoded to signed
// bytes, so that sdot needs no correction for a bias. The float operations per lane are those of the other instruction
// sets, hence the same bits.
#include <arm_neon.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile_prefetch.h"

namespace cohort::cpu {
namespace {

#define COHORT_INLINE inline __attribute__((always_inline))

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

struct One {
  float32x4_t d;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    d = load_half(scales + 32 * block + 8 * quarter);
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

struct Wide {
  float32x4_t d, d_offset, s0, s1, o0, o1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* at = scales + 256 * block;
    d = load_float(at + 16 * quarter);
    d_offset = load_float(at + 64 + 16 * quarter);
    s0 = load_i16(at + 128 + 8 * quarter);
    s1 = load_i16(at + 160 + 8 * quarter);
    o0 = load_i16(at + 192 + 8 * quarter);
    o1 = load_i16(at + 224 + 8 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    const float32x4_t isum = vfmaq_f32(vmulq_f32(s0, vcvtq_f32_s32(low)), s1, vcvtq_f32_s32(high));
    const float32x4_t msum =
        vfmaq_f32(vmulq_f32(o0, set_float(x.sums[kSumLow] + at)), o1, set_float(x.sums[kSumHigh] + at));
    acc = vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), isum);
    return vfmaq_f32(acc, vmulq_n_f32(d_offset, x.d[at]), msum);
  }
};

struct Two {
  float32x4_t d0, d1, s0, s1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* at = scales + 192 * block;
    d0 = load_float(at + 16 * quarter);
    d1 = load_float(at + 64 + 16 * quarter);
    s0 = load_i16(at + 128 + 8 * quarter);
    s1 = load_i16(at + 160 + 8 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    acc = vfmaq_f32(acc, vmulq_n_f32(d0, x.d[at]), vmulq_f32(s0, vcvtq_f32_s32(low)));
    return vfmaq_f32(acc, vmulq_n_f32(d1, x.d[at]), vmulq_f32(s1, vcvtq_f32_s32(high)));
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
  TilePrefetcher prefetcher(call, pass, passes);
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

// --- float weights: sixteen lanes are four vectors, a tail goes lane by lane
// -------------------------------------------

struct F32 {
  static constexpr int64_t kBytes = 4;
  static COHORT_INLINE float32x4_t load(const std::byte* p) { return load_float(p); }
  static COHORT_INLINE float one(const std::byte* p) { return *reinterpret_cast<const float*>(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE float32x4_t load(const std::byte* p) { return load_half(p); }
  static COHORT_INLINE float one(const std::byte* p) { return static_cast<float>(*reinterpret_cast<const __fp16*>(p)); }
};
struct Bf16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE float32x4_t load(const std::byte* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)), 16));
  }
  static COHORT_INLINE float one(const std::byte* p) {
    return __builtin_bit_cast(float, uint32_t{*reinterpret_cast<const uint16_t*>(p)} << 16);
  }
};

template <class Type>
COHORT_INLINE float dot16_float(const float* x, const std::byte* w, int64_t cols) {
  float32x4_t acc[4];
  for (float32x4_t& a : acc) a = vdupq_n_f32(0);
  int64_t k = 0;
  for (; k + 16 <= cols; k += 16) {
    for (int i = 0; i < 4; ++i)
      acc[i] = vfmaq_f32(acc[i], vld1q_f32(x + k + 4 * i), Type::load(w + (k + 4 * i) * Type::kBytes));
  }
  if (k < cols) {
    float lanes[16];
    for (int i = 0; i < 4; ++i) vst1q_f32(lanes + 4 * i, acc[i]);
    for (int64_t j = k; j < cols; ++j)
      lanes[j - k] = __builtin_fmaf(x[j], Type::one(w + j * Type::kBytes), lanes[j - k]);
    for (int i = 0; i < 4; ++i) acc[i] = vld1q_f32(lanes + 4 * i);
  }
  const float32x4_t four = vaddq_f32(vaddq_f32(acc[0], acc[2]), vaddq_f32(acc[1], acc[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

template <class Type>
void float_all(const FloatCall& call) {
  for (int32_t o = 0; o < call.outputs; ++o) {
    const std::byte* w = call.weight + static_cast<size_t>(o) * call.row_bytes;
    for (int32_t r = 0; r < call.rows; ++r) call.out[r][o] = dot16_float<Type>(call.x[r], w, call.cols);
  }
}

void float_rows(const FloatCall& call) {
  switch (call.type) {
    case TensorType::f16:
      return float_all<F16>(call);
    case TensorType::bf16:
      return float_all<Bf16>(call);
    default:
      return float_all<F32>(call);
  }
}

// --- activations
// ------------------------------------------------------------------------------------------------------

void quantise(const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row) {
  for (int64_t b = 0; b < blocks; ++b, x += kBlockValues) {
    const int64_t at = b * chunk.rows + row;
    float32x4_t v[8];
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < 8; ++i) {
      v[i] = vld1q_f32(x + 4 * i);
      // Absolute values compare as integers; NaN counts as larger than infinity.
      most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(v[i]), vdupq_n_u32(0x7fffffffU)));
    }
    const uint32_t bits = vmaxvq_u32(most);
    const auto amax = __builtin_bit_cast(float, bits);
    int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
    float d = 0.0F;
    if (bits >= 0x7f800000U) {
      d = __builtin_nanf("");
    } else if (amax >= 0x1p-100F) {
      d = amax / 127.0F;
      const float inverse = 127.0F / amax;
      for (int half = 0; half < 2; ++half) {
        int16x4_t n[4];
        for (int i = 0; i < 4; ++i) n[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], inverse)));
        q[half] = vcombine_s8(vmovn_s16(vcombine_s16(n[0], n[1])), vmovn_s16(vcombine_s16(n[2], n[3])));
      }
    }
    vst1q_s8(chunk.q + at * kBlockValues, q[0]);
    vst1q_s8(chunk.q + at * kBlockValues + 16, q[1]);
    chunk.d[at] = d;
    const int32_t low = vaddlvq_s8(q[0]), high = vaddlvq_s8(q[1]);
    const int32_t part[3] = {low + high, low, high};
    for (int kind = 0; kind < kSumKinds; ++kind) {
      if (chunk.sums[kind] == nullptr) continue;
      const SumInfo info = kSumInfo[kind];
      const int32_t sum = part[info.part] * info.multiplier;
      chunk.sums[kind][at] = info.multiplier == 1 ? __builtin_bit_cast(int32_t, static_cast<float>(sum)) : sum;
    }
  }
}

void combine(const CombineCall& call) {
  for (int32_t i = 0; i < call.outputs; i += 4) {
    const float* d = call.partials + i;
    float32x4_t y = vmulq_n_f32(vld1q_f32(d + call.places[0] * call.width), call.weights[0]);
    for (int32_t s = 1; s < call.top_k; ++s)
      y = vfmaq_n_f32(y, vld1q_f32(d + call.places[s] * call.width), call.weights[s]);
    store_lanes(call.out + i, y, call.outputs - i);
  }
}

}  // namespace

const LinearKernels kNeonKernels = {
    {tile_all<Nibbles, One>, tile_all<Nibbles, OneMin>, tile_all<FiveBits, One>, tile_all<FiveBits, OneMin>,
     tile_all<Bytes, One>, tile_all<Nibbles, KMin>, tile_all<FiveBits, KMin>, tile_all<SixBits, KSixteen>,
     tile_all<Nibbles, Wide>, tile_all<Bytes, Wide>, tile_all<Bytes, Two>},
    float_rows,
    quantise,
    combine};

}  // namespace cohort::cpu
