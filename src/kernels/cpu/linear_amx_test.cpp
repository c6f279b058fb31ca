// The AMX kernels on an emulated tile unit, for machines that have AVX-512 but no AMX (where AMX exists,
// linear_test.cpp runs the real one).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "kernels/cpu/grid_tables.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/test_weights.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")
#include "kernels/cpu/linear_amx_impl.h"

namespace cohort::cpu {
namespace {

/// TMUL in plain C++ (Intel SDM, TDPBSSD): sums[m][n] += a[m][4k + i] * b[k][4n + i].
struct EmulatedTiles {
  static inline TileConfig config;
  static inline uint8_t tile[8][16][64];
  static void configure(const TileConfig& c) { config = c; }
  static void release() { config = {}; }
  template <int kTile>
  static void zero() {
    std::memset(tile[kTile], 0, sizeof tile[kTile]);
  }
  template <int kTile>
  static void load(const void* p, int64_t stride) {
    zero<kTile>();
    for (int r = 0; r < config.rows[kTile]; ++r)
      std::memcpy(tile[kTile][r], static_cast<const char*>(p) + r * stride, config.row_bytes[kTile]);
  }
  template <int kTile>
  static void store(void* p, int64_t stride) {
    for (int r = 0; r < config.rows[kTile]; ++r)
      std::memcpy(static_cast<char*>(p) + r * stride, tile[kTile][r], config.row_bytes[kTile]);
  }
  template <int kTo, int kA, int kB>
  static void multiply() {
    EXPECT_EQ(config.row_bytes[kA] / 4, config.rows[kB]);
    for (int m = 0; m < config.rows[kTo]; ++m) {
      for (int n = 0; n < config.row_bytes[kTo] / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, &tile[kTo][m][4 * n], 4);
        for (int k = 0; k < config.row_bytes[kA] / 4; ++k) {
          for (int i = 0; i < 4; ++i)
            sum += static_cast<int8_t>(tile[kA][m][4 * k + i]) * static_cast<int8_t>(tile[kB][k][4 * n + i]);
        }
        std::memcpy(&tile[kTo][m][4 * n], &sum, 4);
      }
    }
  }
};

TEST(cpu_amx, EmulatedTilesEqualTheScalarKernel) {
  if (!has_avx512_vbmi() || !__builtin_cpu_supports("gfni")) GTEST_SKIP() << "needs AVX-512 with VBMI and GFNI";
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised) continue;
    for (const int64_t cols : {int64_t{2048}, int64_t{768}, int64_t{704}, int64_t{160}, int64_t{96}}) {
      if (cols % info.block_values != 0) continue;
      const auto owned = cohort::testing::random_weight(info.type, 1, 13, cols, 2);
      const PackedShape shape = plan_packing(owned.weight).shape;
      std::vector<std::byte> memory(static_cast<size_t>(shape.tile_bytes) + 64);
      std::byte* tile = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
      pack_tile(owned.weight, shape, 0, 0, tile);
      for (int32_t rows : {1, 5, 9, 16}) {
        const auto x = cohort::testing::random_rows(rows, cols, 8, true);
        ActivationBuffer buffer;
        buffer.reserve(rows, cols, layout_info(shape.layout).sums);
        const ActivationChunk chunk = buffer.chunk(0, rows);
        for (int32_t r = 0; r < rows; ++r) kScalarKernels.quantise(x.data() + r * cols, shape.blocks, chunk, r);
        std::vector<float> got(static_cast<size_t>(16 * rows), 7.0F), expected = got;
        TileCall call{tile, &shape, &chunk, got.data(), 16, 13, nullptr};
        kAmxTiles<EmulatedTiles>[static_cast<int>(shape.layout)](call);
        call.out = expected.data();
        kScalarKernels.tile[static_cast<int>(shape.layout)](call);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i]) ||
                      (got[i] != got[i] && expected[i] != expected[i]))
              << info.name << " K " << cols << " rows " << rows << " at " << i << ": " << got[i] << " instead of "
              << expected[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::cpu
#pragma GCC pop_options
#endif
