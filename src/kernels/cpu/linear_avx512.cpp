// Tile kernels for AVX-512 VNNI.
//
// One call: 16 outputs (the lanes) times up to 16 rows. A block's weights are decoded once into eight vectors of
// unsigned bytes and stay in registers while every row of a group of up to eight takes its eight dpbusd, whose other
// operand is four activations broadcast from memory. The accumulator starts at minus bias times the sum of the row's
// activations, so unsigned codes cost nothing. Per row and block: 8 dpbusd and 3 to 7 float operations on two ports.
// What bounds it: one to about 16 rows, memory (docs/perf/cpu.md), so prefetch matters; from there the two vector
// ports.
#include "kernels/cpu/linear_avx512_impl.h"
#include "kernels/cpu/tile_prefetch.h"

namespace cohort::cpu {
namespace {

// --- dot products of a row's block with the eight vectors -------------------------------------------------------

COHORT_INLINE __m512i step(__m512i acc, __m512i w, const int8_t* q) {
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(q)));
}

/// Adds the dot products of kVectors vectors (4 values each) of N rows to t. Rows are interleaved because a chain of
/// dpbusd has five cycles of latency a link; with one or two rows a row is cut into several chains instead.
template <int N, int kVectors>
COHORT_INLINE void dots(__m512i* t, const __m512i* w, const int8_t* q) {
  constexpr int kChains = N == 1 ? 4 : N == 2 ? 2 : 1;
  __m512i chain[kChains][N];
#pragma GCC unroll 4
  for (int c = 1; c < kChains; ++c) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) chain[c][n] = _mm512_setzero_si512();
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) chain[0][n] = t[n];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) chain[i % kChains][n] = step(chain[i % kChains][n], w[i], q + n * kBlockValues + 4 * i);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    if constexpr (kChains == 4) {
      t[n] = _mm512_add_epi32(_mm512_add_epi32(chain[0][n], chain[1][n]), _mm512_add_epi32(chain[2][n], chain[3][n]));
    } else if constexpr (kChains == 2) {
      t[n] = _mm512_add_epi32(chain[0][n], chain[1][n]);
    } else {
      t[n] = chain[0][n];
    }
  }
}

/// Accumulators that already hold minus bias times the sum of the activations.
template <SumKind kStart, int N>
COHORT_INLINE void start(__m512i* t, const ActivationChunk& x, int64_t at) {
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    if constexpr (kStart == kNoSum) {
      t[n] = _mm512_setzero_si512();
    } else {
      t[n] = set_int(x.sums[kStart] + at + n);
    }
  }
}

/// One block of N rows.
template <int N, class Scales>
COHORT_INLINE void add_block(__m512* acc, const Scales& s, const __m512i* w, const int8_t* q, const ActivationChunk& x,
                             int64_t at) {
  __m512i t[N], high[N];
  start<Scales::kStart, N>(t, x, at);
  if constexpr (Scales::kHalves) {
    start<Scales::kStartHigh, N>(high, x, at);
    dots<N, 4>(t, w, q);
    dots<N, 4>(high, w + 4, q + 16);
  } else {
    dots<N, 8>(t, w, q);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) acc[n] = s.finish(acc[n], t[n], Scales::kHalves ? high[n] : t[n], x, at + n);
}

// --- the walk over K --------------------------------------------------------------------------------------------

/// Rows first .. first + kRows of the chunk: pass `pass` of `passes` over the tile.
template <class Quants, class Scales, int kRows>
void tile_rows(const TileCall& call, int32_t first, int32_t pass, int32_t passes) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const std::byte* scales = call.tile;
  const std::byte* quants = call.tile + shape.scale_bytes;
  const int32_t per_segment = shape.blocks / shape.segments;
  // Finished segments wait here for their neighbour, as the carries of a binary counter.
  __m512 waiting[6][kRows];
  TilePrefetcher prefetcher(call, pass, passes);
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    __m512 acc[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      prefetcher.advance();
      __m512i w[8];
      Quants::decode(quants + block * Quants::kBytes, w);
      Scales s;
      s.load(scales, block);
      const int64_t at = block * x.rows + first;
      const int8_t* q = x.q + at * kBlockValues;
      if constexpr (kRows <= 4) {
        add_block<kRows>(acc, s, w, q, x, at);
      } else {
        constexpr int kFirst = (kRows + 1) / 2;
        add_block<kFirst>(acc, s, w, q, x, at);
        add_block<kRows - kFirst>(acc + kFirst, s, w, q + kFirst * kBlockValues, x, at + kFirst);
      }
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) acc[r] = _mm512_add_ps(waiting[level][r], acc[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) waiting[level][r] = acc[r];
  }
  const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
  const auto mask = static_cast<__mmask16>((1U << call.outputs) - 1);
  for (int r = 0; r < kRows; ++r)
    _mm512_mask_storeu_ps(call.out + (first + r) * call.out_stride, mask, waiting[top][r]);
}

/// One to eight rows at once; more in two halves, the second of which finds the tile in the first cache.
template <class Quants, class Scales>
void tile_all(const TileCall& call) {
  const auto run = [](const TileCall& c, int32_t first, int32_t rows, int32_t pass, int32_t passes) {
    switch (rows) {
      case 1:
        return tile_rows<Quants, Scales, 1>(c, first, pass, passes);
      case 2:
        return tile_rows<Quants, Scales, 2>(c, first, pass, passes);
      case 3:
        return tile_rows<Quants, Scales, 3>(c, first, pass, passes);
      case 4:
        return tile_rows<Quants, Scales, 4>(c, first, pass, passes);
      case 5:
        return tile_rows<Quants, Scales, 5>(c, first, pass, passes);
      case 6:
        return tile_rows<Quants, Scales, 6>(c, first, pass, passes);
      case 7:
        return tile_rows<Quants, Scales, 7>(c, first, pass, passes);
      default:
        return tile_rows<Quants, Scales, 8>(c, first, pass, passes);
    }
  };
  const int32_t rows = call.x->rows;
  if (rows <= 8) return run(call, 0, rows, 0, 1);
  const int32_t half = (rows + 1) / 2;
  run(call, 0, half, 0, 2);
  run(call, half, rows - half, 1, 2);
}

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

COHORT_INLINE int32_t sum_bytes(__m128i v) {
  // Biased to unsigned for the sum of absolute differences with zero.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

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
    int8_t* q = chunk.q + at * kBlockValues;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), q0);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), q1);
    chunk.d[at] = d;
    const int32_t low = sum_bytes(q0), high = sum_bytes(q1);
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
  for (int32_t i = 0; i < call.outputs; i += 16) {
    const float* d = call.partials + i;
    __m512 y = _mm512_mul_ps(_mm512_set1_ps(call.weights[0]), _mm512_loadu_ps(d + call.places[0] * call.width));
    for (int32_t s = 1; s < call.top_k; ++s)
      y = _mm512_fmadd_ps(_mm512_set1_ps(call.weights[s]), _mm512_loadu_ps(d + call.places[s] * call.width), y);
    const int32_t left = call.outputs - i;
    _mm512_mask_storeu_ps(call.out + i, static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1), y);
  }
}

}  // namespace

const LinearKernels kAvx512Kernels = {
    {tile_all<Nibbles, One<kNeg8>>, tile_all<Nibbles, OneMin>, tile_all<FiveBits, One<kNeg16>>,
     tile_all<FiveBits, OneMin>, tile_all<Bytes, One<kNeg128>>, tile_all<Nibbles, KMin>, tile_all<FiveBits, KMin>,
     tile_all<SixBits, KSixteen>, tile_all<Nibbles, Wide<kNeg8Low, kNeg8High>>,
     tile_all<Bytes, Wide<kNeg128Low, kNeg128High>>, tile_all<Bytes, Two>},
    float_rows,
    quantise,
    combine};

}  // namespace cohort::cpu
