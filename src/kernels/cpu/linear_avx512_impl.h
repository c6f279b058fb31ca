// Decoding of packed blocks and application of their scales with AVX-512, shared by the VNNI and AMX kernels.
// Everything is in an anonymous namespace and inlined: no function compiled for AVX-512 may be merged by the linker
// with one that other files share.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/kernels.h"

namespace cohort::cpu {
namespace {

COHORT_INLINE __m512 load_half(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
COHORT_INLINE __m512 load_u8(const std::byte* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
COHORT_INLINE __m512 load_i8(const std::byte* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
COHORT_INLINE __m512 load_i16(const std::byte* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
COHORT_INLINE __m512i load_bytes(const std::byte* p) {
  return _mm512_loadu_si512(p);
}
COHORT_INLINE __m512i set_int(const int32_t* p) {
  return _mm512_set1_epi32(*p);
}
COHORT_INLINE __m512 set_float(const int32_t* p) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(*p));
}

// --- quants: the eight vectors of a block -----------------------------------------------------------------------
// One with kOrder decodes to an order of ActivationChunk other than that of q.

enum class Order { plain, transposed, strided };

template <class Quants>
COHORT_INLINE const int8_t* activations_for(const ActivationChunk& x) {
  if constexpr (requires { Quants::kOrder; }) return Quants::kOrder == Order::strided ? x.strided : x.transposed;
  return x.q;
}

struct Nibbles {
  static constexpr int64_t kBytes = 256;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i v = load_bytes(p + 64 * i);
      w[i] = _mm512_and_si512(v, low);
#ifdef __GFNI__
      // A product with a matrix of bits that moves the upper four down and drops the others.
      w[i + 4] = _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(0x1020408000000000), 0);
#else
      w[i + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
#endif
    }
  }
};

struct FiveBits {
  static constexpr int64_t kBytes = 320;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    Nibbles::decode(p, w);
    const __m512i sixteen = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __mmask64 high = _load_mask64(reinterpret_cast<__mmask64*>(const_cast<std::byte*>(p + 256 + 8 * i)));
      w[i] = _mm512_mask_add_epi8(w[i], high, w[i], sixteen);
    }
  }
};

struct SixBits {
  static constexpr int64_t kBytes = 384;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
    Nibbles::decode(p, w);
    const __m512i mask = _mm512_set1_epi8(0x30);
    const auto merge = [mask](__m512i nibble, __m512i shifted) {
      return _mm512_ternarylogic_epi32(nibble, shifted, mask, 0xf8);  // nibble | (shifted & mask)
    };
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i v = load_bytes(p + 256 + 64 * h);
      w[4 * h] = merge(w[4 * h], _mm512_slli_epi16(v, 4));
      w[4 * h + 1] = merge(w[4 * h + 1], _mm512_slli_epi16(v, 2));
      w[4 * h + 2] = merge(w[4 * h + 2], v);
      w[4 * h + 3] = merge(w[4 * h + 3], _mm512_srli_epi16(v, 2));
    }
  }
};

struct Bytes {
  static constexpr int64_t kBytes = 512;
  static COHORT_INLINE void decode(const std::byte* p, __m512i* w) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = load_bytes(p + 64 * i);
  }
};

// --- scales -----------------------------------------------------------------------------------------------------
// kBytes: of a block's scales. load() once a block, after open() once in kPeriod blocks; finish() adds a row's exact
// dot products to its accumulator. kHalves: the dot products of values 0-15 and 16-31 come separately. kStart,
// kStartHigh: the sums that take the bias of the codes out, or kNoSum. `at` indexes d and the sums of the row: block *
// rows + row. kReal: the dot products are the bits of floats that are too large by kRealOffset, else they are plain
// integers.

inline constexpr auto kNoSum = static_cast<SumKind>(kSumKinds);

template <bool kReal>
COHORT_INLINE __m512 to_float(__m512i dot) {
  if constexpr (!kReal) return _mm512_cvtepi32_ps(dot);
  return _mm512_sub_ps(_mm512_castsi512_ps(dot), _mm512_set1_ps(kRealOffset));
}

/// An integer scale and what it makes of kRealOffset: products with dot products are below 2^24 and therefore exact.
struct ExactScale {
  __m512 s, offset;
  COHORT_INLINE void set(__m512 scale) {
    s = scale;
    offset = _mm512_mul_ps(scale, _mm512_set1_ps(kRealOffset));
  }
  template <bool kReal>
  COHORT_INLINE __m512 times(__m512i dot) const {
    if constexpr (!kReal) return _mm512_mul_ps(s, _mm512_cvtepi32_ps(dot));
    return _mm512_fmsub_ps(s, _mm512_castsi512_ps(dot), offset);
  }
};

/// One scale for 2^kShift blocks.
template <SumKind kBias, int kShift = 0>
struct One {
  static constexpr bool kHalves = false;
  static constexpr SumKind kStart = kBias, kStartHigh = kNoSum;
  static constexpr int64_t kBytes = 32 >> kShift;
  static constexpr int64_t kPeriod = int64_t{1} << kShift;
  __m512 d;
  COHORT_INLINE void open(const std::byte* scales, int64_t part) { d = load_half(scales + 32 * part); }
  COHORT_INLINE void load(const std::byte*, int64_t) {}
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.d[at])), to_float<kReal>(dot), acc);
  }
};

struct OneMin {
  static constexpr bool kHalves = false;
  static constexpr int64_t kBytes = 64;
  static constexpr SumKind kStart = kNoSum, kStartHigh = kNoSum;
  static constexpr int64_t kPeriod = 1;
  __m512 d, m;
  COHORT_INLINE void open(const std::byte* scales, int64_t block) {
    d = load_half(scales + 64 * block);
    m = load_half(scales + 64 * block + 32);
  }
  COHORT_INLINE void load(const std::byte*, int64_t) {}
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), to_float<kReal>(dot), acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(m, dx), set_float(x.sums[kSumAll] + at), acc);
  }
};

struct KMin {
  static constexpr bool kHalves = false;
  static constexpr int64_t kBytes = 40;
  static constexpr SumKind kStart = kNoSum, kStartHigh = kNoSum;
  static constexpr int64_t kPeriod = 8;
  __m512 d, dmin, m;
  ExactScale s;
  COHORT_INLINE void open(const std::byte* scales, int64_t super) {
    d = load_half(scales + 320 * super);
    dmin = load_half(scales + 320 * super + 32);
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 320 * (block / 8);
    s.set(load_u8(super + 64 + 32 * (block % 8)));
    m = load_u8(super + 80 + 32 * (block % 8));
  }
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), s.times<kReal>(dot), acc);
    // m * sum is exact, too.
    return _mm512_fmadd_ps(_mm512_mul_ps(dmin, dx), _mm512_mul_ps(m, set_float(x.sums[kSumAll] + at)), acc);
  }
};

/// What formats with an integer scale for each half of a block share.
template <SumKind kLow, SumKind kHigh>
struct TwoScales {
  static constexpr bool kHalves = true;
  static constexpr SumKind kStart = kLow, kStartHigh = kHigh;
  static constexpr int64_t kPeriod = 8;
  __m512 d, s1;
  ExactScale s0;
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i low, __m512i high, const ActivationChunk& x, int64_t at) const {
    const __m512 isum = _mm512_fmadd_ps(s1, to_float<kReal>(high), s0.template times<kReal>(low));  // exact
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x.d[at])), isum, acc);
  }
};

template <SumKind kLow, SumKind kHigh>
struct KSixteen : TwoScales<kLow, kHigh> {
  static constexpr int64_t kBytes = 36;
  COHORT_INLINE void open(const std::byte* scales, int64_t super) { this->d = load_half(scales + 288 * super); }
  COHORT_INLINE void load(const std::byte* scales, int64_t block) {
    const std::byte* super = scales + 288 * (block / 8);
    this->s0.set(load_i8(super + 32 + 32 * (block % 8)));
    this->s1 = load_i8(super + 48 + 32 * (block % 8));
  }
};

struct Affine {
  static constexpr bool kHalves = false;
  static constexpr int64_t kBytes = 128;
  static constexpr SumKind kStart = kNeg128, kStartHigh = kNoSum;
  static constexpr int64_t kPeriod = 1;
  __m512 d, m;
  COHORT_INLINE void open(const std::byte* scales, int64_t block) {
    d = _mm512_loadu_ps(scales + 128 * block);
    m = _mm512_loadu_ps(scales + 128 * block + 64);
  }
  COHORT_INLINE void load(const std::byte*, int64_t) {}
  template <bool kReal>
  COHORT_INLINE __m512 finish(__m512 acc, __m512i dot, __m512i, const ActivationChunk& x, int64_t at) const {
    const __m512 dx = _mm512_set1_ps(x.d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), to_float<kReal>(dot), acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(m, dx), set_float(x.sums[kSumAll] + at), acc);
  }
};

/// Block `block`, which may be the first that is read.
template <class Scales>
COHORT_INLINE void load_scales(Scales& s, const std::byte* scales, int64_t block, bool first) {
  if (first || block % Scales::kPeriod == 0) s.open(scales, block / Scales::kPeriod);
  s.load(scales, block);
}

}  // namespace
}  // namespace cohort::cpu
