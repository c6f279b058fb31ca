// AVX2: tiles of the formats of four and more bits (linear_avx2_tile.h), float weights, activations.
#include "kernels/cpu/activation_block_x86.h"
#include "kernels/cpu/linear_avx2_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {
namespace {

// --- float weights ----------------------------------------------------------------------------------------------
// Sixteen lanes are two vectors; a tail that does not fill them goes lane by lane.

struct F32 {
  static constexpr int64_t kBytes = 4;
  static COHORT_INLINE __m256 load(const std::byte* p) { return load_float(p); }
  static COHORT_INLINE float one(const std::byte* p) { return *reinterpret_cast<const float*>(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE __m256 load(const std::byte* p) { return load_half(p); }
  static COHORT_INLINE float one(const std::byte* p) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(*reinterpret_cast<const uint16_t*>(p))));
  }
};
struct Bf16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE __m256 load(const std::byte* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  static COHORT_INLINE float one(const std::byte* p) {
    return __builtin_bit_cast(float, uint32_t{*reinterpret_cast<const uint16_t*>(p)} << 16);
  }
};

COHORT_INLINE float tree16(__m256 low, __m256 high) {
  const __m256 a = _mm256_add_ps(low, high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

template <class Type, int kOutputs>
void float_outputs(const FloatCall& call, int32_t output) {
  for (int32_t r = 0; r < call.rows; ++r) {
    const float* x = call.x[r];
    __m256 acc[kOutputs][2];
    const std::byte* w[kOutputs];
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      w[o] = call.weight + static_cast<size_t>(output + o) * call.row_bytes;
      acc[o][0] = acc[o][1] = _mm256_setzero_ps();
    }
    int64_t k = 0;
    for (; k + 16 <= call.cols; k += 16) {
      const __m256 low = _mm256_loadu_ps(x + k), high = _mm256_loadu_ps(x + k + 8);
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) {
        acc[o][0] = _mm256_fmadd_ps(low, Type::load(w[o] + k * Type::kBytes), acc[o][0]);
        acc[o][1] = _mm256_fmadd_ps(high, Type::load(w[o] + (k + 8) * Type::kBytes), acc[o][1]);
      }
    }
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      if (k < call.cols) {
        alignas(32) float lanes[16];
        _mm256_store_ps(lanes, acc[o][0]);
        _mm256_store_ps(lanes + 8, acc[o][1]);
        for (int64_t j = k; j < call.cols; ++j)
          lanes[j - k] = __builtin_fmaf(x[j], Type::one(w[o] + j * Type::kBytes), lanes[j - k]);
        acc[o][0] = _mm256_load_ps(lanes);
        acc[o][1] = _mm256_load_ps(lanes + 8);
      }
      call.out[r][output + o] = tree16(acc[o][0], acc[o][1]);
    }
  }
}

template <class Type>
void float_all(const FloatCall& call) {
  int32_t output = 0;
  for (; output + 4 <= call.outputs; output += 4) float_outputs<Type, 4>(call, output);
  for (; output < call.outputs; ++output) float_outputs<Type, 1>(call, output);
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

// --- activations ------------------------------------------------------------------------------------------------

COHORT_INLINE __m128i to_bytes(__m256i low, __m256i high) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

void quantise(const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < blocks; ++b, x += kBlockValues) {
    const int64_t at = b * chunk.rows + row;
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    const auto bits = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(four));
    __m128i q0 = _mm_setzero_si128(), q1 = q0;
    float d = 0.0F;
    if (bits >= 0x7f800000U) {
      d = __builtin_nanf("");
    } else if (amax >= 0x1p-100F) {
      d = amax / 127.0F;
      const __m256 inverse = _mm256_set1_ps(127.0F / amax);
      __m256i n[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
      q0 = to_bytes(n[0], n[1]);
      q1 = to_bytes(n[2], n[3]);
    }
    store_block(chunk, at, d, q0, q1);
  }
}

void combine(const CombineCall& call) {
  for (int32_t i = 0; i < call.outputs; i += 8) {
    const float* d = call.partials + i;
    __m256 y = _mm256_mul_ps(_mm256_set1_ps(call.weights[0]), _mm256_loadu_ps(d + call.places[0] * call.width));
    for (int32_t s = 1; s < call.top_k; ++s)
      y = _mm256_fmadd_ps(_mm256_set1_ps(call.weights[s]), _mm256_loadu_ps(d + call.places[s] * call.width), y);
    store_lanes(call.out + i, y, call.outputs - i);
  }
}

/// The bits of E4M3 are an f16 that is 2^8 times too small, but for its NaN.
void decode_fp8(const std::byte* from, int64_t blocks, float* out) {
  const __m128i digits = _mm_set1_epi16(static_cast<int16_t>(0xbf80)), nan = _mm_set1_epi16(0x3f80);
  for (int64_t b = 0; b < blocks; ++b, from += 36, out += kBlockValues) {
    const __m256 d = _mm256_set1_ps(*reinterpret_cast<const float*>(from));
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 4 + 8 * h));
      const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), digits);
      const __m128i none = _mm_cmpeq_epi16(_mm_and_si128(half, nan), nan);
      const __m256 value = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0F)), d);
      // All bits set are a NaN.
      _mm256_storeu_ps(out + 8 * h, _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_cvtepi16_epi32(none))));
    }
  }
}

constexpr LinearKernels make_kernels() {
  LinearKernels kernels{
      {tile_all<Nibbles, One<kNeg8>>, tile_all<Nibbles, OneMin>, tile_all<FiveBits, One<kNeg16>>,
       tile_all<FiveBits, OneMin>, tile_all<Bytes, One<kNeg128>>, tile_all<Nibbles, KMin>, tile_all<FiveBits, KMin>,
       tile_all<SixBits, KSixteen<kNeg32Low, kNeg32High>>, tile_all<Bytes, Affine>},
      float_rows,
      quantise,
      combine,
      decode_fp8};
  forward_to<kAvx2LowbitTiles>(kernels.tile + kFirstLowbit, std::make_integer_sequence<int, kLowbitLayouts>());
  forward_to<kAvx2GridTiles>(kernels.tile + kFirstGrid, std::make_integer_sequence<int, kGridLayouts>());
  return kernels;
}

}  // namespace

constinit const LinearKernels kAvx2Kernels = make_kernels();

}  // namespace cohort::cpu
