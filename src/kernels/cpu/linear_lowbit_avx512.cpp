// Tile kernels for AVX-512 VNNI of the formats of one to four bits that decode by shifts or one table of 16.
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/linear_lowbit_avx512_impl.h"

namespace cohort::cpu {

constinit const TileKernel kAvx512LowbitTiles[kLowbitLayouts] = {tile_all<OneBit, One<kNeg1, 2>>,
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
