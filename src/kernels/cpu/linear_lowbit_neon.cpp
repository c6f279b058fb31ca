// Tile kernels for NEON of the formats of one to four bits. Those with code books are decoded value by value to bytes
// that the dot products read (layout_lowbit.h): the layout stays small, the speed has not been worked on.
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

/// A code book, in the order of the values.
template <Layout kLayout>
struct Grid {
  static constexpr int64_t kBytes = layout_info(kLayout).quant_bytes;
  static COHORT_INLINE void decode(const std::byte* p, int quarter, uint8x16_t* w) {
    alignas(16) int8_t codes[4][kBlockValues];
    for (int lane = 0; lane < 4; ++lane) read_grid_codes(kLayout, p, 4 * quarter + lane, codes[lane]);
    for (int i = 0; i < 8; ++i) {
      alignas(16) uint8_t bytes[16];
      for (int lane = 0; lane < 4; ++lane) __builtin_memcpy(bytes + 4 * lane, codes[lane] + 4 * i, 4);
      w[i] = vld1q_u8(bytes);
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
