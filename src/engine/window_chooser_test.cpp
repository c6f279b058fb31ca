#include "engine/window_chooser.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cohort {
namespace {

using Stream = WindowChooser::Stream;

/// Steps of a machine where a step takes `fixed` and each row `row` seconds, until the price of a row is known.
WindowChooser learned(double fixed, double row, int64_t streams, int32_t most = 7) {
  WindowChooser chooser(most, false);
  for (int i = 0; i < 20; ++i) {
    const int64_t rows = streams + i % 3;
    chooser.observe(rows, fixed + row * static_cast<double>(rows));
  }
  return chooser;
}

TEST(window_chooser, learns_the_price_of_a_row) {
  EXPECT_NEAR(learned(3e-3, 5e-4, 2).row_seconds(), 5e-4, 1e-8);
  const WindowChooser fresh(4, false);
  EXPECT_LT(fresh.row_seconds(), 0);
}

TEST(window_chooser, tries_both_ways_until_the_price_is_known) {
  WindowChooser chooser(4, false);
  const std::vector<Stream> streams{{0.7, 9}, {0.7, 1}};
  int with = 0, without = 0;
  for (int i = 0; i < 8; ++i) {
    const auto count = chooser.choose(streams);
    const int32_t guesses = std::accumulate(count.begin(), count.end(), 0);
    (guesses > 0 ? with : without) += 1;
    EXPECT_LE(count[0], 4);
    EXPECT_LE(count[1], 1);
    chooser.observe(2 + guesses, 1e-3 + 1e-4 * guesses);
    if (chooser.row_seconds() >= 0) break;
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
  EXPECT_NEAR(chooser.row_seconds(), 1e-4, 1e-7);
}

TEST(window_chooser, long_windows_where_rows_are_cheap) {
  WindowChooser chooser = learned(1e-2, 1e-4, 1);
  EXPECT_EQ(chooser.choose(std::vector<Stream>{{0.9, 20}}), (std::vector<int32_t>{7}));
}

TEST(window_chooser, none_where_a_row_costs_a_step) {
  // A row costs as much as everything else: with a chance of 0.4 a guess would be a loss.
  WindowChooser chooser = learned(1e-3, 1e-3, 1);
  EXPECT_EQ(chooser.choose(std::vector<Stream>{{0.4, 20}}), (std::vector<int32_t>{0}));
  // At 0.8 one guess gains: 1.8 tokens in 3 ms are more than 1 in 2 ms; two of them (2.44 in 4 ms) are worth it, too.
  EXPECT_GE(chooser.choose(std::vector<Stream>{{0.8, 20}})[0], 1);
}

TEST(window_chooser, the_best_guesser_gets_the_rows) {
  WindowChooser chooser = learned(4e-3, 1e-3, 2);
  const auto count = chooser.choose(std::vector<Stream>{{0.2, 20}, {0.9, 20}});
  EXPECT_EQ(count[0], 0);
  EXPECT_GT(count[1], 1);
}

TEST(window_chooser, drafting_has_its_price) {
  WindowChooser chooser = learned(1e-3, 1e-5, 1);
  const std::vector<Stream> streams{{0.6, 20}};
  const int32_t before = chooser.choose(streams)[0];
  chooser.observe_drafting(1, 5e-4);
  EXPECT_LT(chooser.choose(streams)[0], before);
}

TEST(window_chooser, never_more_than_there_is_room_for) {
  WindowChooser chooser = learned(1e-2, 1e-5, 1);
  EXPECT_EQ(chooser.choose(std::vector<Stream>{{0.99, 3}, {0.99, 0}}), (std::vector<int32_t>{3, 0}));
  WindowChooser always(4, true);
  EXPECT_EQ(always.choose(std::vector<Stream>{{0.01, 20}, {0.99, 2}}), (std::vector<int32_t>{4, 2}));
}

TEST(window_chooser, tries_again_now_and_then) {
  WindowChooser chooser = learned(1e-3, 1e-3, 1);
  int tried = 0;
  for (int i = 0; i < 400; ++i) tried += chooser.choose(std::vector<Stream>{{0.1, 20}})[0] > 0 ? 1 : 0;
  EXPECT_EQ(tried, 3);  // after 48, 96 and 192 steps
}

TEST(hit_rate, follows_what_was_right) {
  HitRate rate;
  for (int i = 0; i < 50; ++i) rate.observe(4, 4);
  EXPECT_GT(rate.value(), 0.95);
  for (int i = 0; i < 50; ++i) rate.observe(4, 0);
  EXPECT_LT(rate.value(), 0.05);
  // Three right ones, then a wrong one: three in four.
  for (int i = 0; i < 200; ++i) rate.observe(4, 3);
  EXPECT_NEAR(rate.value(), 0.75, 0.06);
  const double before = rate.value();
  rate.observe(0, 0);
  EXPECT_EQ(rate.value(), before);
}

}  // namespace
}  // namespace cohort
