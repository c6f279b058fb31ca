// Tile kernels for AMX, over the operations of a tile unit: the processor's, or the emulation that tests use where
// there is none.
//
// One call: 16 outputs times 9 to 16 rows. A block of 32 values is one product of tiles, activations [rows][32] int8
// times weights [8][16 x 4] int8 into [rows][16] int32; its scales then have to be applied per row and block with
// vectors, which bounds the kernel (3 to 7 vector operations against one tile product of `rows` cycles). So three
// things run side by side, a group of up to four blocks each: weights of the next group are decoded to memory (loading
// a tile from fresh stores stalls), this group is multiplied, and the previous one's sums are scaled. A group never
// crosses the end of a segment (rule 4).
#pragma once

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

// Registers: sums in 0 and 1, activations in 2 and 3, weights in 4 and 5.
constexpr int kSums = 0, kActivations = 2, kWeights = 4;

template <bool kHalves>
COHORT_INLINE TileConfig config_for(int32_t rows) {
  TileConfig config;
  for (int i = 0; i < 2; ++i) {
    config.rows[kSums + i] = static_cast<uint8_t>(rows);
    config.row_bytes[kSums + i] = 64;
    config.rows[kActivations + i] = static_cast<uint8_t>(rows);
    config.row_bytes[kActivations + i] = kHalves ? 16 : 32;
    config.rows[kWeights + i] = kHalves ? 4 : 8;
    config.row_bytes[kWeights + i] = 64;
  }
  return config;
}

template <class Quants, class Scales, class Tiles>
class AmxTile {
 public:
  explicit COHORT_INLINE AmxTile(const TileCall& call) : call_(call), prefetcher_(call) {}

  COHORT_INLINE void run() {
    const PackedShape& shape = *call_.shape;
    const int32_t per_segment = shape.blocks / shape.segments;
    const int32_t groups = (per_segment + kGroupBlocks - 1) / kGroupBlocks;  // of a segment
    const int32_t total = groups * shape.segments;
    const auto group_at = [&](int32_t index) {
      const int32_t segment = index / groups, in_segment = index % groups;
      return Group{segment * per_segment + per_segment * in_segment / groups,
                   segment * per_segment + per_segment * (in_segment + 1) / groups, segment, in_segment == 0,
                   in_segment + 1 == groups};
    };
    const TileConfig config = config_for<Scales::kHalves>(call_.x->rows);
    Tiles::configure(config);
    decode(group_at(0), 0);
    for (int32_t i = 0; i < total; ++i) {
      multiply(group_at(i), i % 2);
      if (i + 1 < total) decode(group_at(i + 1), (i + 1) % 2);
      if (i > 0) scale(group_at(i - 1), (i - 1) % 2);
    }
    scale(group_at(total - 1), (total - 1) % 2);
    Tiles::release();
    const int top = __builtin_ctz(static_cast<unsigned>(shape.segments));
    const auto mask = static_cast<__mmask16>((1U << call_.outputs) - 1);
    for (int32_t r = 0; r < call_.x->rows; ++r)
      _mm512_mask_storeu_ps(call_.out + r * call_.out_stride, mask, waiting_[top][r]);
  }

 private:
  struct Group {
    int32_t first, last;  // blocks
    int32_t segment;
    bool opens, closes;  // a segment
  };
  static constexpr int kParts = Scales::kHalves ? 2 : 1;

  /// The group's weights as signed codes: no bias has to be taken out of the sums.
  COHORT_INLINE void decode(const Group& group, int buffer) {
    const std::byte* quants = call_.tile + call_.shape->scale_bytes;
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(layout_info(call_.shape->layout).bias));
    for (int32_t b = group.first; b < group.last; ++b) {
      prefetcher_.advance();
      __m512i w[8];
      decoder_.decode(quants + b * Quants::kBytes, w);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm512_store_si512(weights_[buffer][b - group.first][i], _mm512_sub_epi8(w[i], bias));
    }
  }

  COHORT_INLINE void multiply(const Group& group, int buffer) {
    const ActivationChunk& x = *call_.x;
    const int8_t* activations = activations_for<Quants>(x);
    for (int32_t b = group.first; b < group.last; ++b) {
      const int8_t* q = activations + int64_t{b} * x.rows * kBlockValues;
      const auto& w = weights_[buffer][b - group.first];
      auto& sums = sums_[buffer][b - group.first];
      Tiles::template zero<kSums>();
      Tiles::template load<kActivations>(q, kBlockValues);
      Tiles::template load<kWeights>(w[0], 64);
      Tiles::template multiply<kSums, kActivations, kWeights>();
      if constexpr (Scales::kHalves) {
        Tiles::template zero<kSums + 1>();
        Tiles::template load<kActivations + 1>(q + 16, kBlockValues);
        Tiles::template load<kWeights + 1>(w[4], 64);
        Tiles::template multiply<kSums + 1, kActivations + 1, kWeights + 1>();
        Tiles::template store<kSums + 1>(sums[1], 64);
      }
      Tiles::template store<kSums>(sums[0], 64);
    }
  }

  COHORT_INLINE void scale(const Group& group, int buffer) {
    const ActivationChunk& x = *call_.x;
    Scales s[kGroupBlocks];
    const int32_t count = group.last - group.first;
    for (int32_t b = 0; b < count; ++b) load_scales(s[b], call_.tile, group.first + b, true);
    for (int32_t r = 0; r < x.rows; ++r) {
      __m512 acc = group.opens ? _mm512_setzero_ps() : acc_[r];
      for (int32_t b = 0; b < count; ++b) {
        const auto& sums = sums_[buffer][b];
        acc = s[b].template finish<false>(acc, _mm512_load_si512(sums[0][r]), _mm512_load_si512(sums[kParts - 1][r]), x,
                                          int64_t{group.first + b} * x.rows + r);
      }
      if (!group.closes) {
        acc_[r] = acc;
        continue;
      }
      int level = 0;
      for (int32_t carry = group.segment; (carry & 1) != 0; carry >>= 1, ++level)
        acc = _mm512_add_ps(waiting_[level][r], acc);
      waiting_[level][r] = acc;
    }
  }

  const TileCall& call_;
  const Quants decoder_{};
  TilePrefetcher prefetcher_;
  alignas(64) int8_t weights_[2][kGroupBlocks][8][64];
  alignas(64) int32_t sums_[2][kGroupBlocks][kParts][kChunkRows][16];
  __m512 acc_[kChunkRows];
  __m512 waiting_[6][kChunkRows];  // finished segments, as the carries of a binary counter
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
    amx_tile<Eights<Layout::iq2_xxs>, OddOne<kNeg64, -3>, Tiles>,
    amx_tile<Eights<Layout::iq2_xs>, OddTwo<kNeg64Low, kNeg64High, -3>, Tiles>,
    amx_tile<Eights<Layout::iq2_s>, OddTwo<kNeg64Low, kNeg64High, -3>, Tiles>,
    amx_tile<Fours<Layout::iq3_xxs>, OddOne<kNeg64, -2>, Tiles>,
    amx_tile<Fours<Layout::iq3_s>, OddOne<kNeg16, 0>, Tiles>,
    amx_tile<Shifted<Layout::iq1_s>, OddOne<kNeg16, -3>, Tiles>,
    amx_tile<Shifted<Layout::iq1_m>, OddTwo<kNeg16Low, kNeg16High, -3>, Tiles>};

}  // namespace
}  // namespace cohort::cpu
