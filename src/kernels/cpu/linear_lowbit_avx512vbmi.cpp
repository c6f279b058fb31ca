// Tile kernels for AVX-512 VNNI, VBMI and GFNI of the formats whose codes of two bits GFNI cuts out of bytes.
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/linear_lowbit_avx512_impl.h"

namespace cohort::cpu {

constinit const TileKernel kAvx512TwoBitTiles[kTwoBitLayouts] = {
    tile_all<TwoBits, One<kNeg1, 1>>, tile_all<TwoBits, One<kNeg1, 2>>, tile_all<TwoBits, One<kNeg1, 3>>,
    tile_all<TwoBits, KPairs>, tile_all<ThreeBits, KSixteen<kNeg4Low, kNeg4High>>};

}  // namespace cohort::cpu
