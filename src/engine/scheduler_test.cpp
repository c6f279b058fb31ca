#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cohort {
namespace {

using Rows = std::vector<int32_t>;

TEST(Schedule, DecodingSequencesAlwaysRun) {
  const std::vector<Pending> sequences{
      {.rows = 1000, .decoding = false}, {.rows = 1, .decoding = true}, {.rows = 3, .decoding = true}};
  EXPECT_EQ(schedule(sequences, 512), (Rows{512, 1, 3}));
}

TEST(Schedule, EqualPromptsAreReadInOrderOfArrival) {
  const std::vector<Pending> sequences{
      {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}, {.rows = 5, .decoding = false}};
  EXPECT_EQ(schedule(sequences, 8), (Rows{5, 3, 0}));
}

TEST(Schedule, AShortPromptDoesNotWaitForALongOne) {
  const std::vector<Pending> sequences{{.rows = 4000, .decoding = false}, {.rows = 20, .decoding = false}};
  EXPECT_EQ(schedule(sequences, 64), (Rows{44, 20}));
}

TEST(Schedule, TheOldestPromptGetsAQuarterWhateverArrives) {
  const std::vector<Pending> sequences{{.rows = 4000}, {.rows = 20}, {.rows = 20}, {.rows = 20}, {.rows = 0}};
  EXPECT_EQ(schedule(sequences, 64), (Rows{16, 20, 20, 8, 0}));
  EXPECT_EQ(schedule(sequences, 1), (Rows{1, 0, 0, 0, 0}));
}

TEST(Schedule, RowsGoToTheMostUrgentAndAreSharedWithinAPriority) {
  // The first gets its quarter, then the short one of the same priority, then the rest of the first, then others.
  const std::vector<Pending> sequences{{.rows = 50, .priority = -1},
                                       {.rows = 8, .priority = -1},
                                       {.rows = 1, .priority = 3},
                                       {.rows = 2, .priority = 5}};
  EXPECT_EQ(schedule(sequences, 40), (Rows{32, 8, 0, 0}));
  EXPECT_EQ(schedule(sequences, 60), (Rows{50, 8, 1, 1}));
  // In front by its waiting, not by its priority: a quarter, whatever urgent ones arrive.
  const std::vector<Pending> aged{{.rows = 50, .priority = 7}, {.rows = 90, .priority = 0}};
  EXPECT_EQ(schedule(aged, 40), (Rows{10, 30}));
}

TEST(Schedule, DecodingIsNotPutOffByMoreUrgentPrompts) {
  const std::vector<Pending> sequences{{.rows = 90, .priority = -9}, {.rows = 1, .decoding = true, .priority = 9}};
  EXPECT_EQ(schedule(sequences, 40), (Rows{40, 1}));
}

TEST(Load, PromptsHaveNoClaimToTheTimeOfMoreUrgentStreams) {
  const std::vector<Pending> sequences{{.rows = 1, .decoding = true, .priority = 0},
                                       {.rows = 1, .decoding = true, .priority = 4},
                                       {.rows = 9, .priority = -1},
                                       {.rows = 9, .priority = 0},
                                       {.rows = 0, .priority = 0},
                                       {.rows = 9, .priority = 4}};
  EXPECT_EQ(load_of(sequences).decoding, 2);
  EXPECT_EQ(load_of(sequences).prompts, 2);
  EXPECT_EQ(load_of(std::span(sequences).subspan(2)).prompts, 3) << "nobody decodes";
}

TEST(Schedule, NothingIsRunForNobody) {
  EXPECT_TRUE(schedule({}, 512).empty());
}

/// A machine on which `rows` rows of a step take so long.
double seconds_of(int64_t decode_rows, int64_t prefill_rows) {
  return 0.002 + 0.001 * static_cast<double>(decode_rows) + 0.0005 * static_cast<double>(prefill_rows);
}

/// Lets the budget see `steps` steps of its own choosing; the rows of the last one.
int32_t settle(PrefillBudget& budget, int64_t decoding, int64_t prompts, int steps = 60) {
  int32_t rows = 0;
  for (int i = 0; i < steps; ++i) {
    const int32_t next = budget.next({decoding, prompts});
    budget.observe(next, decoding, seconds_of(decoding, next));
    if (next > 1) rows = next;
  }
  return rows;
}

TEST(PrefillBudget, IsWholeWhenNobodyDecodes) {
  EXPECT_EQ(PrefillBudget(512, 0).next({0, 1}), 512);
}

TEST(PrefillBudget, MeasuresDecodingAloneBeforePromptsJoinIt) {
  PrefillBudget budget(512, 0);
  EXPECT_EQ(budget.next({4, 1}), 1);
  budget.observe(1, 4, 0.006);
  EXPECT_EQ(budget.next({4, 1}), 16) << "the price of a row is not known yet";
  EXPECT_EQ(budget.next({16, 1}), 1) << "another number of streams is another step";
}

TEST(PrefillBudget, KeepsToAGivenStall) {
  PrefillBudget budget(512, 0.020);
  EXPECT_NEAR(settle(budget, 4, 1), 40, 1);
  EXPECT_NEAR(settle(budget, 4, 28), 40, 1) << "whoever waits";
}

TEST(PrefillBudget, OnePromptDoublesTheGapAtMost) {
  for (const int64_t decoding : {16, 31, 60}) {
    PrefillBudget budget(512, 0);
    const int32_t rows = settle(budget, decoding, 1);
    const double gap = seconds_of(decoding, rows) / seconds_of(decoding, 0);
    EXPECT_NEAR(gap, 2, 0.1) << decoding;
  }
}

TEST(PrefillBudget, TimeGoesToWhereTheStreamsAre) {
  PrefillBudget budget(512, 0);
  const double gap = seconds_of(4, settle(budget, 4, 28)) / seconds_of(4, 0);
  EXPECT_NEAR(gap, 1 + 28.0 / 4, 1);
  EXPECT_NEAR(seconds_of(16, settle(budget, 16, 16)) / seconds_of(16, 0), 2, 0.1);
  EXPECT_EQ(settle(budget, 1, 500), 512) << "never more than a step holds";
}

TEST(PrefillBudget, FollowsAMachineThatChanges) {
  PrefillBudget budget(512, 0);
  for (int i = 0; i < 400; ++i) {
    const int32_t next = budget.next({8, 1});
    budget.observe(next, 8, seconds_of(8, next) + (i < 200 ? 0 : 0.020));  // decoding became slower by 20 ms
  }
  EXPECT_GT(settle(budget, 8, 1, 1), 0);
  EXPECT_GT(budget.next({8, 1}), 20) << "the longer step allows more rows";
}

/// Four streams decode, a prompt of 4,000 tokens is read, and now and then one of 16 comes: how many steps that waits,
/// and how long the gaps of the four are.
TEST(PrefillBudget, AShortPromptWaitsTwoStepsBesideALongOneAndGapsAreEven) {
  constexpr int64_t kDecoding = 4;
  PrefillBudget budget(512, 0);
  int32_t left = 4000, short_left = 0, waited = 0, most_waited = 0, shorts = 0;
  std::vector<double> gaps;
  for (int step = 0; left > 0; ++step) {
    if (step % 10 == 5) {
      short_left = 16;
      waited = 0;
      ++shorts;
    }
    const std::vector<Pending> pending{{.rows = left}, {.rows = short_left}};
    const std::vector<int32_t> rows = schedule(pending, budget.next({kDecoding, short_left > 0 ? 2 : 1}));
    left -= rows[0];
    if (short_left > 0) {
      short_left -= rows[1];
      most_waited = std::max(most_waited, ++waited);
    }
    gaps.push_back(seconds_of(kDecoding, rows[0] + rows[1]));
    budget.observe(rows[0] + rows[1], kDecoding, gaps.back());
  }
  EXPECT_GT(shorts, 20);
  EXPECT_LE(most_waited, 2 + 1) << "one of them may be the step that measures decoding alone";
  std::ranges::sort(gaps);
  EXPECT_LE(gaps.back(), 2 * gaps[gaps.size() / 2]);
}

/// 32 clients send 127 tokens each at once and take 64: the time of the whole beside reading all first, then decoding.
TEST(PrefillBudget, ManyShortPromptsCostLittleThroughput) {
  constexpr int32_t kClients = 32, kPrompt = 127, kNew = 64;
  PrefillBudget budget(512, 0);
  struct Client {
    int32_t left = kPrompt, made = 0;
  };
  std::vector<Client> clients(kClients);
  double time = 0;
  while (true) {
    std::vector<Pending> pending;
    int64_t decoding = 0, prompts = 0;
    for (const Client& c : clients) {
      const bool decodes = c.left == 0 && c.made < kNew;
      pending.push_back({decodes ? 1 : c.left, decodes});
      decoding += decodes ? 1 : 0;
      prompts += c.left > 0 ? 1 : 0;
    }
    if (decoding == 0 && prompts == 0) break;
    const std::vector<int32_t> rows = schedule(pending, budget.next({decoding, prompts}));
    int64_t read = 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      Client& c = clients[i];
      if (c.left > 0) {
        c.left -= rows[i];
        read += rows[i];
        c.made += c.left == 0 ? 1 : 0;
      } else if (c.made < kNew) {
        ++c.made;
      }
    }
    const double seconds = seconds_of(decoding, read);
    budget.observe(read, decoding, seconds);
    time += seconds;
  }
  double together = kNew * seconds_of(kClients, 0);
  for (int32_t i = 0; i < kClients; ++i) together += seconds_of(0, kPrompt);
  EXPECT_LT(time, 1.1 * together);
}

}  // namespace
}  // namespace cohort
