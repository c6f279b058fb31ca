#include "engine/lookup_drafter.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

std::vector<int32_t> guesses(LookupDrafter& drafter, SequenceId id, const std::vector<int32_t>& tokens, int32_t count) {
  const SamplingParams sampling;
  Wish wish{id, tokens, &sampling, count, {}};
  EXPECT_TRUE(drafter.guess(std::span(&wish, 1)));
  return wish.guesses;
}

TEST(lookup_drafter, gives_what_followed_last_time) {
  LookupDrafter drafter;
  EXPECT_EQ(guesses(drafter, 1, {5, 6, 7, 8, 9, 1, 5, 6}, 3), (std::vector<int32_t>{7, 8, 9}));
}

TEST(lookup_drafter, knows_nothing_of_new_tokens) {
  LookupDrafter drafter;
  EXPECT_TRUE(guesses(drafter, 1, {1}, 3).empty());
  EXPECT_TRUE(guesses(drafter, 1, {1, 2, 3, 4}, 3).empty());
  // A single token that came before is not enough.
  EXPECT_TRUE(guesses(drafter, 2, {1, 2, 3, 1}, 3).empty());
}

TEST(lookup_drafter, longer_runs_go_first) {
  LookupDrafter drafter;
  // 2 3 came last before 9, but 1 2 3 before 4.
  EXPECT_EQ(guesses(drafter, 1, {1, 2, 3, 4, 7, 2, 3, 9, 1, 2, 3}, 1), (std::vector<int32_t>{4}));
}

TEST(lookup_drafter, the_latest_run_counts) {
  LookupDrafter drafter;
  EXPECT_EQ(guesses(drafter, 1, {2, 3, 4, 2, 3, 5, 2, 3}, 1), (std::vector<int32_t>{5}));
}

TEST(lookup_drafter, repetition_goes_on_beyond_the_end) {
  LookupDrafter drafter;
  EXPECT_EQ(guesses(drafter, 1, {8, 9, 8, 9, 8, 9}, 5), (std::vector<int32_t>{8, 9, 8, 9, 8}));
  EXPECT_EQ(guesses(drafter, 2, {4, 4, 4}, 4), (std::vector<int32_t>{4, 4, 4, 4}));
}

TEST(lookup_drafter, grows_with_its_sequence_and_keeps_sequences_apart) {
  LookupDrafter drafter;
  std::vector<int32_t> tokens{1, 2, 3, 4, 5};
  EXPECT_TRUE(guesses(drafter, 1, tokens, 2).empty());
  EXPECT_TRUE(guesses(drafter, 2, {3, 4}, 2).empty());
  tokens.insert(tokens.end(), {2, 3});
  EXPECT_EQ(guesses(drafter, 1, tokens, 2), (std::vector<int32_t>{4, 5}));
  drafter.forget(1);
  EXPECT_TRUE(guesses(drafter, 1, {2, 3}, 2).empty());
}

}  // namespace
}  // namespace cohort
