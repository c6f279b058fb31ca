// AVX-512 VNNI: tiles of the formats of four and more bits (linear_avx512_tile.h), float weights, activations.
#include "kernels/cpu/activation_block_x86.h"
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {
namespace {

// --- float weights ----------------------------------------------------------------------------------------------

struct F32 {
  static constexpr int64_t kBytes = 4;
  static COHORT_INLINE __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static COHORT_INLINE __m512 load(const std::byte* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE __m512 load(const std::byte* p) { return load_half(p); }
  static COHORT_INLINE __m512 load(const std::byte* p, __mmask16 m) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
  }
};
struct Bf16 {
  static constexpr int64_t kBytes = 2;
  static COHORT_INLINE __m512 widen(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static COHORT_INLINE __m512 load(const std::byte* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static COHORT_INLINE __m512 load(const std::byte* p, __mmask16 m) { return widen(_mm256_maskz_loadu_epi16(m, p)); }
};

COHORT_INLINE float tree16(__m512 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

template <class Type, int kOutputs, int kRows>
void float_block(const FloatCall& call, int32_t output, int32_t row) {
  __m512 acc[kOutputs][kRows];
  const std::byte* w[kOutputs];
  const float* x[kRows];
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    w[o] = call.weight + static_cast<size_t>(output + o) * call.row_bytes;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[o][r] = _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) x[r] = call.x[row + r];
  int64_t k = 0;
  for (; k + 16 <= call.cols; k += 16) {
    __m512 v[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) v[r] = _mm512_loadu_ps(x[r] + k);
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const __m512 weight = Type::load(w[o] + k * Type::kBytes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[o][r] = _mm512_fmadd_ps(v[r], weight, acc[o][r]);
    }
  }
  if (k < call.cols) {
    // Lanes without a k keep their value.
    const auto mask = static_cast<__mmask16>((1U << (call.cols - k)) - 1);
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const __m512 weight = Type::load(w[o] + k * Type::kBytes, mask);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        acc[o][r] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(mask, x[r] + k), weight, acc[o][r], mask);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) call.out[row + r][output + o] = tree16(acc[o][r]);
  }
}

template <class Type, int kOutputs>
void float_outputs(const FloatCall& call, int32_t output) {
  int32_t row = 0;
  for (; row + 4 <= call.rows; row += 4) float_block<Type, kOutputs, 4>(call, output, row);
  switch (call.rows - row) {
    case 3:
      return float_block<Type, kOutputs, 3>(call, output, row);
    case 2:
      return float_block<Type, kOutputs, 2>(call, output, row);
    case 1:
      return float_block<Type, kOutputs, 1>(call, output, row);
    default:
      return;
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

void quantise(const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < blocks; ++b, x += kBlockValues) {
    const int64_t at = b * chunk.rows + row;
    const __m512 v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
    // Absolute values compare as integers; NaN counts as larger than infinity.
    const __m512i both = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                          _mm512_and_si512(_mm512_castps_si512(v1), magnitude));
    const __m256i eight = _mm256_max_epu32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
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
      const __m512 inverse = _mm512_set1_ps(127.0F / amax);
      q0 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v0, inverse)));
      q1 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v1, inverse)));
    }
    store_block(chunk, at, d, q0, q1);
  }
}

void combine(const CombineCall& call) {
  for (int32_t i = 0; i < call.outputs; i += 16) {
    const float* d = call.partials + i;
    __m512 y = _mm512_mul_ps(_mm512_set1_ps(call.weights[0]), _mm512_loadu_ps(d + call.places[0] * call.width));
    for (int32_t s = 1; s < call.top_k; ++s)
      y = _mm512_fmadd_ps(_mm512_set1_ps(call.weights[s]), _mm512_loadu_ps(d + call.places[s] * call.width), y);
    const int32_t left = call.outputs - i;
    _mm512_mask_storeu_ps(call.out + i, static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1), y);
  }
}

// --- tables -----------------------------------------------------------------------------------------------------

/// Code books are looked up with VBMI; the few processors that have VNNI without it take the kernels for AVX2.
template <int kIndex>
void grid_tile(const TileCall& call) {
  (has_avx512_vbmi() ? kAvx512GridTiles : kAvx2GridTiles)[kIndex](call);
}

template <int... kIndex>
constexpr void add_grids(TileKernel* entries, std::integer_sequence<int, kIndex...>) {
  ((entries[kIndex] = grid_tile<kIndex>), ...);
}

/// Nibbles are cut out by GFNI where it exists.
template <int kIndex>
void wide_tile(const TileCall& call) {
  (has_avx512_vbmi() ? kAvx512GfniTiles : kAvx512PlainTiles)[kIndex](call);
}

template <int... kIndex>
constexpr void add_wide(TileKernel* entries, std::integer_sequence<int, kIndex...>) {
  ((entries[kIndex] = wide_tile<kIndex>), ...);
}

/// Codes of two bits are cut out by GFNI where it exists.
template <int kIndex>
void two_bit_tile(const TileCall& call) {
  (has_avx512_vbmi() ? kAvx512TwoBitTiles : kAvx512LowbitTiles + kFirstTwoBit - kFirstLowbit)[kIndex](call);
}

template <int... kIndex>
constexpr void add_two_bits(TileKernel* entries, std::integer_sequence<int, kIndex...>) {
  ((entries[kIndex] = two_bit_tile<kIndex>), ...);
}

/// The bits of E4M3 are an f16 that is 2^8 times too small, but for its NaN.
void decode_fp8(const std::byte* from, int64_t blocks, float* out) {
  const __m256i digits = _mm256_set1_epi16(static_cast<int16_t>(0xbf80)), nan = _mm256_set1_epi16(0x3f80);
  for (int64_t b = 0; b < blocks; ++b, from += 36, out += kBlockValues) {
    const __m512 d = _mm512_set1_ps(*reinterpret_cast<const float*>(from));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4 + 16 * h));
      const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), digits);
      const __mmask16 numbers = _mm256_cmpneq_epi16_mask(_mm256_and_si256(half, nan), nan);
      const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0F));
      _mm512_storeu_ps(out + 16 * h, _mm512_mask_mul_ps(_mm512_set1_ps(__builtin_nanf("")), numbers, value, d));
    }
  }
}

constexpr LinearKernels make_kernels() {
  LinearKernels kernels{{}, float_rows, quantise, combine, decode_fp8};
  add_wide(kernels.tile, std::make_integer_sequence<int, kWideLayouts>());
  forward_to<kAvx512LowbitTiles>(kernels.tile + kFirstLowbit, std::make_integer_sequence<int, kLowbitLayouts>());
  add_two_bits(kernels.tile + kFirstTwoBit, std::make_integer_sequence<int, kTwoBitLayouts>());
  add_grids(kernels.tile + kFirstGrid, std::make_integer_sequence<int, kGridLayouts>());
  return kernels;
}

}  // namespace

constinit const std::array<TileKernel, kWideLayouts> kAvx512PlainTiles = wide_tiles();

constinit const LinearKernels kAvx512Kernels = make_kernels();

}  // namespace cohort::cpu
