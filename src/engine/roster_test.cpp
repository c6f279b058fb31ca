#include "engine/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

namespace cohort {
namespace {

Sequence sequence(SequenceId id, int32_t prompt, int32_t max_tokens, int32_t first_token = 1, int32_t priority = 0) {
  Sequence s;
  s.id = id;
  s.request.priority = priority;
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

std::vector<SequenceId> ids(const std::vector<Sequence>& sequences) {
  std::vector<SequenceId> out;
  for (const Sequence& s : sequences) out.push_back(s.id);
  return out;
}
using Ids = std::vector<SequenceId>;

TEST(RosterPriority, WaitingOnesAreAdmittedByPriorityThenByArrival) {
  Roster roster(1, 64, false);
  std::map<SequenceId, int32_t> generated;
  const std::array<int32_t, 6> priorities{3, 0, -2, 0, -2, 3};
  for (SequenceId id = 1; id <= priorities.size(); ++id)
    roster.add(sequence(id, 10, 2, static_cast<int32_t>(id) * 100, priorities[id - 1]));
  EXPECT_EQ(roster.waiting_by_priority(), (std::map<int32_t, size_t>{{-2, 2}, {0, 2}, {3, 2}}));
  Ids order;
  while (roster.waiting() > 0 || !roster.running().empty()) {
    const size_t before = generated.size();
    ASSERT_GT(step(roster, generated), 0);
    if (generated.size() == before) continue;
    for (const auto& [id, tokens] : generated)
      if (std::ranges::find(order, id) == order.end()) order.push_back(id);
  }
  EXPECT_EQ(order, (Ids{3, 5, 2, 4, 1, 6}));
  EXPECT_EQ(roster.preemptions(), 0);
  EXPECT_TRUE(roster.waiting_by_priority().empty());
}

TEST(RosterPriority, AnUrgentNewcomerTakesThePlaceOfTheLastAndGivesItBack) {
  Roster roster(2, 64, false);
  std::map<SequenceId, int32_t> generated;
  roster.add(sequence(1, 10, 40, 100, 1));
  roster.add(sequence(2, 10, 40, 200, 1));
  roster.add(sequence(3, 10, 5, 300, 1));
  for (int i = 0; i < 4; ++i) step(roster, generated);
  EXPECT_EQ(ids(roster.running()), (Ids{1, 2}));
  const int32_t before = generated[2];
  EXPECT_GT(before, 0);
  roster.add(sequence(4, 10, 3, 400, 1));  // no more urgent: waits
  step(roster, generated);
  EXPECT_EQ(roster.preemptions(), 0);
  roster.add(sequence(5, 10, 3, 500, 0));
  step(roster, generated);
  EXPECT_EQ(ids(roster.running()), (Ids{5, 1})) << "the latest of the least urgent gave way";
  EXPECT_EQ(roster.preemptions(), 1);
  EXPECT_EQ(roster.waiting(), 3U);
  while (generated[5] < 3) ASSERT_GT(step(roster, generated), 0);
  step(roster, generated);
  EXPECT_EQ(ids(roster.running()), (Ids{1, 2})) << "2 is back before 3 and 4, which came later";
  while (roster.waiting() > 0 || !roster.running().empty()) ASSERT_GT(step(roster, generated), 0);
  EXPECT_EQ(generated, (std::map<SequenceId, int32_t>{{1, 40}, {2, 40}, {3, 5}, {4, 3}, {5, 3}}));
  EXPECT_EQ(free_pages(roster), 64);
}

TEST(RosterPriority, AnUrgentNewcomerTakesPagesOfTheLeastUrgentOnly) {
  Roster roster(8, 8, false);
  std::map<SequenceId, int32_t> generated;
  roster.add(sequence(1, 60, 90, 100, 0));
  roster.add(sequence(2, 30, 90, 200, 9));
  roster.add(sequence(3, 30, 90, 300, 5));
  step(roster, generated, 200);
  EXPECT_EQ(ids(roster.running()), (Ids{1, 3, 2}));
  roster.add(sequence(4, 150, 5, 400, -3));
  step(roster, generated, 200);
  EXPECT_EQ(ids(roster.running()), (Ids{4, 1, 3, 2}))
      << "there is a place, and nobody gives way before its pages are needed";
  while (roster.preemptions() == 0) ASSERT_GT(step(roster, generated, 200), 0);
  EXPECT_EQ(ids(roster.running()), (Ids{4, 1, 3}));
  EXPECT_EQ(roster.preemptions(), 1);
  while (roster.waiting() > 0 || !roster.running().empty()) ASSERT_GT(step(roster, generated), 0);
  EXPECT_EQ(generated, (std::map<SequenceId, int32_t>{{1, 90}, {2, 90}, {3, 90}, {4, 5}}));
  EXPECT_EQ(free_pages(roster), 8);
}

/// Steps until `id` has its first token, while a sequence of priority 0 arrives every second; each takes two steps.
/// Returns how many of those were before it.
int waits_for(double aging, int32_t priority, int most) {
  Roster roster(1, 64, false, aging);
  std::map<SequenceId, int32_t> generated;
  SequenceId id = 1;
  double now = 1000;
  const auto arrive = [&](int32_t p) {
    Sequence s = sequence(id, 5, 2, static_cast<int32_t>(id) * 10, p);
    s.arrival = now;
    roster.add(std::move(s));
    return id++;
  };
  arrive(0);
  const SequenceId patient = arrive(priority);
  for (int before = 1; before < most; ++before) {
    now += 1;
    arrive(0);
    for (int i = 0; i < 2; ++i) step(roster, generated);
    if (generated.contains(patient)) return before;
  }
  return most;
}

TEST(RosterPriority, ALevelIsWorthSoManySecondsOfWaiting) {
  EXPECT_NEAR(waits_for(10, 3, 1000), 31, 2);
  EXPECT_NEAR(waits_for(2, 50, 1000), 101, 2);
  EXPECT_EQ(waits_for(0, 1, 1000), 1000) << "without ageing it waits as long as urgent ones come";
}

TEST(RosterPriority, ARunningStreamThatIsOldEnoughDoesNotGiveWay) {
  Roster roster(1, 64, false, 10);
  std::map<SequenceId, int32_t> generated;
  Sequence old = sequence(1, 5, 50, 100, 1), urgent = sequence(2, 5, 5, 200, 0);
  old.arrival = 100;
  urgent.arrival = 110.5;
  roster.add(std::move(old));
  step(roster, generated);
  roster.add(std::move(urgent));
  step(roster, generated);
  EXPECT_EQ(ids(roster.running()), (Ids{1}));
  EXPECT_EQ(roster.preemptions(), 0);
}

TEST(RosterPriority, NobodyIsLostWhateverArrivesAndGoes) {
  for (const bool cache : {false, true}) {
    for (const double aging : {0.0, 0.5}) {
      std::mt19937 random(11);
      constexpr int32_t kPages = 12;
      Roster roster(6, kPages, cache, aging);
      std::map<SequenceId, int32_t> wanted, generated;
      SequenceId id = 0;
      int steps = 0;
      while (id < 200 || roster.waiting() > 0 || !roster.running().empty()) {
        if (random() % 16 == 0 && id < 200) {
          const auto prompt = static_cast<int32_t>(1 + random() % 150),
                     tokens = static_cast<int32_t>(1 + random() % 90);
          Sequence s = sequence(++id, prompt, tokens, static_cast<int32_t>(random() % 3) * 1000,
                                static_cast<int32_t>(random() % 7) - 3);
          s.arrival = steps * 0.01;
          roster.add(std::move(s));
          wanted[id] = tokens;
        }
        if (random() % 40 == 0) {  // a client goes
          const SequenceId gone = 1 + random() % id;
          if (wanted.contains(gone) && generated[gone] < wanted[gone]) {
            roster.remove(gone);
            wanted.erase(gone);
          }
        }
        const int32_t rows = step(roster, generated);
        ASSERT_TRUE(rows > 0 || roster.running().empty()) << "nothing runs: a deadlock";
        ASSERT_TRUE(std::ranges::is_sorted(roster.running(), [](const auto& a, const auto& b) { return a.before(b); }));
        ASSERT_LT(++steps, 100000);
      }
      for (const auto& [which, tokens] : wanted) EXPECT_EQ(generated[which], tokens) << which;
      EXPECT_GT(roster.preemptions(), 0);
      EXPECT_EQ(free_pages(roster), kPages);
      EXPECT_TRUE(roster.waiting_by_priority().empty());
    }
  }
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
