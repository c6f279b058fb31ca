// Packed tiles hold what the file holds: every type, blocks of random bytes.
#include "kernels/cpu/layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/rng.h"
#include "kernels/cpu/layout_lowbit.h"
#include "kernels/cpu/test_weights.h"
#include "quant/tables/grids.h"

namespace cohort::cpu {
namespace {

using cohort::testing::OwnedWeight;

bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

TEST(cpu_layout, ReadsBackWhatWasPacked) {
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised) continue;
    constexpr int64_t kRows = 19, kCols = 1280;
    const OwnedWeight owned = cohort::testing::random_bytes_weight(info.type, kRows, kCols, 3);
    const PackedWeight planned = plan_packing(owned.weight);
    const PackedShape& shape = planned.shape;
    for (int64_t t = 0; t < planned.tiles; ++t) {
      std::vector<std::byte> tile(static_cast<size_t>(shape.tile_bytes));
      pack_tile(owned.weight, shape, 0, t, tile.data());
      for (int32_t lane = 0; lane < kTileOutputs && t * kTileOutputs + lane < kRows; ++lane) {
        for (int64_t b = 0; b < shape.blocks; ++b) {
          CodeBlock expected;
          const size_t row = static_cast<size_t>(t * kTileOutputs + lane) * row_bytes(info.type, kCols);
          decode_code_block(info.type, owned.weight.slices[0] + row, b, expected);
          PackedBlock got;
          read_block(tile.data(), shape, b, lane, got);
          for (int j = 0; j < kBlockValues; ++j)
            ASSERT_EQ(got.code[j], expected.code[j]) << info.name << " block " << b << " value " << j;
          for (int half = 0; half < 2; ++half) {
            ASSERT_TRUE(same_float(got.d[half], expected.d[half])) << info.name << " block " << b;
            ASSERT_EQ(got.scale[half], expected.scale[half]) << info.name << " block " << b;
            if (!expected.has_offset) continue;
            ASSERT_EQ(got.offset[half], expected.offset[half]) << info.name << " block " << b;
          }
          ASSERT_TRUE(!expected.has_offset || same_float(got.d_offset, expected.d_offset)) << info.name;
        }
      }
    }
  }
}

TEST(cpu_layout, TakesAboutAsMuchMemoryAsTheFile) {
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised) continue;
    // Trits are stored in two bits each; groups of 1 to 3 bits beside an index are stored whole.
    const double limit = info.type == TensorType::tq1_0 ? 1.26 : 1.1;
    for (const int64_t cols : {int64_t{768}, int64_t{2048}}) {
      const auto packed = static_cast<double>(packed_shape(layout_of(info.type), cols).tile_bytes) / kTileOutputs;
      EXPECT_LE(packed, limit * static_cast<double>(row_bytes(info.type, cols))) << info.name << " K " << cols;
    }
  }
}

TEST(cpu_layout, TransposedOrderIsItsOwnInverse) {
  for (int value = 0; value < kBlockValues; ++value) {
    EXPECT_EQ(transposed_place(transposed_place(value)), value);
    EXPECT_EQ(transposed_place(value) / 16, value / 16);
  }
  EXPECT_EQ(transposed_place(6), 9);  // value 6 is byte 1 of vector t = 2
}

// What the lookups of IQ2_XXS rely on.
TEST(cpu_layout, NumbersOfEntriesSayTheirCodesByParts) {
  std::set<int> numbers;
  std::map<int, uint64_t> parts[3];
  for (int e = 0; e < 256; ++e) {
    const int number = kEntryNumber[e];
    EXPECT_LT(number, kEntryNumbers);
    EXPECT_TRUE(numbers.insert(number).second) << e;
    const auto pair = [e](int i) {
      const uint64_t first = quant::iq2xxs_grid[e] >> (8 * kPairValues[i][0]);
      const uint64_t second = quant::iq2xxs_grid[e] >> (8 * kPairValues[i][1]);
      return (first & 0xff) | (second & 0xff) << 8;
    };
    const uint64_t codes[3] = {pair(0), pair(1), pair(2) | pair(3) << 16};
    const int index[3] = {pair_index(0, number), pair_index(1, number), half_index(number)};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(parts[i].emplace(index[i], codes[i]).first->second, codes[i]) << e;
  }
  for (int value = 0; value < 8; ++value) EXPECT_EQ(kPairValues[pair_place(value) / 2][pair_place(value) % 2], value);
}

}  // namespace
}  // namespace cohort::cpu
