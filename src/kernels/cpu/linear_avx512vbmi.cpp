// Tile kernels for AVX-512 VNNI and GFNI of the formats of four and more bits: the instructions of linear_avx512.cpp
// but for nibbles, which GFNI decodes with 8 operations a block instead of 12.
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {

constinit const TileKernel kAvx512GfniTiles[kWideLayouts] = {
    tile_all<Nibbles, One<kNeg8>>,   tile_all<Nibbles, OneMin>,
    tile_all<FiveBits, One<kNeg16>>, tile_all<FiveBits, OneMin>,
    tile_all<Bytes, One<kNeg128>>,   tile_all<Nibbles, KMin>,
    tile_all<FiveBits, KMin>,        tile_all<SixBits, KSixteen<kNeg32Low, kNeg32High>>,
    tile_all<Bytes, Affine>};

}  // namespace cohort::cpu
