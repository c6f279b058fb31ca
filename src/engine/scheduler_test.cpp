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

TEST(Schedule, EqualPromptsShareTheBudgetInOrderOfArrival) {
  const std::vector<Pending> sequences{
      {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}};
  EXPECT_EQ(schedule(sequences, 8), (Rows{5, 3, 0}));
}

TEST(Schedule, AShortPromptDoesNotWaitForALongOne) {
  const std::vector<Pending> sequences{{.rows = 4000, .decoding = false}, {.rows = 20, .decoding = false}};
  EXPECT_EQ(schedule(sequences, 64), (Rows{44, 20}));
}

TEST(Schedule, TheOldestPromptGetsHalfWhateverArrives) {
  const std::vector<Pending> sequences{{.rows = 4000}, {.rows = 20}, {.rows = 20}, {.rows = 20}, {.rows = 0}};
  EXPECT_EQ(schedule(sequences, 64), (Rows{32, 20, 12, 0, 0}));
  EXPECT_EQ(schedule(sequences, 1), (Rows{1, 0, 0, 0, 0}));
}

TEST(Schedule, NothingIsRunForNobody) {
  EXPECT_TRUE(schedule({}, 512).empty());
}

TEST(PrefillBudget, IsWholeWhenNobodyDecodes) {
  EXPECT_EQ(PrefillBudget(512, 0).next(0), 512);
}

TEST(PrefillBudget, LearnsHowManyRowsFitIntoTheStall) {
  PrefillBudget budget(512, 0.010);
  EXPECT_EQ(budget.next(4), 16) << "careful before anything is known";
  for (int i = 0; i < 50; ++i) {
    budget.observe(0, 4, 0.005);             // a decode step takes 5 ms
    budget.observe(100, 4, 0.005 + 100e-4);  // a prompt row takes 0.1 ms
  }
  EXPECT_NEAR(budget.next(4), 100, 2);
  for (int i = 0; i < 50; ++i) budget.observe(100, 4, 0.005 + 400e-4);  // the machine got slower
  EXPECT_NEAR(budget.next(4), 25, 1);
}

TEST(PrefillBudget, DoublesTheGapAtMostByDefault) {
  PrefillBudget budget(512, 0);
  for (int i = 0; i < 50; ++i) {
    budget.observe(0, 4, 0.008);
    budget.observe(64, 4, 0.008 + 64 * 2e-4);
  }
  EXPECT_NEAR(budget.next(4), 40, 1);
}

}  // namespace
}  // namespace cohort
