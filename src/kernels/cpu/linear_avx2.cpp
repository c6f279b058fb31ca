// Tile kernels for AVX2.
//
// One call: 16 outputs in two halves of 8 lanes times up to 16 rows, four rows at once. Without VNNI a dot product is
// maddubs (unsigned code times signed activation, pairs summed to int16), which stays exact as long as the codes are
// small: nibbles allow all eight vectors of a block to be summed in int16 (8 * 2 * 15 * 127 = 30480), five bits four,
// six bits two; full bytes go as |w| * (x with the sign of w) one at a time (2 * 128 * 127 = 32512). Then madd with
// ones widens to int32. Bits are those of AVX-512: the float operations per lane are the same. What bounds it: one row,
// memory; from about four rows the two vector ports (17 operations a row, half and block).
#include <immintrin.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile_prefetch.h"

// As in linear_avx512.cpp: nothing that the linker could merge with other files' functions.
namespace cohort::cpu {
namespace {

#define COHORT_INLINE inline __attribute__((always_inline))

constexpr int kHalves = 2;  // of 8 outputs

COHORT_INLINE __m256i load_bytes(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
COHORT_INLINE __m128i load_half_bytes(const std::byte* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
COHORT_INLINE __m256 load_half(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
COHORT_INLINE __m256 load_u8(const std::byte* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_half_bytes(p)));
}
COHORT_INLINE __m256 load_i8(const std::byte* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_half_bytes(p)));
}
COHORT_INLINE __m256 load_i16(const std::byte* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
COHORT_INLINE __m256 load_float(const std::byte* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
COHORT_INLINE __m256i set_int(const int32_t* p) {
  return _mm256_set1_epi32(*p);
}
COHORT_INLINE __m256 set_float(const int32_t* p) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(*p));
}
COHORT_INLINE __m256i set_four(const int8_t* q) {
  return _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(q));
}

// --- quants: the eight vectors of one half of a block; kInSixteen of them may be summed in int16
// ----------------------

struct Nibbles {
  static constexpr int64_t kBytes = 256;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i v = load_bytes(p + 64 * i + 32 * half);
      w[i] = _mm256_and_si256(v, low);
      w[i + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
  }
};

struct FiveBits {
  static constexpr int64_t kBytes = 320;
  static constexpr int kInSixteen = 4;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    Nibbles::decode(p, half, w);
    // Byte j takes bit j of 32: its byte of the mask everywhere, then its bit.
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                            3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i mask = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(p + 256 + 8 * i + 4 * half));
      const __m256i mine = _mm256_and_si256(_mm256_shuffle_epi8(mask, spread), bits);
      const __m256i high = _mm256_and_si256(_mm256_cmpeq_epi8(mine, bits), _mm256_set1_epi8(16));
      w[i] = _mm256_or_si256(w[i], high);
    }
  }
};

struct SixBits {
  static constexpr int64_t kBytes = 384;
  static constexpr int kInSixteen = 2;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    Nibbles::decode(p, half, w);
    const __m256i mask = _mm256_set1_epi8(0x30);
    const auto merge = [mask](__m256i nibble, __m256i shifted) {
      return _mm256_or_si256(nibble, _mm256_and_si256(shifted, mask));
    };
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i v = load_bytes(p + 256 + 64 * h + 32 * half);
      w[4 * h] = merge(w[4 * h], _mm256_slli_epi16(v, 4));
      w[4 * h + 1] = merge(w[4 * h + 1], _mm256_slli_epi16(v, 2));
      w[4 * h + 2] = merge(w[4 * h + 2], v);
      w[4 * h + 3] = merge(w[4 * h + 3], _mm256_srli_epi16(v, 2));
    }
  }
};

struct Bytes {
  static constexpr int64_t kBytes = 512;
  static constexpr int kInSixteen = 1;
  static constexpr bool kSigned = true;  // decoded to signed codes: no bias to take out
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = _mm256_xor_si256(load_bytes(p + 64 * i + 32 * half), _mm256_set1_epi8(-128));
  }
};

/// The dot product of kVectors vectors with a row's activations, plus `start` where codes are biased.
template <class Quants, int kVectors>
COHORT_INLINE __m256i dots(const int32_t* start, const __m256i* w, const int8_t* q) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i t = Quants::kSigned || start == nullptr ? _mm256_setzero_si256() : set_int(start);
  constexpr int kGroup = Quants::kInSixteen < kVectors ? Quants::kInSixteen : kVectors;
#pragma GCC unroll 8
  for (int first = 0; first < kVectors; first += kGroup) {
    __m256i pairs;
#pragma GCC unroll 8
    for (int i = first; i < first + kGroup; ++i) {
      const __m256i x = set_four(q + 4 * i);
      const __m256i product = Quants::kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(x, w[i]))
                                              : _mm256_maddubs_epi16(w[i], x);
      pairs = i == first ? product : _mm256_add_epi16(pairs, product);
    }
    t = _mm256_add_epi32(t, _mm256_madd_epi16(pairs, ones));
  }
  return t;
}

// --- scales: as in linear_avx512.cpp, for one half -------------------------------------------------------------------

template <SumKind kStart>
struct One {
  __m256 d;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_half(scales + 32 * block + 16 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i t = dots<Quants, 8>(x.sums[kStart] + at, w, q);
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[at])), _mm256_cvtepi32_ps(t), acc);
  }
};

struct OneMin {
  __m256 d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_half(scales + 64 * block + 16 * half);
    m = load_half(scales + 64 * block + 32 + 16 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i t = dots<Quants, 8>(nullptr, w, q);
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(t), acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(m, dx), set_float(x.sums[kSumAll] + at), acc);
  }
};

struct KMin {
  __m256 d, dmin, s, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 320 * (block / 8);
    d = load_half(super + 16 * half);
    dmin = load_half(super + 32 + 16 * half);
    s = load_u8(super + 64 + 32 * (block % 8) + 8 * half);
    m = load_u8(super + 80 + 32 * (block % 8) + 8 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i t = dots<Quants, 8>(nullptr, w, q);
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_mul_ps(s, _mm256_cvtepi32_ps(t)), acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_mul_ps(m, set_float(x.sums[kSumAll] + at)), acc);
  }
};

struct KSixteen {
  __m256 d, s0, s1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 288 * (block / 8);
    d = load_half(super + 16 * half);
    s0 = load_i8(super + 32 + 32 * (block % 8) + 8 * half);
    s1 = load_i8(super + 48 + 32 * (block % 8) + 8 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256 low = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kNeg32Low] + at, w, q));
    const __m256 high = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kNeg32High] + at, w + 4, q + 16));
    const __m256 isum = _mm256_fmadd_ps(s1, high, _mm256_mul_ps(s0, low));  // exact
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[at])), isum, acc);
  }
};

template <SumKind kLow, SumKind kHigh>
struct Wide {
  __m256 d, d_offset, s0, s1, o0, o1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* at = scales + 256 * block;
    d = load_float(at + 32 * half);
    d_offset = load_float(at + 64 + 32 * half);
    s0 = load_i16(at + 128 + 16 * half);
    s1 = load_i16(at + 160 + 16 * half);
    o0 = load_i16(at + 192 + 16 * half);
    o1 = load_i16(at + 224 + 16 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256 low = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kLow] + at, w, q));
    const __m256 high = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kHigh] + at, w + 4, q + 16));
    const __m256 isum = _mm256_fmadd_ps(s1, high, _mm256_mul_ps(s0, low));
    const __m256 msum =
        _mm256_fmadd_ps(o1, set_float(x.sums[kSumHigh] + at), _mm256_mul_ps(o0, set_float(x.sums[kSumLow] + at)));
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), isum, acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(d_offset, dx), msum, acc);
  }
};

struct Two {
  __m256 d0, d1, s0, s1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* at = scales + 192 * block;
    d0 = load_float(at + 32 * half);
    d1 = load_float(at + 64 + 32 * half);
    s0 = load_i16(at + 128 + 16 * half);
    s1 = load_i16(at + 160 + 16 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256 low = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kNeg128Low] + at, w, q));
    const __m256 high = _mm256_cvtepi32_ps(dots<Quants, 4>(x.sums[kNeg128High] + at, w + 4, q + 16));
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d0, dx), _mm256_mul_ps(s0, low), acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(d1, dx), _mm256_mul_ps(s1, high), acc);
  }
};

// --- the walk over K
// --------------------------------------------------------------------------------------------------

COHORT_INLINE void store_lanes(float* out, __m256 v, int32_t lanes) {
  if (lanes >= 8) {
    _mm256_storeu_ps(out, v);
    return;
  }
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  _mm256_maskstore_ps(out, _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), index), v);
}

template <class Quants, class Scales, int kRows>
void half_rows(const TileCall& call, int half, int32_t first, int32_t pass, int32_t passes) {
  const PackedShape& shape = *call.shape;
  const ActivationChunk& x = *call.x;
  const std::byte* quants = call.tile + shape.scale_bytes;
  const int32_t per_segment = shape.blocks / shape.segments;
  __m256 waiting[6][kRows];  // finished segments, as the carries of a binary counter
  TilePrefetcher prefetcher(call, pass, passes);
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    __m256 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm256_setzero_ps();
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      prefetcher.advance();
      __m256i w[8];
      Quants::decode(quants + block * Quants::kBytes, half, w);
      Scales s;
      s.load(call.tile, block, half);
      const int64_t at = block * x.rows + first;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        acc[r] = s.template add<Quants>(acc[r], w, x.q + (at + r) * kBlockValues, x, at + r);
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r] = _mm256_add_ps(waiting[level][r], acc[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) waiting[level][r] = acc[r];
  }
  const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
  for (int r = 0; r < kRows; ++r)
    store_lanes(call.out + (first + r) * call.out_stride + 8 * half, waiting[top][r], call.outputs - 8 * half);
}

template <class Quants, class Scales>
void tile_all(const TileCall& call) {
  const int32_t parts = std::min(kHalves, (call.outputs + 7) / 8);
  const int32_t passes = parts * ((call.x->rows + 3) / 4);
  int32_t pass = -1;
  for (int half = 0; half < kHalves && call.outputs > 8 * half; ++half) {
    for (int32_t first = 0; first < call.x->rows; first += 4) {
      ++pass;
      switch (call.x->rows - first) {
        case 1:
          half_rows<Quants, Scales, 1>(call, half, first, pass, passes);
          break;
        case 2:
          half_rows<Quants, Scales, 2>(call, half, first, pass, passes);
          break;
        case 3:
          half_rows<Quants, Scales, 3>(call, half, first, pass, passes);
          break;
        default:
          half_rows<Quants, Scales, 4>(call, half, first, pass, passes);
      }
    }
  }
}

// --- float weights
// ---------------------------------------------------------------------------------------------------- Sixteen lanes
// are two vectors; a tail that does not fill them goes lane by lane.

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

// --- activations
// ------------------------------------------------------------------------------------------------------

COHORT_INLINE int32_t sum_bytes(__m128i v) {
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

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
  for (int32_t i = 0; i < call.outputs; i += 8) {
    const float* d = call.partials + i;
    __m256 y = _mm256_mul_ps(_mm256_set1_ps(call.weights[0]), _mm256_loadu_ps(d + call.places[0] * call.width));
    for (int32_t s = 1; s < call.top_k; ++s)
      y = _mm256_fmadd_ps(_mm256_set1_ps(call.weights[s]), _mm256_loadu_ps(d + call.places[s] * call.width), y);
    store_lanes(call.out + i, y, call.outputs - i);
  }
}

}  // namespace

const LinearKernels kAvx2Kernels = {
    {tile_all<Nibbles, One<kNeg8>>, tile_all<Nibbles, OneMin>, tile_all<FiveBits, One<kNeg16>>,
     tile_all<FiveBits, OneMin>, tile_all<Bytes, One<kNeg128>>, tile_all<Nibbles, KMin>, tile_all<FiveBits, KMin>,
     tile_all<SixBits, KSixteen>, tile_all<Nibbles, Wide<kNeg8Low, kNeg8High>>,
     tile_all<Bytes, Wide<kNeg128Low, kNeg128High>>, tile_all<Bytes, Two>},
    float_rows,
    quantise,
    combine};

}  // namespace cohort::cpu
