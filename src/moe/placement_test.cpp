#include "moe/placement.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

TEST(placement, everything_stays_where_it_fits) {
  EXPECT_EQ(experts_beyond({{4, 10}, {2, 20}}, 80), (Lists{{}, {}}));
  EXPECT_EQ(experts_beyond({}, 0), Lists{});
}

TEST(placement, without_counts_layers_stay_in_order) {
  EXPECT_EQ(experts_beyond({{4, 10}, {4, 10}}, 40), (Lists{{}, {0, 1, 2, 3}}));
  EXPECT_EQ(experts_beyond({{4, 10}, {4, 10}}, 59), (Lists{{}, {1, 2, 3}}));
  EXPECT_EQ(experts_beyond({{4, 10}, {2, 10}}, 30), (Lists{{3}, {0, 1}}));
  EXPECT_EQ(experts_beyond({{2, 10}}, 9), (Lists{{0, 1}}));
}

TEST(placement, experts_that_are_chosen_often_stay) {
  EXPECT_EQ(experts_beyond({{4, 10, {1, 7, 3, 9}}}, 20), (Lists{{0, 2}}));
  // For their bytes: 9 in 30 is less than 4 in 10.
  EXPECT_EQ(experts_beyond({{1, 30, {9}}, {1, 10, {4}}}, 30), (Lists{{0}, {}}));
  EXPECT_EQ(experts_beyond({{2, 10, {1, 5}}, {2, 10, {4, 2}}}, 20), (Lists{{0}, {1}}));
}

TEST(placement, all_experts_on_the_device_leave_the_rest_to_the_cache) {
  const auto placed = place_experts({100, 10, 1000, {{4, 10}, {4, 10}}}, 190);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->on_host, (Lists{{}, {}}));
  EXPECT_EQ(placed->cache, 10U);
  EXPECT_EQ(placed->on_device, 8);
  EXPECT_EQ(placed->in_host_memory, 0);
  EXPECT_EQ(placed->expert_bytes, 80U);
}

TEST(placement, what_does_not_fit_goes_to_the_host) {
  const auto placed = place_experts({100, 10, 10, {{4, 10}, {4, 10}}}, 189);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->on_host, (Lists{{}, {3}}));
  EXPECT_EQ(placed->cache, 19U);
  EXPECT_EQ(placed->on_device, 7);
  EXPECT_EQ(placed->in_host_memory, 1);
  EXPECT_EQ(placed->expert_bytes, 70U);
}

TEST(placement, the_cache_takes_at_most_a_quarter_from_the_experts) {
  const auto modest = place_experts({100, 10, 20, {{4, 10}, {4, 10}}}, 150);
  ASSERT_TRUE(modest);
  EXPECT_EQ(modest->on_host, (Lists{{3}, {0, 1, 2, 3}}));
  EXPECT_EQ(modest->cache, 20U);
  const auto greedy = place_experts({100, 10, 1000, {{4, 10}, {4, 10}}}, 150);
  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->on_host, (Lists{{3}, {0, 1, 2, 3}}));
  EXPECT_EQ(greedy->cache, 20U);
}

TEST(placement, no_expert_fits) {
  const auto placed = place_experts({100, 10, 10, {{2, 10}}}, 110);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->on_host, (Lists{{0, 1}}));
  EXPECT_EQ(placed->on_device, 0);
  const auto refused = place_experts({100, 10, 10, {{2, 10}}}, 109);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::capacity);
  EXPECT_NE(refused.error().message.find("--device-memory"), std::string::npos);
}

}  // namespace
}  // namespace cohort
