// Tile kernels for AVX2 of the formats of one to four bits that decode by shifts or one table of 16. Stores and scales
// are in layout_lowbit.h and layout.h.
#include "kernels/cpu/linear_avx2_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {
namespace {

// --- quants ----------------------------------------------------------------------------------------------------------

struct OneBit {
  static constexpr int64_t kBytes = 64;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i two = _mm256_set1_epi8(2), v = load_bytes(p + 32 * half);
    w[0] = _mm256_and_si256(_mm256_add_epi8(v, v), two);
    w[1] = _mm256_and_si256(v, two);
#pragma GCC unroll 6
    for (int i = 2; i < 8; ++i) w[i] = _mm256_and_si256(_mm256_srli_epi16(v, i - 1), two);
  }
};

struct TwoBits {
  static constexpr int64_t kBytes = 128;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i three = _mm256_set1_epi8(3);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i v = load_bytes(p + 64 * h + 32 * half);
      w[4 * h] = _mm256_and_si256(v, three);
#pragma GCC unroll 3
      for (int c = 1; c < 4; ++c) w[4 * h + c] = _mm256_and_si256(_mm256_srli_epi16(v, 2 * c), three);
    }
  }
};

struct ThreeBits {
  static constexpr int64_t kBytes = 192;
  static constexpr int kInSixteen = 8;
  static constexpr bool kSigned = false;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i four = _mm256_set1_epi8(4), high = load_bytes(p + 128 + 32 * half);
    TwoBits::decode(p, half, w);
    const auto merge = [four](__m256i low, __m256i shifted) {
      return _mm256_or_si256(low, _mm256_and_si256(shifted, four));
    };
    w[0] = merge(w[0], _mm256_slli_epi16(high, 2));
    w[1] = merge(w[1], _mm256_slli_epi16(high, 1));
    w[2] = merge(w[2], high);
#pragma GCC unroll 5
    for (int i = 3; i < 8; ++i) w[i] = merge(w[i], _mm256_srli_epi16(high, i - 2));
  }
};

/// Nibbles that index a table of 16 codes.
template <class Table>
struct TableNibbles {
  static constexpr int64_t kBytes = 256;
  static constexpr int kInSixteen = Table::kInSixteen;
  static constexpr bool kSigned = Table::kSigned;
  static COHORT_INLINE void decode(const std::byte* p, int half, __m256i* w) {
    const __m256i table = _mm256_broadcastsi128_si256(Table::values());
    Nibbles::decode(p, half, w);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = _mm256_shuffle_epi8(table, w[i]);
  }
};
struct Iq4Table {  // quant::iq4_values
  static constexpr int kInSixteen = 1;
  static constexpr bool kSigned = true;
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  }
};
struct Fp4Table {  // quant::fp4_values + 16: 4 * 2 * 28 * 127 fits into 16 bits
  static constexpr int kInSixteen = 4;
  static constexpr bool kSigned = false;
  static COHORT_INLINE __m128i values() {
    return _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

COHORT_INLINE __m256i load_u8_int(const std::byte* p) {
  return _mm256_cvtepu8_epi32(load_half_bytes(p));
}

/// Sums of 16 codes of two bits fit into 16 bits, so one madd adds them up and applies their scale.
struct KPairs {
  __m256 d, dmin;
  __m256i s0, s1, m;  // two of 16 bits; s0 and s1 twice the same
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 320 * (block / 8);
    const std::byte* at = super + 64 + 32 * (block % 8) + 16 * half;
    const __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    d = load_half(super + 16 * half);
    dmin = load_half(super + 32 + 16 * half);
    const __m256i s = _mm256_and_si256(both, _mm256_set1_epi16(15));
    s0 = twice<0>(s);
    s1 = twice<2>(s);
    m = _mm256_srli_epi16(both, 4);
  }
  template <int kByte>
  static COHORT_INLINE __m256i twice(__m256i v) {
    constexpr char a = kByte, b = kByte + 1;
    const __m128i places = _mm_setr_epi8(a, b, a, b, a + 4, b + 4, a + 4, b + 4, a + 8, b + 8, a + 8, b + 8, a + 12,
                                         b + 12, a + 12, b + 12);
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(places));
  }
  template <class Quants, int kRows, int kCount>
  static COHORT_INLINE void add(const KPairs* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    __m256i first[kCount], last[kCount];
#pragma GCC unroll 2
    for (int h = 0; h < kCount; ++h) {
      first[h] = s[h].s0;
      last[h] = s[h].s1;
    }
    __m256i low[kRows][kCount], high[kRows][kCount];
    dots<Quants, 0, 4, kRows, kCount>(w, q, first, low);
    dots<Quants, 4, 4, kRows, kCount>(w, q, last, high);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 dx = _mm256_set1_ps(x.d[at + r]);
      const __m256i pair = set_int(x.sums[kSumPair] + at + r);
#pragma GCC unroll 2
      for (int h = 0; h < kCount; ++h) {
        const __m256 isum = _mm256_cvtepi32_ps(_mm256_add_epi32(low[r][h], high[r][h]));
        const __m256 msum = _mm256_cvtepi32_ps(_mm256_madd_epi16(s[h].m, pair));
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].d, dx), isum, acc[r][h]);
        acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(s[h].dmin, dx), msum, acc[r][h]);
      }
    }
  }
};

struct KOne : IntScale<kNeg128> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const std::byte* super = scales + 160 * (block / 8);
    d = load_half(super + 16 * half);
    s = load_i8(super + 32 + 16 * (block % 8) + 8 * half);
  }
};

struct E8m0 : One<kNeg16> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    const __m256i e = load_u8_int(scales + 16 * block + 8 * half);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    d = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }
};

struct E4m3Two {
  __m256 d0, d1;
  /// The seven bits of E4M3 are an f16 that is 2^8 times too small.
  static COHORT_INLINE __m256 half_of(const std::byte* p) {
    const __m128i halves = _mm_slli_epi16(_mm_cvtepu8_epi16(load_half_bytes(p)), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p7F));
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int half) {
    d0 = half_of(scales + 32 * block + 8 * half);
    d1 = half_of(scales + 32 * block + 16 + 8 * half);
  }
  template <class Quants, int kRows, int kCount>
  static COHORT_INLINE void add(const E4m3Two* s, const Codes* w, const int8_t* q, const ActivationChunk& x, int64_t at,
                                Sums<kCount>* acc) {
    add_scaled<Quants, 0, 4, kNeg16Low, &E4m3Two::d0, kRows, kCount>(s, w, q, x, at, acc);
    add_scaled<Quants, 4, 4, kNeg16High, &E4m3Two::d1, kRows, kCount>(s, w, q, x, at, acc);
  }
};

}  // namespace

constinit const TileKernel kAvx2LowbitTiles[kLowbitLayouts] = {tile_all<OneBit, One<kNeg1, 2>>,
                                                               tile_all<TwoBits, One<kNeg1, 1>>,
                                                               tile_all<TwoBits, One<kNeg1, 2>>,
                                                               tile_all<TwoBits, One<kNeg1, 3>>,
                                                               tile_all<TwoBits, KPairs>,
                                                               tile_all<ThreeBits, KSixteen<kNeg4Low, kNeg4High>>,
                                                               tile_all<TableNibbles<Iq4Table>, One<kNeg128>>,
                                                               tile_all<TableNibbles<Iq4Table>, KOne>,
                                                               tile_all<TableNibbles<Fp4Table>, E8m0>,
                                                               tile_all<TableNibbles<Fp4Table>, E4m3Two>};

}  // namespace cohort::cpu
