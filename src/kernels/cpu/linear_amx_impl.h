// Tile kernels for AMX, over the operations of a tile unit: the processor's, or the emulation that tests use where
// there is none.
//
// One call: 16 outputs times up to 16 rows. A block of 32 values is one product of tiles, activations [rows][32] int8
// times weights [8][16 x 4] int8 into [rows][16] int32; its scales then have to be applied per row and block with
// vectors. It goes by groups of up to four blocks: one is multiplied, the next is decoded to memory (a tile that is
// loaded from stores which have not retired stalls), and the sums of the one before are scaled, a row's in a register
// for all blocks of the group. Within a group a block's sums are stored after the next block's product has begun:
// products take 52 cycles, and a store waits for its own. A group never crosses the end of a segment (rule 4).
#pragma once

#include <type_traits>

#include "kernels/cpu/linear_avx512_impl.h"
#include "kernels/cpu/linear_grid_avx512_impl.h"
#include "kernels/cpu/linear_lowbit_avx512_impl.h"
#include "kernels/cpu/tile_prefetch.h"

namespace cohort::cpu {
namespace {

constexpr int kGroupBlocks = 4;

/// The 64 bytes of LDTILECFG, palette 1.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Registers. Blocks alternate between two sets; with halves there are four sums but only one set of operands.
template <bool kHalves>
struct TileNames {
  static constexpr int sums(int set, int part) { return kHalves ? 2 * set + part : set; }
  static constexpr int activations(int set, int part) { return kHalves ? 4 + part : 2 + set; }
  static constexpr int weights(int set, int part) { return kHalves ? 6 + part : 4 + set; }
};

template <bool kHalves>
COHORT_INLINE TileConfig config_for(int32_t rows) {
  using Names = TileNames<kHalves>;
  TileConfig config;
  for (int set = 0; set < 2; ++set) {
    for (int part = 0; part < (kHalves ? 2 : 1); ++part) {
      config.rows[Names::sums(set, part)] = static_cast<uint8_t>(rows);
      config.row_bytes[Names::sums(set, part)] = 64;
      config.rows[Names::activations(set, part)] = static_cast<uint8_t>(rows);
      config.row_bytes[Names::activations(set, part)] = kHalves ? 16 : 32;
      config.rows[Names::weights(set, part)] = kHalves ? 4 : 8;
      config.row_bytes[Names::weights(set, part)] = 64;
    }
  }
  return config;
}

/// A block's codes without the bias: none has to be taken out of the sums.
template <class Quants>
COHORT_INLINE void decode_signed(const Quants& decoder, const std::byte* p, int8_t bias, __m512i* w) {
  if constexpr (std::is_same_v<Quants, Nibbles>) {
    if (bias == 8) {
      // A nibble less 8 is the nibble with bit 3 inverted and copied to bits 4 to 7: linear in its bits.
      const __m512i low = _mm512_set1_epi64(0x0102040808080808), high = _mm512_set1_epi64(0x1020408080808080);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i v = load_bytes(p + 64 * i);
        w[i] = _mm512_gf2p8affine_epi64_epi8(v, low, 0xf8);
        w[i + 4] = _mm512_gf2p8affine_epi64_epi8(v, high, 0xf8);
      }
      return;
    }
  }
  decoder.decode(p, w);
  if (bias == 0) return;
  const __m512i biases = _mm512_set1_epi8(bias);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) w[i] = _mm512_sub_epi8(w[i], biases);
}

template <class Quants, class Scales, class Tiles>
class AmxTile {
 public:
  explicit COHORT_INLINE AmxTile(const TileCall& call)
      : call_(call),
        x_(*call.x),
        blocks_(call.shape->blocks),
        per_segment_(blocks_ / call.shape->segments),
        bias_(static_cast<int8_t>(layout_info(call.shape->layout).bias)),
        prefetcher_(call) {
    const int32_t groups = (per_segment_ + kGroupBlocks - 1) / kGroupBlocks;  // of a segment
    group_blocks_ = (per_segment_ + groups - 1) / groups;
  }

  COHORT_INLINE void run() {
    const TileConfig config = config_for<Scales::kHalves>(x_.rows);
    Tiles::configure(config);
    Group scaling = {0, group_blocks_, 0, per_segment_, 0}, group = scaling, decoding = scaling;
    decode(decoding);
    next(decoding);
    for (bool first = true; group.first < blocks_; next(group), first = false) {
      multiply(group);
      if (decoding.first < blocks_) decode(decoding);
      next(decoding);
      if (first) continue;
      scale(scaling);
      next(scaling);
    }
    Tiles::release();
    scale(scaling);
    const int top = __builtin_ctz(static_cast<unsigned>(call_.shape->segments));
    const auto mask = static_cast<__mmask16>((1U << call_.outputs) - 1);
    for (int32_t r = 0; r < x_.rows; ++r)
      _mm512_mask_storeu_ps(call_.out + r * call_.out_stride, mask, waiting_[top][r]);
  }

 private:
  using Names = TileNames<Scales::kHalves>;
  static constexpr int kParts = Scales::kHalves ? 2 : 1;
  struct Group {
    int32_t first, last;  // blocks first .. last - 1
    int32_t segment, end;
    int buffer;
    int32_t count() const { return last - first; }
  };

  COHORT_INLINE void next(Group& group) const {
    group.first = group.last;
    if (group.first == group.end) {
      ++group.segment;
      group.end += per_segment_;
    }
    group.last = group.first + group_blocks_ < group.end ? group.first + group_blocks_ : group.end;
    group.buffer ^= 1;
  }

  COHORT_INLINE void decode(const Group& group) {
    const std::byte* quants = call_.tile + call_.shape->scale_bytes;
    for (int32_t b = group.first; b < group.last; ++b) {
      prefetcher_.advance();
      __m512i w[8];
      decode_signed(decoder_, quants + b * Quants::kBytes, bias_, w);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm512_store_si512(weights_[group.buffer][b - group.first][i], w[i]);
    }
  }

  COHORT_INLINE void multiply(const Group& group) {
    const int32_t count = group.count();
    begin<0>(group, 0);
    if (count > 1) begin<1>(group, 1);
    store<0>(group, 0);
    if (count > 2) begin<0>(group, 2);
    if (count > 1) store<1>(group, 1);
    if (count > 3) begin<1>(group, 3);
    if (count > 2) store<0>(group, 2);
    if (count > 3) store<1>(group, 3);
  }

  template <int kSet>
  COHORT_INLINE void begin(const Group& group, int32_t index) {
    const int8_t* q = activations_for<Quants>(x_) + int64_t{group.first + index} * x_.rows * kBlockValues;
    const auto& w = weights_[group.buffer][index];
    product<kSet, 0>(q, w[0]);
    if constexpr (Scales::kHalves) product<kSet, 1>(q + 16, w[4]);
  }
  template <int kSet, int kPart>
  COHORT_INLINE void product(const int8_t* q, const int8_t* w) {
    constexpr int kSums = Names::sums(kSet, kPart), kActivations = Names::activations(kSet, kPart),
                  kWeights = Names::weights(kSet, kPart);
    Tiles::template load<kActivations>(q, kBlockValues);
    Tiles::template load<kWeights>(w, 64);
    Tiles::template zero<kSums>();
    Tiles::template multiply<kSums, kActivations, kWeights>();
  }
  template <int kSet>
  COHORT_INLINE void store(const Group& group, int32_t index) {
    auto& sums = sums_[group.buffer][index];
    Tiles::template store<Names::sums(kSet, 0)>(sums[0], 64);
    if constexpr (Scales::kHalves) Tiles::template store<Names::sums(kSet, 1)>(sums[1], 64);
  }

  COHORT_INLINE void scale(const Group& group) {
    switch (group.count()) {
      case 1:
        return scale_rows<1>(group);
      case 2:
        return scale_rows<2>(group);
      case 3:
        return scale_rows<3>(group);
      default:
        return scale_rows<4>(group);
    }
  }

  template <int kCount>
  COHORT_INLINE void scale_rows(const Group& group) {
    Scales s[kCount];
#pragma GCC unroll 4
    for (int b = 0; b < kCount; ++b) load_scales(s[b], call_.tile, group.first + b, true);
    const bool opens = group.first + per_segment_ == group.end, closes = group.last == group.end;
    // A finished segment meets those that wait, as the carries of a binary counter.
    const int levels = closes ? __builtin_ctz(~static_cast<unsigned>(group.segment)) : 0;
    __m512* to = closes ? waiting_[levels] : acc_;
    for (int32_t r = 0; r < x_.rows; ++r) {
      __m512 acc = opens ? _mm512_setzero_ps() : acc_[r];
#pragma GCC unroll 4
      for (int b = 0; b < kCount; ++b) {
        const auto& sums = sums_[group.buffer][b];
        acc = s[b].template finish<false>(acc, _mm512_load_si512(sums[0][r]), _mm512_load_si512(sums[kParts - 1][r]),
                                          x_, int64_t{group.first + b} * x_.rows + r);
      }
      for (int level = 0; level < levels; ++level) acc = _mm512_add_ps(waiting_[level][r], acc);
      to[r] = acc;
    }
  }

  const TileCall& call_;
  const ActivationChunk& x_;
  const int32_t blocks_, per_segment_;
  int32_t group_blocks_;  // of all groups of a segment but the last
  const int8_t bias_;
  const Quants decoder_{};
  TilePrefetcher<> prefetcher_;
  alignas(64) int8_t weights_[2][kGroupBlocks][8][64];
  alignas(64) int32_t sums_[2][kGroupBlocks][kParts][kChunkRows][16];
  __m512 acc_[kChunkRows];
  __m512 waiting_[6][kChunkRows];
};

template <class Quants, class Scales, class Tiles>
void amx_tile(const TileCall& call) {
  AmxTile<Quants, Scales, Tiles>(call).run();
}

/// By layout, for any tile unit.
template <class Tiles>
constexpr void (*kAmxTiles[kLayouts])(const TileCall&) = {
    amx_tile<Nibbles, One<kNeg8>, Tiles>,
    amx_tile<Nibbles, OneMin, Tiles>,
    amx_tile<FiveBits, One<kNeg16>, Tiles>,
    amx_tile<FiveBits, OneMin, Tiles>,
    amx_tile<Bytes, One<kNeg128>, Tiles>,
    amx_tile<Nibbles, KMin, Tiles>,
    amx_tile<FiveBits, KMin, Tiles>,
    amx_tile<SixBits, KSixteen<kNeg32Low, kNeg32High>, Tiles>,
    amx_tile<Bytes, Affine, Tiles>,
    amx_tile<OneBit, One<kNeg1, 2>, Tiles>,
    amx_tile<TwoBits, One<kNeg1, 1>, Tiles>,
    amx_tile<TwoBits, One<kNeg1, 2>, Tiles>,
    amx_tile<TwoBits, One<kNeg1, 3>, Tiles>,
    amx_tile<TwoBits, KPairs, Tiles>,
    amx_tile<ThreeBits, KSixteen<kNeg4Low, kNeg4High>, Tiles>,
    amx_tile<TableNibbles<Iq4Table>, One<kNeg128>, Tiles>,
    amx_tile<TableNibbles<Iq4Table>, KOne, Tiles>,
    amx_tile<TableNibbles<Fp4Table>, E8m0, Tiles>,
    amx_tile<TableNibbles<Fp4Table>, E4m3Two, Tiles>,
    amx_tile<Pairs, OddOne<kNeg64, -3>, Tiles>,
    amx_tile<Eights<Layout::iq2_xs>, OddTwo<kNeg64Low, kNeg64High, -3>, Tiles>,
    amx_tile<Eights<Layout::iq2_s>, OddTwo<kNeg64Low, kNeg64High, -3>, Tiles>,
    amx_tile<Fours<Layout::iq3_xxs>, OddOne<kNeg64, -2>, Tiles>,
    amx_tile<Fours<Layout::iq3_s>, OddOne<kNeg16, 0>, Tiles>,
    amx_tile<Shifted<Layout::iq1_s>, OddOne<kNeg16, -3>, Tiles>,
    amx_tile<Shifted<Layout::iq1_m>, OddTwo<kNeg16Low, kNeg16High, -3>, Tiles>};

}  // namespace
}  // namespace cohort::cpu
