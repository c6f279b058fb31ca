// Tile kernels for AVX2.
//
// One call: 16 outputs in two halves of 8 lanes times up to 16 rows, four rows at once. Without VNNI a dot product is
// maddubs (unsigned code times signed activation, pairs summed to int16), which stays exact as long as the codes are
// small: nibbles allow all eight vectors of a block to be summed in int16 (8 * 2 * 15 * 127 = 30480), five bits four,
// six bits two; full bytes go as |w| * (x with the sign of w) one at a time (2 * 128 * 127 = 32512). Then madd with
// ones (or with an integer scale) widens to int32. Bits are those of AVX-512: the float operations per lane are the
// same. What bounds it (docs/perf/cpu.md, "An AVX2 processor"): one row, memory; from about four rows the vector ports:
// for nibbles 20 operations a row, half and block.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/tile_prefetch.h"

// As in linear_avx512.cpp: nothing that the linker could merge with other files' functions.
namespace cohort::cpu {
namespace {

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

/// Byte j / 8 of a mask that all lanes have, for byte j.
COHORT_INLINE __m256i bytes_of_bits() {
  return _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3,
                          3);
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
    const __m256i spread = bytes_of_bits();
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

/// The decoded vectors of one half of a block.
using Codes = __m256i[8];

/// Keeps the compiler from seeing where v comes from. It would add up products in another order, all of them after the
/// last multiplication, and load what does not change in a loop before it: more than the 16 registers hold.
template <class T>
COHORT_INLINE void hide(T*& v) {
  asm("" : "+r"(v));
}
COHORT_INLINE void hide(__m256i& v) {
  asm("" : "+x"(v));
}

/// Dot products of vectors kFirst .. kFirst + kVectors of kCount halves with kRows rows from q on, times `factor` of
/// each half (two int16 a lane, normally ones). A vector of codes serves all rows and an activation both halves, so
/// that loading them takes less than multiplying.
template <class Quants, int kFirst, int kVectors, int kRows, int kCount>
COHORT_INLINE void dots(const Codes* w, const int8_t* q, const __m256i* factor, __m256i (*sums)[kCount]) {
  constexpr int kGroup = Quants::kInSixteen < kVectors ? Quants::kInSixteen : kVectors;
#pragma GCC unroll 8
  for (int first = kFirst; first < kFirst + kVectors; first += kGroup) {
    __m256i pairs[kRows][kCount];
#pragma GCC unroll 8
    for (int i = first; i < first + kGroup; ++i) {
      __m256i codes[kCount], size[kCount];
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        codes[h] = w[h][i];
        size[h] = Quants::kSigned ? _mm256_abs_epi8(codes[h]) : codes[h];
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = set_four(q + r * kBlockValues + 4 * i);
#pragma GCC unroll 2
        for (int h = 0; h < kCount; ++h) {
          const __m256i product = _mm256_maddubs_epi16(size[h], Quants::kSigned ? _mm256_sign_epi8(x, codes[h]) : x);
          pairs[r][h] = i == first ? product : _mm256_add_epi16(pairs[r][h], product);
          hide(pairs[r][h]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        const __m256i sum = _mm256_madd_epi16(pairs[r][h], factor[h]);
        sums[r][h] = first == kFirst ? sum : _mm256_add_epi32(sums[r][h], sum);
        hide(sums[r][h]);
      }
    }
  }
}

template <class Quants, int kFirst, int kVectors, int kRows, int kCount>
COHORT_INLINE void dots(const Codes* w, const int8_t* q, __m256i (*sums)[kCount]) {
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i ones[kHalves] = {one, one};
  dots<Quants, kFirst, kVectors, kRows, kCount>(w, q, ones, sums);
}

/// A dot product as a float. The bias of unsigned codes comes out by adding `start`, which makes the sum the bits of a
/// float that is too large by kRealOffset (SumKind).
template <class Quants>
COHORT_INLINE __m256 real(__m256i sum, const int32_t* start) {
  if constexpr (Quants::kSigned) return _mm256_cvtepi32_ps(sum);
  return _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(sum, set_int(start))), _mm256_set1_ps(kRealOffset));
}

// --- scales: those of one half of a block; `add` is for kCount halves, kRows rows from `at` on ----------------------

/// Sums of a row, by half.
template <int kCount>
using Sums = __m256[kCount];

/// Adds the dot products of kVectors vectors of codes from kFirst on, times their scale (a member) and the row's.
template <class Quants, int kFirst, int kVectors, SumKind kStart, auto kScale, int kRows, int kCount, class Scales>
COHORT_INLINE void add_scaled(const Scales* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                              Sums<kCount>* acc) {
  __m256i t[kRows][kCount];
  dots<Quants, kFirst, kVectors, kRows, kCount>(w, q, t);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m256 dx = _mm256_set1_ps(x.d[at + r]);
#pragma GCC unroll 2
    for (int h = 0; h < kCount; ++h)
      acc[r][h] =
          _mm256_fmadd_ps(_mm256_mul_ps(s[h].*kScale, dx), real<Quants>(t[r][h], x.sums[kStart] + at + r), acc[r][h]);
  }
}

/// One scale for 2^kShift blocks.
template <SumKind kStart, int kShift = 0>
struct One {
  __m256 d;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_half(scales + 32 * (block >> kShift) + 16 * half);
  }
  template <class Quants, int kRows, int kCount, class Self>
  static COHORT_INLINE void add(const Self* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    add_scaled<Quants, 0, 8, kStart, &One::d, kRows, kCount>(s, w, q, x, at, acc);
  }
};

struct OneMin {
  __m256 d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_half(scales + 64 * block + 16 * half);
    m = load_half(scales + 64 * block + 32 + 16 * half);
  }
  template <class Quants, int kRows, int kCount>
  static COHORT_INLINE void add(const OneMin* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    __m256i t[kRows][kCount];
    dots<Quants, 0, 8, kRows, kCount>(w, q, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 dx = _mm256_set1_ps(x.d[at + r]), sum = set_float(x.sums[kSumAll] + at + r);
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].d, dx), _mm256_cvtepi32_ps(t[r][h]), acc[r][h]);
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].m, dx), sum, acc[r][h]);
      }
    }
  }
};

/// The integer scale goes into the sum where its pairs are added up: both are exact.
struct KMin {
  __m256 d, dmin, m;
  __m256i s;  // two of 16 bits, the same
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 320 * (block / 8);
    d = load_half(super + 16 * half);
    dmin = load_half(super + 32 + 16 * half);
    const __m256i scale = _mm256_cvtepu8_epi32(load_half_bytes(super + 64 + 32 * (block % 8) + 8 * half));
    s = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
    m = load_u8(super + 80 + 32 * (block % 8) + 8 * half);
  }
  template <class Quants, int kRows, int kCount>
  static COHORT_INLINE void add(const KMin* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    __m256i factor[kCount];
#pragma GCC unroll 2
    for (int h = 0; h < kCount; ++h) factor[h] = s[h].s;
    __m256i t[kRows][kCount];
    dots<Quants, 0, 8, kRows, kCount>(w, q, factor, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 dx = _mm256_set1_ps(x.d[at + r]), sum = set_float(x.sums[kSumAll] + at + r);
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].d, dx), _mm256_cvtepi32_ps(t[r][h]), acc[r][h]);
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].dmin, dx), _mm256_mul_ps(s[h].m, sum), acc[r][h]);
      }
    }
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
  template <class Quants, int kRows, int kCount, class Self>
  static COHORT_INLINE void add(const Self* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    __m256i t[kRows][kCount];
    __m256 isum[kRows][kCount];
    dots<Quants, 0, 4, kRows, kCount>(w, q, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h)
        isum[r][h] = _mm256_mul_ps(s[h].s0, real<Quants>(t[r][h], x.sums[kLow] + at + r));
    }
    dots<Quants, 4, 4, kRows, kCount>(w, q, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 dx = _mm256_set1_ps(x.d[at + r]);
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        const __m256 high = real<Quants>(t[r][h], x.sums[kHigh] + at + r);
        isum[r][h] = _mm256_fmadd_ps(s[h].s1, high, isum[r][h]);  // exact
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].d, dx), isum[r][h], acc[r][h]);
      }
    }
  }
};

struct Affine {
  __m256 d, m;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d = load_float(scales + 128 * block + 32 * half);
    m = load_float(scales + 128 * block + 64 + 32 * half);
  }
  template <class Quants, int kRows, int kCount>
  static COHORT_INLINE void add(const Affine* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    OneMin both[kCount];
#pragma GCC unroll 2
    for (int h = 0; h < kCount; ++h) {
      both[h].d = s[h].d;
      both[h].m = s[h].m;
    }
    static_assert(Quants::kSigned);  // so that no bias is to be taken out
    OneMin::add<Quants, kRows, kCount>(both, w, q, x, at, acc);
  }
};

/// What the formats with one integer scale for a block share.
template <SumKind kStart>
struct IntScale {
  __m256 d, s;
  template <class Quants, int kRows, int kCount, class Self>
  static COHORT_INLINE void add(const Self* scales, const Codes* w, const int8_t* q, const ActivationChunk& x,
                                int64_t at, Sums<kCount>* acc) {
    __m256i t[kRows][kCount];
    dots<Quants, 0, 8, kRows, kCount>(w, q, t);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 dx = _mm256_set1_ps(x.d[at + r]);
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        const __m256 dot = real<Quants>(t[r][h], x.sums[kStart] + at + r);
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(scales[h].d, dx), _mm256_mul_ps(scales[h].s, dot), acc[r][h]);
      }
    }
  }
};

// --- the walk over K -------------------------------------------------------------------------------------------------

COHORT_INLINE void store_lanes(float* out, __m256 v, int32_t lanes) {
  if (lanes >= 8) {
    _mm256_storeu_ps(out, v);
    return;
  }
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  _mm256_maskstore_ps(out, _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), index), v);
}

/// A block of a tile: decodes it once and adds it to the sums of all rows.
template <class Quants, class Scales>
class BlockAdder {
 public:
  explicit BlockAdder(const TileCall& call)
      : scales_(call.tile), quants_(call.tile + call.shape->scale_bytes), x_(*call.x) {}

  /// Few rows keep all of a half in registers.
  template <int kRows>
  COHORT_INLINE void add_few(int64_t block, Sums<kHalves>* acc) const {
    const int64_t at = block * kRows;
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      Codes w;
      Scales s;
      decoder_.decode(quants_ + block * Quants::kBytes, h, w);
      s.load(scales_, block, h);
      Sums<1> half[kRows];
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) half[r][0] = acc[r][h];
      Scales::template add<Quants, kRows, 1>(&s, &w, x_.q + at * kBlockValues, x_, at, half);
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) acc[r][h] = half[r][0];
    }
  }

  /// Any number of rows, four at a time.
  COHORT_INLINE void add(int64_t block, Sums<kHalves>* acc) const {
    Codes both[kHalves];
    Scales loaded[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      decoder_.decode(quants_ + block * Quants::kBytes, h, both[h]);
      loaded[h].load(scales_, block, h);
    }
    const Codes* w = both;
    const Scales* s = loaded;
    int32_t left = x_.rows;
    int64_t at = block * left;
    const auto rows = [&]<int kRows>() __attribute__((always_inline)) {
      Scales::template add<Quants, kRows, kHalves>(s, w, x_.q + at * kBlockValues, x_, at, acc);
    };
    for (; left >= 4; left -= 4, at += 4, acc += 4) {
      hide(s);
      hide(w);
      rows.template operator()<4>();
    }
    if (left == 1) rows.template operator()<1>();
    if (left == 2) rows.template operator()<2>();
    if (left == 3) rows.template operator()<3>();
  }

 private:
  const Quants decoder_{};
  const std::byte *scales_, *quants_;
  const ActivationChunk& x_;
};

/// One pass over the tile. kFew: how many rows, or 0 for any number.
template <class Quants, class Scales, int kFew>
void tile_rows(const TileCall& call) {
  constexpr int kMost = kFew > 0 ? kFew : kChunkRows;
  const int32_t per_segment = call.shape->blocks / call.shape->segments, rows = kFew > 0 ? kFew : call.x->rows;
  Sums<kHalves> waiting[6][kMost];  // finished segments, as the carries of a binary counter
  // A block of quants and its scales: that many lines.
  TilePrefetcher<3, static_cast<int>(Quants::kBytes / 64 + 1)> prefetcher(call);
  const BlockAdder<Quants, Scales> adder(call);
  int64_t block = 0;
  for (int32_t segment = 0; segment < call.shape->segments; ++segment) {
    Sums<kHalves> acc[kMost];
    for (int32_t r = 0; r < rows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int32_t i = 0; i < per_segment; ++i, ++block) {
      prefetcher.advance();
      if constexpr (kFew > 0) {
        adder.template add_few<kFew>(block, acc);
      } else {
        adder.add(block, acc);
      }
    }
    int level = 0;
    for (int32_t carry = segment; (carry & 1) != 0; carry >>= 1, ++level) {
      for (int32_t r = 0; r < rows; ++r) {
        acc[r][0] = _mm256_add_ps(waiting[level][r][0], acc[r][0]);
        acc[r][1] = _mm256_add_ps(waiting[level][r][1], acc[r][1]);
      }
    }
    for (int32_t r = 0; r < rows; ++r) {
      waiting[level][r][0] = acc[r][0];
      waiting[level][r][1] = acc[r][1];
    }
  }
  const Sums<kHalves>* top = waiting[__builtin_ctz(static_cast<unsigned>(call.shape->segments))];
  for (int32_t r = 0; r < rows; ++r) {
    store_lanes(call.out + r * call.out_stride, top[r][0], call.outputs);
    if (call.outputs > 8) store_lanes(call.out + r * call.out_stride + 8, top[r][1], call.outputs - 8);
  }
}

template <class Quants, class Scales>
void tile_all(const TileCall& call) {
  if (call.x->rows == 1) return tile_rows<Quants, Scales, 1>(call);
  if (call.x->rows == 2) return tile_rows<Quants, Scales, 2>(call);
  tile_rows<Quants, Scales, 0>(call);
}

}  // namespace
}  // namespace cohort::cpu
