// Tile kernels for AVX2.
//
// One call: 16 outputs in two halves of 8 lanes times up to 16 rows, four rows at once. Without VNNI a dot product is
// maddubs (unsigned code times signed activation, pairs summed to int16), which stays exact as long as the codes are
// small: nibbles allow all eight vectors of a block to be summed in int16 (8 * 2 * 15 * 127 = 30480), five bits four,
// six bits two; full bytes go as |w| * (x with the sign of w) one at a time (2 * 128 * 127 = 32512). Then madd with
// ones widens to int32. Bits are those of AVX-512: the float operations per lane are the same. What bounds it: one row,
// memory; from about four rows the two vector ports (17 operations a row, half and block).
#pragma once

#include <immintrin.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile_prefetch.h"

// As in linear_avx512.cpp: nothing that the linker could merge with other files' functions.
namespace cohort::cpu {
namespace {

constexpr int kHalves = 2;  // of 8 outputs

/// Quants with kOrder decode to an order of ActivationChunk other than that of q.
enum class Order { plain, transposed, strided };

template <class Quants>
COHORT_INLINE const int8_t* activations_for(const ActivationChunk& x) {
  if constexpr (requires { Quants::kOrder; }) return Quants::kOrder == Order::strided ? x.strided : x.transposed;
  return x.q;
}

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

/// The dot product of kVectors vectors with a row's activations, plus `start` where codes are biased, as the bits of a
/// float that is too large by kRealOffset (SumKind).
template <class Quants, int kVectors>
COHORT_INLINE __m256i dots(const int32_t* start, const __m256i* w, const int8_t* q) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i t = Quants::kSigned || start == nullptr ? _mm256_set1_epi32(kRealBits) : set_int(start);
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

COHORT_INLINE __m256 to_float(__m256i dot) {
  return _mm256_sub_ps(_mm256_castsi256_ps(dot), _mm256_set1_ps(kRealOffset));
}

// --- scales: as in linear_avx512.cpp, for one half -------------------------------------------------------------------

/// One scale for 2^kShift blocks.
template <SumKind kStart, int kShift = 0>
struct One {
  __m256 d;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_half(scales + 32 * (block >> kShift) + 16 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i t = dots<Quants, 8>(x.sums[kStart] + at, w, q);
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[at])), to_float(t), acc);
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
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), to_float(t), acc);
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
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_mul_ps(s, to_float(t)), acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_mul_ps(m, set_float(x.sums[kSumAll] + at)), acc);
  }
};

template <SumKind kLow, SumKind kHigh>
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
    const __m256 low = to_float(dots<Quants, 4>(x.sums[kLow] + at, w, q));
    const __m256 high = to_float(dots<Quants, 4>(x.sums[kHigh] + at, w + 4, q + 16));
    const __m256 isum = _mm256_fmadd_ps(s1, high, _mm256_mul_ps(s0, low));  // exact
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x.d[at])), isum, acc);
  }
};

struct Affine {
  __m256 d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_float(scales + 128 * block + 32 * half);
    m = load_float(scales + 128 * block + 64 + 32 * half);
  }
  template <class Quants>
  COHORT_INLINE __m256 add(__m256 acc, const __m256i* w, const int8_t* q, const ActivationChunk& x, int64_t at) const {
    const __m256i t = dots<Quants, 8>(x.sums[kNeg128] + at, w, q);
    const __m256 dx = _mm256_set1_ps(x.d[at]);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), to_float(t), acc);
    return _mm256_fmadd_ps(_mm256_mul_ps(m, dx), set_float(x.sums[kSumAll] + at), acc);
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
  TilePrefetcher<> prefetcher(call, pass, passes);
  const Quants decoder;
  const int8_t* activations = activations_for<Quants>(x);
  int64_t block = 0;
  for (int32_t segment = 0; segment < shape.segments; ++segment) {
    __m256 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm256_setzero_ps();
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      prefetcher.advance();
      __m256i w[8];
      decoder.decode(quants + block * Quants::kBytes, half, w);
      Scales s;
      s.load(call.tile, block, half);
      const int64_t at = block * x.rows + first;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        acc[r] = s.template add<Quants>(acc[r], w, activations + (at + r) * kBlockValues, x, at + r);
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

}  // namespace
}  // namespace cohort::cpu
