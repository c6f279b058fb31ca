// Tile kernels for AVX-512 VNNI and VBMI of the formats with code books.
#include "kernels/cpu/linear_avx512_tile.h"
#include "kernels/cpu/linear_grid_avx512_impl.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/linear_lowbit_avx512_impl.h"

namespace cohort::cpu {

constinit const TileKernel kAvx512GridTiles[kGridLayouts] = {
    tile_all<Pairs, OddOne<kNeg64, -3>>,
    tile_all<Eights<Layout::iq2_xs>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Eights<Layout::iq2_s>, OddTwo<kNeg64Low, kNeg64High, -3>>,
    tile_all<Fours<Layout::iq3_xxs>, OddOne<kNeg64, -2>>,
    tile_all<Fours<Layout::iq3_s>, OddOne<kNeg16, 0>>,
    tile_all<Shifted<Layout::iq1_s>, OddOne<kNeg16, -3>>,
    tile_all<Shifted<Layout::iq1_m>, OddTwo<kNeg16Low, kNeg16High, -3>>};

}  // namespace cohort::cpu
