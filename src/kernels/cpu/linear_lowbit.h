// The tables of tile kernels that files of their own hold: low-bit types and code books (layout_lowbit.h).
#pragma once

#include <array>
#include <utility>

#include "kernels/cpu/kernels.h"

namespace cohort::cpu {

using TileKernel = void (*)(const TileCall& call);

/// By layout, those before kFirstLowbit. GFNI decodes nibbles with fewer instructions (has_avx512_vbmi()); processors
/// without it take the plain ones.
inline constexpr int kWideLayouts = kFirstLowbit;
extern const std::array<TileKernel, kWideLayouts> kAvx512PlainTiles, kAvx512GfniTiles;
/// By layout, from kFirstLowbit on.
extern const TileKernel kAvx512LowbitTiles[kLowbitLayouts], kAvx2LowbitTiles[kLowbitLayouts];
extern const TileKernel kNeonLowbitTiles[kLowbitLayouts];
/// From q2_0 on those with codes of two bits (and a third one elsewhere). They need VBMI and GFNI as well.
inline constexpr int kFirstTwoBit = static_cast<int>(Layout::q2_0);
inline constexpr int kTwoBitLayouts = static_cast<int>(Layout::q3_k) + 1 - kFirstTwoBit;
extern const TileKernel kAvx512TwoBitTiles[kTwoBitLayouts];
/// By layout, from kFirstGrid on. The AVX-512 ones need VBMI as well (has_avx512_vbmi()).
extern const TileKernel kAvx512GridTiles[kGridLayouts], kAvx2GridTiles[kGridLayouts], kNeonGridTiles[kGridLayouts];

// Entries of a table that call those of another file's. In an anonymous namespace, because files that are compiled for
// different instruction sets must not share functions.
namespace {

template <const TileKernel* kTiles, int kIndex>
void forward(const TileCall& call) {
  kTiles[kIndex](call);
}

template <const TileKernel* kTiles, int... kIndex>
constexpr void forward_to(TileKernel* entries, std::integer_sequence<int, kIndex...>) {
  ((entries[kIndex] = forward<kTiles, kIndex>), ...);
}

}  // namespace

}  // namespace cohort::cpu
