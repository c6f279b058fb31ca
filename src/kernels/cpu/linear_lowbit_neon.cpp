// Tile kernels for NEON of the formats of one to four bits. There are no gathers: entries of code
// books are loaded one by one, everything after that is done for sixteen values at once.
#include "kernels/cpu/grid_numbers.h"
#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/layout_lowbit.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/linear_neon_tile.h"

namespace cohort::cpu {
namespace {

// --- quants ----------------------------------------------------------------------------------------------------------

struct OneBit {
  static constexpr int64_t kBytes = 64;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    const uint8x16_t v = vld1q_u8(bytes_at(p + 16 * quarter));
    for (int i = 0; i < 8; ++i) w[i] = vandq_u8(vshlq_u8(v, vdupq_n_s8(static_cast<int8_t>(1 - i))), vdupq_n_u8(2));
  }
};

struct TwoBits {
  static constexpr int64_t kBytes = 128;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    for (int h = 0; h < 2; ++h) {
      const uint8x16_t v = vld1q_u8(bytes_at(p + 64 * h + 16 * quarter));
      for (int c = 0; c < 4; ++c)
        w[4 * h + c] = vandq_u8(vshlq_u8(v, vdupq_n_s8(static_cast<int8_t>(-2 * c))), vdupq_n_u8(3));
    }
  }
};

struct ThreeBits {
  static constexpr int64_t kBytes = 192;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    TwoBits::decode(p, quarter, w);
    const uint8x16_t v = vld1q_u8(bytes_at(p + 128 + 16 * quarter));
    for (int i = 0; i < 8; ++i) {
      const uint8x16_t shifted = vshlq_u8(v, vdupq_n_s8(static_cast<int8_t>(2 - i)));
      w[i] = vorrq_u8(w[i], vandq_u8(shifted, vdupq_n_u8(4)));
    }
  }
};

/// Nibbles that index 16 codes, given with the bias.
template <class Table>
struct TableNibbles {
  static constexpr int64_t kBytes = 256;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    const uint8x16_t table = Table::values();
    Nibbles::decode(p, quarter, w);
    for (int i = 0; i < 8; ++i) w[i] = vqtbl1q_u8(table, w[i]);
  }
};
struct Iq4Table {  // quant::iq4_values + 128
  static COHORT_INLINE uint8x16_t values() {
    return uint8x16_t{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
  }
};
struct Fp4Table {  // quant::fp4_values + 16
  static COHORT_INLINE uint8x16_t values() {
    return uint8x16_t{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
  }
};

/// Where decoding finds each byte of a vector: constants of a code book.
template <Layout kLayout>
struct GridPlaces {
  static constexpr bool kFours = layout_info(kLayout).quants == QuantStore::fours;
  static constexpr bool kShifted = kLayout == Layout::iq1_s || kLayout == Layout::iq1_m;
  uint8_t byte[8][16];       // of the four outputs' entries
  int8_t shift[8][16];       // that brings the code down
  uint8_t sign_byte[8][16];  // of the four outputs' signs
  int8_t sign_shift[8][16];  // that brings the sign to bit 3

  constexpr GridPlaces() : byte{}, shift{}, sign_byte{}, sign_shift{} {
    constexpr int kEights[4] = {0, 4, 2, 6}, kNibble[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (int i = 0; i < 8; ++i) {
      for (int at = 0; at < 16; ++at) {
        const int value = 4 * i + at % 4, in_group = value % (kFours ? 4 : 8);
        const int place = kLayout == Layout::iq2_xxs ? pair_place(in_group) : in_group;
        const int bit = kFours ? 4 * in_group : kShifted ? 4 * kNibble[in_group] : 8 * (place / 4) + kEights[place % 4];
        byte[i][at] = static_cast<uint8_t>(at / 4 * 4 + bit / 8);
        shift[i][at] = static_cast<int8_t>(-(bit % 8));
        if (kShifted) continue;
        const int sign = sign_place(kLayout, value);
        sign_byte[i][at] = static_cast<uint8_t>(at / 4 * 4 + sign / 8);
        sign_shift[i][at] = static_cast<int8_t>(3 - sign % 8);
      }
    }
  }
};

/// A code book, in the order of the values: entries are loaded one by one, their codes and signs are cut out and turned
/// into bytes sixteen at a time.
template <Layout kLayout>
struct Grid {
  using Places = GridPlaces<kLayout>;
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static constexpr Places kPlaces{};
  static constexpr int kGroups = Places::kFours ? 8 : 4;

  /// The index of group k of an output.
  static COHORT_INLINE uint32_t index_of(const uint8_t* p, int lane, int k) {
    if constexpr (Places::kFours) {
      const uint32_t low = p[64 * (k / 4) + 4 * lane + k % 4];
      if constexpr (kLayout != Layout::iq3_s) return low;
      const int bit = 4 * lane + k % 4;
      return low | ((p[192 + 8 * (k / 4) + bit / 8] >> (bit % 8)) & 1U) << 8;
    } else {
      const int place = group_place(kLayout, k);
      const uint32_t low = p[4 * lane + place];
      const int bit = 4 * lane + place;
      if constexpr (kLayout == Layout::iq2_xxs) return low | ((p[64 + bit] >> kNinthBit) & 1U) << 8;
      if constexpr (Places::kShifted) return low | ((p[64 + bit / 2] >> (4 * (bit % 2))) & 15U) << 8;
      if constexpr (kLayout == Layout::iq2_s) return low | ((p[128 + lane] >> (2 * place)) & 3U) << 8;
      return low | ((p[128 + bit / 8] >> (bit % 8)) & 1U) << 8;
    }
  }

  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    const GridTable& table = grid_table(kLayout);
    const uint8_t* bytes = bytes_at(p);
    alignas(16) uint32_t entries[kGroups][4];
    for (int k = 0; k < kGroups; ++k) {
      for (int lane = 0; lane < 4; ++lane) entries[k][lane] = table.words[index_of(bytes, 4 * quarter + lane, k)];
    }
    const uint8x16_t values = vld1q_u8(table.nibble_values);
    const uint8x16_t mask = vdupq_n_u8(Places::kFours ? 7 : Places::kShifted ? 15 : 3);
    uint8x16_t signs = vdupq_n_u8(0);
    if constexpr (!Places::kShifted) signs = vld1q_u8(bytes + (Places::kFours ? 128 : 64) + 16 * quarter);
    if constexpr (kLayout == Layout::iq2_xxs) {  // the missing sign makes the parity even
      const uint8x16_t odd = vandq_u8(vcntq_u8(signs), vdupq_n_u8(1));
      signs = veorq_u8(signs, vshlq_n_u8(odd, kNinthBit));
    }
    for (int i = 0; i < 8; ++i) {
      const uint8x16_t group = vreinterpretq_u8_u32(vld1q_u32(entries[i * kGroups / 8]));
      uint8x16_t nibble = vqtbl1q_u8(group, vld1q_u8(kPlaces.byte[i]));
      nibble = vandq_u8(vshlq_u8(nibble, vld1q_s8(kPlaces.shift[i])), mask);
      if constexpr (!Places::kShifted) {
        const uint8x16_t sign = vqtbl1q_u8(signs, vld1q_u8(kPlaces.sign_byte[i]));
        nibble = vorrq_u8(nibble, vandq_u8(vshlq_u8(sign, vld1q_s8(kPlaces.sign_shift[i])), vdupq_n_u8(8)));
      }
      w[i] = vqtbl1q_u8(values, nibble);
    }
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

COHORT_INLINE uint32x4_t load_u8_int(const std::byte* p) {
  return vmovl_u16(vget_low_u16(vmovl_u8(load_four(p))));
}

struct KPairs {
  float32x4_t d, dmin, s0, s1, m0, m1;
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 320 * (block / 8);
    // Both halves of an output, as two of 16 bits.
    const uint16x8_t both = vmovl_u8(vld1_u8(bytes_at(super + 64 + 32 * (block % 8) + 8 * quarter)));
    const uint32x4_t pairs = vreinterpretq_u32_u16(both);
    const uint32x4_t p0 = vandq_u32(pairs, vdupq_n_u32(0xffff)), p1 = vshrq_n_u32(pairs, 16);
    d = load_half(super + 8 * quarter);
    dmin = load_half(super + 32 + 8 * quarter);
    s0 = vcvtq_f32_u32(vandq_u32(p0, vdupq_n_u32(15)));
    s1 = vcvtq_f32_u32(vandq_u32(p1, vdupq_n_u32(15)));
    m0 = vcvtq_f32_u32(vshrq_n_u32(p0, 4));
    m1 = vcvtq_f32_u32(vshrq_n_u32(p1, 4));
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    const float32x4_t isum = vfmaq_f32(vmulq_f32(s0, vcvtq_f32_s32(low)), s1, vcvtq_f32_s32(high));  // exact
    const int32_t sums = x.sums[kSumPair][at];
    const float32x4_t msum = vfmaq_n_f32(vmulq_n_f32(m0, static_cast<float>(static_cast<int16_t>(sums))), m1,
                                         static_cast<float>(sums >> 16));
    acc = vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), isum);
    return vfmaq_f32(acc, vmulq_n_f32(dmin, x.d[at]), msum);
  }
};

/// What the formats with one integer scale for a block share.
struct IntScale {
  float32x4_t d, s;
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    return vfmaq_f32(acc, vmulq_n_f32(d, x.d[at]), vmulq_f32(s, vcvtq_f32_s32(vaddq_s32(low, high))));
  }
};

struct KOne : IntScale {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 160 * (block / 8);
    d = load_half(super + 8 * quarter);
    s = load_i8(super + 32 + 16 * (block % 8) + 4 * quarter);
  }
};

constexpr float power_of_two(int exponent) {
  return exponent < 0 ? 1.0F / static_cast<float>(1 << -exponent) : static_cast<float>(1 << exponent);
}

/// 2 s + 1 of the four bits from `shift` on of each word.
COHORT_INLINE float32x4_t odd_scale(const std::byte* words, int64_t shift) {
  const uint32x4_t all = vreinterpretq_u32_u8(vld1q_u8(bytes_at(words)));
  const uint32x4_t s = vandq_u32(vshlq_u32(all, vdupq_n_s32(static_cast<int32_t>(-shift))), vdupq_n_u32(15));
  return vcvtq_f32_u32(vaddq_u32(vaddq_u32(s, s), vdupq_n_u32(1)));
}

template <int kExponent>
struct OddOne : IntScale {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 96 * (block / 8);
    d = vmulq_n_f32(load_half(super + 8 * quarter), power_of_two(kExponent));
    s = odd_scale(super + 32 + 16 * quarter, 4 * (block % 8));
  }
};

template <int kExponent>
struct OddTwo : KSixteen {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const std::byte* super = scales + 160 * (block / 8);
    const std::byte* words = super + 32 + 64 * (block % 8 / 4) + 16 * quarter;
    d = vmulq_n_f32(load_half(super + 8 * quarter), power_of_two(kExponent));
    s0 = odd_scale(words, 8 * (block % 4));
    s1 = odd_scale(words, 8 * (block % 4) + 4);
  }
};

struct E8m0 : One<> {
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    const uint32x4_t e = load_u8_int(scales + 16 * block + 4 * quarter);
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    d = vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, normal));
  }
};

struct E4m3Two {
  float32x4_t d0, d1;
  /// The seven bits of E4M3 are an f16 that is 2^8 times too small.
  static COHORT_INLINE float32x4_t half_of(const std::byte* p) {
    const uint16x4_t bits = vshl_n_u16(vget_low_u16(vmovl_u8(load_four(p))), 7);
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(bits)), 0x1p7F);
  }
  COHORT_INLINE void load(const std::byte* scales, int64_t block, int quarter) {
    d0 = half_of(scales + 32 * block + 4 * quarter);
    d1 = half_of(scales + 32 * block + 16 + 4 * quarter);
  }
  COHORT_INLINE float32x4_t finish(float32x4_t acc, int32x4_t low, int32x4_t high, const ActivationChunk& x,
                                   int64_t at) const {
    acc = vfmaq_f32(acc, vmulq_n_f32(d0, x.d[at]), vcvtq_f32_s32(low));
    return vfmaq_f32(acc, vmulq_n_f32(d1, x.d[at]), vcvtq_f32_s32(high));
  }
};

}  // namespace

constinit const TileKernel kNeonLowbitTiles[kLowbitLayouts] = {tile_all<OneBit, One<2>>,
                                                               tile_all<TwoBits, One<1>>,
                                                               tile_all<TwoBits, One<2>>,
                                                               tile_all<TwoBits, One<3>>,
                                                               tile_all<TwoBits, KPairs>,
                                                               tile_all<ThreeBits, KSixteen>,
                                                               tile_all<TableNibbles<Iq4Table>, One<>>,
                                                               tile_all<TableNibbles<Iq4Table>, KOne>,
                                                               tile_all<TableNibbles<Fp4Table>, E8m0>,
                                                               tile_all<TableNibbles<Fp4Table>, E4m3Two>};

constinit const TileKernel kNeonGridTiles[kGridLayouts] = {
    tile_all<Grid<Layout::iq2_xxs>, OddOne<-3>>, tile_all<Grid<Layout::iq2_xs>, OddTwo<-3>>,
    tile_all<Grid<Layout::iq2_s>, OddTwo<-3>>,   tile_all<Grid<Layout::iq3_xxs>, OddOne<-2>>,
    tile_all<Grid<Layout::iq3_s>, OddOne<0>>,    tile_all<Grid<Layout::iq1_s>, OddOne<-3>>,
    tile_all<Grid<Layout::iq1_m>, OddTwo<-3>>};

}  // namespace cohort::cpu
