#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

using Rows = std::vector<int32_t>;

TEST(Schedule, DecodingSequencesAlwaysRun) {
  const std::vector<Pending> sequences{
      {.rows = 1000, .decoding = false}, {.rows = 1, .decoding = true}, {.rows = 3, .decoding = true}};
  EXPECT_EQ(schedule(sequences, 512), (Rows{512, 1, 3}));
}

TEST(Schedule, PromptsShareTheBudgetInOrderOfArrival) {
  const std::vector<Pending> sequences{
      {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}};
  EXPECT_EQ(schedule(sequences, 8), (Rows{5, 3, 0}));
}

TEST(Schedule, NothingIsRunForNobody) {
  EXPECT_TRUE(schedule({}, 512).empty());
}

}  // namespace
}  // namespace cohort
