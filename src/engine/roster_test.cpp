#include "engine/roster.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cohort {
namespace {

Sequence sequence(SequenceId id, int32_t prompt, int32_t max_tokens, int32_t first_token = 1) {
  Sequence s;
  s.id = id;
  for (int32_t i = 0; i < prompt; ++i) s.request.prompt.push_back(first_token + i);
  s.request.max_tokens = max_tokens;
  s.tokens = s.request.prompt;
  return s;
}

/// One step without a model: every sequence whose rows are complete gets the token 9000 + its length, or ends.
/// Returns the number of rows.
int32_t step(Roster& roster, std::map<SequenceId, int32_t>& generated, int32_t prefill_rows = 64) {
  const std::vector<int32_t> rows = roster.plan(PrefillBudget(prefill_rows, 0));
  EXPECT_EQ(rows.size(), roster.running().size());
  std::vector<SequenceId> ended;
  int32_t total = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    total += rows[i];
    Sequence& s = roster.running()[i];
    EXPECT_LE(s.cached + rows[i], static_cast<int32_t>(s.pages.size()) * kPagePositions) << "rows without a page";
    roster.ran(i, rows[i]);
    if (s.missing() > 0) continue;
    s.tokens.push_back(9000 + s.size());
    generated[s.id] = s.generated();
    if (s.generated() == s.request.max_tokens) ended.push_back(s.id);
  }
  for (const SequenceId id : ended) roster.remove(id);
  return total;
}

int32_t free_pages(const Roster& roster) {
  return roster.pages().available() + roster.pages().reusable();
}

TEST(Roster, EverybodyGetsDoneWhenPagesAreFarTooFew) {
  for (const bool cache : {false, true}) {
    std::mt19937 random(5);
    constexpr int32_t kPages = 10;
    Roster roster(16, kPages, cache);
    std::map<SequenceId, int32_t> wanted, generated;
    for (SequenceId id = 1; id <= 60; ++id) {
      const auto prompt = static_cast<int32_t>(1 + random() % 150);
      const auto tokens = static_cast<int32_t>(1 + random() % 150);
      wanted[id] = tokens;
      roster.add(sequence(id, prompt, tokens, static_cast<int32_t>(random() % 3) * 1000));
    }
    int steps = 0;
    while (roster.waiting() > 0 || !roster.running().empty()) {
      ASSERT_GT(step(roster, generated), 0) << "nothing runs: a deadlock";
      ASSERT_LT(++steps, 100000);
    }
    EXPECT_EQ(generated, wanted);
    EXPECT_GT(roster.preemptions(), 0);
    EXPECT_EQ(free_pages(roster), kPages);
  }
}

TEST(Roster, ASharedBeginningIsReadOnce) {
  Roster roster(8, 64, true);
  std::map<SequenceId, int32_t> generated;
  for (SequenceId id = 1; id <= 4; ++id) {
    Sequence s = sequence(id, 130, 1);
    s.tokens.back() = s.request.prompt.back() = 5000 + static_cast<int32_t>(id);  // they differ in the end
    roster.add(std::move(s));
  }
  int32_t rows = 0;
  while (roster.waiting() > 0 || !roster.running().empty()) rows += step(roster, generated);
  EXPECT_EQ(generated.size(), 4U);
  EXPECT_EQ(rows, 130 + 3 * 2) << "128 positions are four pages, read by the first; the others read two each";
}

TEST(Roster, CancellingFreesPagesAtOnce) {
  Roster roster(4, 16, false);
  std::map<SequenceId, int32_t> generated;
  roster.add(sequence(1, 100, 50));
  roster.add(sequence(2, 100, 50, 500));
  step(roster, generated, 200);
  EXPECT_LT(free_pages(roster), 16);
  roster.remove(1);
  roster.remove(2);
  roster.remove(77);
  EXPECT_EQ(free_pages(roster), 16);
}

TEST(Roster, TheYoungestIsPreemptedAndContinuesWithAllItsTokens) {
  Roster roster(2, 4, false);
  std::map<SequenceId, int32_t> generated;
  roster.add(sequence(1, 31, 90));
  roster.add(sequence(2, 20, 100, 500));
  while (roster.preemptions() == 0) ASSERT_GT(step(roster, generated), 0);
  ASSERT_EQ(roster.running().size(), 1U);
  EXPECT_EQ(roster.running()[0].id, 1U);
  const int32_t before = generated[2];
  EXPECT_GT(before, 0);
  while (roster.waiting() > 0 || !roster.running().empty()) ASSERT_GT(step(roster, generated), 0);
  EXPECT_EQ(generated[1], 90);
  EXPECT_EQ(generated[2], 100);
}

}  // namespace
}  // namespace cohort
