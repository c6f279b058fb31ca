// Tile kernels for AVX-512 VNNI and GFNI of the formats of four and more bits: the instructions of linear_avx512.cpp
// but for nibbles, which GFNI decodes with 8 operations a block instead of 12.
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_lowbit.h"

namespace cohort::cpu {

constinit const std::array<TileKernel, kWideLayouts> kAvx512GfniTiles = wide_tiles();

}  // namespace cohort::cpu
