// NEON: tiles of the formats of four and more bits (linear_neon_tile.h), float weights, activations.
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/linear_neon_tile.h"

namespace cohort::cpu {
namespace {

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
    if (chunk.transposed != nullptr) {
      const uint8x16_t order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
      for (int half = 0; half < 2; ++half)
        vst1q_s8(chunk.transposed + at * kBlockValues + 16 * half, vqtbl1q_s8(q[half], order));
    }
    if (chunk.strided != nullptr) {
      const int8x16x2_t both = {{q[0], q[1]}};
      for (int half = 0; half < 2; ++half) {
        const uint8x16_t order = {0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27};
        vst1q_s8(chunk.strided + at * kBlockValues + 16 * half,
                 vqtbl2q_s8(both, vaddq_u8(order, vdupq_n_u8(static_cast<uint8_t>(4 * half)))));
      }
    }
    chunk.d[at] = d;
    const int32_t low = vaddlvq_s8(q[0]), high = vaddlvq_s8(q[1]);
    const int32_t part[3] = {low + high, low, high};
    chunk.store_sums(at, part);
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

/// The bits of E4M3 are an f16 that is 2^8 times too small, but for its NaN.
void decode_fp8(const std::byte* from, int64_t blocks, float* out) {
  const int16x8_t digits = vdupq_n_s16(static_cast<int16_t>(0xbf80)), nan = vdupq_n_s16(0x3f80);
  for (int64_t b = 0; b < blocks; ++b, from += 36, out += kBlockValues) {
    const float d = *reinterpret_cast<const float*>(from);
    for (int h = 0; h < 4; ++h) {
      const int8x8_t bytes = vld1_s8(reinterpret_cast<const int8_t*>(from + 4 + 8 * h));
      const int16x8_t half = vandq_s16(vshlq_n_s16(vmovl_s8(bytes), 7), digits);
      const int16x8_t none = vreinterpretq_s16_u16(vceqq_s16(vandq_s16(half, nan), nan));
      const float16x8_t small = vreinterpretq_f16_s16(half);
      const auto put = [&](float32x4_t value, int16x4_t is_nan, float* to) {
        // All bits set are a NaN.
        const int32x4_t bits = vreinterpretq_s32_f32(vmulq_n_f32(vmulq_n_f32(value, 256.0F), d));
        vst1q_f32(to, vreinterpretq_f32_s32(vorrq_s32(bits, vmovl_s16(is_nan))));
      };
      put(vcvt_f32_f16(vget_low_f16(small)), vget_low_s16(none), out + 8 * h);
      put(vcvt_f32_f16(vget_high_f16(small)), vget_high_s16(none), out + 8 * h + 4);
    }
  }
}

constexpr LinearKernels make_kernels() {
  LinearKernels kernels{{tile_all<Nibbles, One<>>, tile_all<Nibbles, OneMin>, tile_all<FiveBits, One<>>,
                         tile_all<FiveBits, OneMin>, tile_all<Bytes, One<>>, tile_all<Nibbles, KMin>,
                         tile_all<FiveBits, KMin>, tile_all<SixBits, KSixteen>, tile_all<Bytes, Affine>},
                        float_rows,
                        quantise,
                        combine,
                        decode_fp8};
  forward_to<kNeonLowbitTiles>(kernels.tile + kFirstLowbit, std::make_integer_sequence<int, kLowbitLayouts>());
  forward_to<kNeonGridTiles>(kernels.tile + kFirstGrid, std::make_integer_sequence<int, kGridLayouts>());
  return kernels;
}

}  // namespace

constinit const LinearKernels kNeonKernels = make_kernels();

}  // namespace cohort::cpu
