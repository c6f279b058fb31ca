#include "moe/groups.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace cohort {
namespace {

std::vector<int32_t> random_routes(int32_t rows, int32_t top_k, int32_t experts, uint64_t seed) {
  std::vector<int32_t> out;
  uint32_t draw = 0;
  for (int32_t r = 0; r < rows; ++r) {
    std::set<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < top_k) {
      const auto e = static_cast<int32_t>(uniform(seed, 0, draw++, 0) * static_cast<float>(experts));
      if (chosen.insert(e).second) out.push_back(e);
    }
  }
  return out;
}

TEST(RouteGroups, EveryRouteIsInTheGroupOfItsExpertOnceAndInOrder) {
  for (const auto& [rows, top_k, experts] :
       std::vector<std::array<int32_t, 3>>{{1, 8, 128}, {64, 8, 128}, {7, 1, 1}, {33, 16, 512}, {5, 4, 4}, {0, 2, 8}}) {
    const auto routes = random_routes(rows, top_k, experts, 3);
    RouteGroups groups;
    groups.build(routes, top_k, experts);
    int32_t next = 0, previous = rows + 1;
    std::set<int32_t> seen;
    for (const auto& group : groups.groups()) {
      EXPECT_EQ(group.first, next);
      EXPECT_GT(group.count, 0);
      EXPECT_LE(group.count, previous);
      EXPECT_TRUE(seen.insert(group.expert).second);
      for (int32_t i = 0; i < group.count; ++i) {
        const int32_t at = next + i;
        const int32_t route = groups.order()[static_cast<size_t>(at)];
        EXPECT_EQ(routes[static_cast<size_t>(route)], group.expert);
        EXPECT_EQ(groups.place()[static_cast<size_t>(route)], next + i);
        EXPECT_EQ(groups.row_at(next + i), route / top_k);
        if (i > 0) {
          EXPECT_LT(groups.order()[static_cast<size_t>(next + i - 1)], route);
        }
      }
      next += group.count;
      previous = group.count;
    }
    EXPECT_EQ(next, rows * top_k);
    EXPECT_EQ(groups.routes(), rows * top_k);
  }
}

TEST(RouteGroups, AllRowsOnOneExpertAreOneGroup) {
  const std::vector<int32_t> routes(9, 5);
  RouteGroups groups;
  groups.build(routes, 1, 300);
  ASSERT_EQ(groups.groups().size(), 1U);
  EXPECT_EQ(groups.groups()[0].expert, 5);
  EXPECT_EQ(groups.largest_group(), 9);
}

}  // namespace
}  // namespace cohort
