#include "models/made_slices.h"

#include <gtest/gtest.h>

#include <cstring>

#include "models/weights.h"

namespace cohort {
namespace {

TEST(MadeSlices, ExistWhileSomebodyHoldsThem) {
  int made = 0;
  auto slices = MadeSlices::create(3, 10000, [&](std::byte* first, size_t stride) {
    ++made;
    for (int i = 0; i < 3; ++i) std::memset(first + static_cast<size_t>(i) * stride, 'a' + i, 10000);
  });
  ASSERT_TRUE(slices) << slices.error().message;
  Weight weight;
  weight.made = {*slices};
  for (int64_t i = 0; i < 3; ++i) weight.slices.push_back((*slices)->slice(i));
  const auto last_byte = [&](size_t i) { return std::to_integer<char>(weight.slices[i][9999]); };
  EXPECT_EQ(made, 0);
  EXPECT_EQ(last_byte(1), 0);
  for (int round = 1; round <= 2; ++round) {
    {
      const SliceHold hold(weight);
      EXPECT_EQ(made, round);
      {
        const SliceHold another(weight);
        EXPECT_EQ(made, round);  // once for both
      }
      EXPECT_EQ(last_byte(0), 'a');
      EXPECT_EQ(last_byte(1), 'b');
      EXPECT_EQ(last_byte(2), 'c');
    }
    EXPECT_EQ(last_byte(2), 0);
  }
}

TEST(MadeSlices, AMovedHoldStillHolds) {
  auto slices = MadeSlices::create(1, 1, [](std::byte* first, size_t) { *first = std::byte{7}; });
  ASSERT_TRUE(slices);
  std::vector<SliceHold> holds;
  for (int i = 0; i < 10; ++i) holds.emplace_back(std::span(&*slices, 1));
  EXPECT_EQ(std::to_integer<int>(*(*slices)->slice(0)), 7);
  holds.clear();
  EXPECT_EQ(std::to_integer<int>(*(*slices)->slice(0)), 0);
}

}  // namespace
}  // namespace cohort
