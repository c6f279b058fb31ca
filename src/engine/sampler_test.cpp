#include "engine/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "engine/row_kernels.h"
#include "numerics/functions.h"

namespace cohort {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams plain() {
  SamplingParams p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  return p;
}

int32_t pick(std::vector<float> logits, const SamplingParams& p, std::vector<int32_t> tokens = {0},
             uint32_t position = 1) {
  auto result = sample(logits, p, tokens, position);
  EXPECT_TRUE(result.has_value());
  return result ? result->token : -1;
}

// Known answer of Random123's test vectors (Salmon et al.): zero key and counter, and all ones.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Sampler, GreedyTakesTheLowestOfEqualTokens) {
  SamplingParams p = plain();
  p.temperature = 0;
  EXPECT_EQ(pick({1, 3, 2, 3}, p), 1);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.25F), std::log(0.125F), std::log(0.125F)};
  SamplingParams p = plain();
  std::vector<int> counts(4);
  constexpr int kDraws = 20000;
  for (uint32_t position = 0; position < kDraws; ++position)
    ++counts[static_cast<size_t>(pick(logits, p, {0}, position))];
  const double expected[]{0.5, 0.25, 0.125, 0.125};
  for (size_t i = 0; i < 4; ++i) {
    const double sigma = std::sqrt(kDraws * expected[i] * (1 - expected[i]));
    EXPECT_NEAR(counts[i], kDraws * expected[i], 5 * sigma) << i;
  }
}

TEST(Sampler, SeedPositionAndStreamDecide) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7) * 0.1F;
  SamplingParams p = plain();
  EXPECT_EQ(pick(logits, p), pick(logits, p));
  const auto differs = [&](const SamplingParams& other, uint32_t position) {
    int different = 0;
    for (uint32_t i = 0; i < 20; ++i) different += pick(logits, p, {0}, i) != pick(logits, other, {0}, i + position);
    return different > 10;
  };
  SamplingParams other = p;
  other.seed = 1;
  EXPECT_TRUE(differs(other, 0));
  other = p;
  other.stream = 1;
  EXPECT_TRUE(differs(other, 0));
  EXPECT_TRUE(differs(p, 1000));
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};
  const auto seen = [&](const SamplingParams& p) {
    std::vector<bool> kept(4);
    for (uint32_t position = 0; position < 500; ++position)
      kept[static_cast<size_t>(pick(logits, p, {0}, position))] = true;
    return kept;
  };
  SamplingParams p = plain();
  EXPECT_EQ(seen(p), (std::vector<bool>{true, true, true, true}));
  p.top_k = 2;
  EXPECT_EQ(seen(p), (std::vector<bool>{false, true, true, false}));
  p = plain();
  p.top_p = 0.65F;  // 0.4 + 0.3 reach it
  EXPECT_EQ(seen(p), (std::vector<bool>{false, true, true, false}));
  p = plain();
  p.min_p = 0.45F;  // of the largest: 0.18
  EXPECT_EQ(seen(p), (std::vector<bool>{false, true, true, true}));
  p = plain();
  p.top_p = 0;  // the most likely one always stays
  EXPECT_EQ(seen(p), (std::vector<bool>{false, true, false, false}));
}

TEST(Sampler, TinyTemperaturesChooseTheLikeliest) {
  SamplingParams p = plain();
  std::vector<TopLogit> top;
  for (int32_t i = 0; i < 8; ++i) top.push_back({i, 30.0F - static_cast<float>(i)});
  for (const float temperature : {1e-45F, 1e-38F, 1e-20F, 1e-7F, 2e-6F, 1e-4F}) {
    p.temperature = temperature;
    p.top_k = 0;
    EXPECT_EQ(pick({20, -35, 30, 29.9F}, p), 2) << temperature;
    p.top_k = 4;
    EXPECT_EQ(pick({20, -35, 30, 29.9F}, p), 2) << temperature;
    const auto sampled = sample_top(top, {}, p, 1);
    ASSERT_TRUE(sampled);
    EXPECT_EQ(sampled->token, 0) << temperature;
  }
}

TEST(Sampler, PenaltiesAndBias) {
  SamplingParams p = plain();
  p.temperature = 0;
  EXPECT_EQ(pick({2, 1.9F}, p, {0}), 0);
  p.repeat_penalty = 1.2F;
  EXPECT_EQ(pick({2, 1.9F}, p, {0}), 1);
  EXPECT_EQ(pick({-2, -2.1F}, p, {0}), 1);
  p.penalty_window = 1;
  EXPECT_EQ(pick({2, 1.9F}, p, {0, 1}), 0) << "token 0 has left the window";
  p = plain();
  p.temperature = 0;
  p.frequency_penalty = 0.04F;
  EXPECT_EQ(pick({2, 1.9F}, p, {0, 0}), 0);
  EXPECT_EQ(pick({2, 1.9F}, p, {0, 0, 0}), 1);
  p = plain();
  p.temperature = 0;
  p.presence_penalty = 0.2F;
  EXPECT_EQ(pick({2, 1.9F}, p, {0, 0, 0}), 1);
  p = plain();
  p.temperature = 0;
  p.logit_bias = {{1, 5.0F}};
  EXPECT_EQ(pick({2, 1.9F}, p), 1);
  p.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
  p.temperature = 1;
  EXPECT_EQ(pick({2, 1.9F}, p), 0) << "everything forbidden: defined, not undefined";
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  SamplingParams p = plain();
  p.temperature = 0;
  p.logit_bias = {{0, 100.0F}};
  p.logprobs = 2;
  std::vector<float> logits{std::log(0.1F), std::log(0.6F), std::log(0.3F)};
  auto result = sample(logits, p, std::vector<int32_t>{0}, 1);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->token, 0);
  EXPECT_NEAR(result->logprob, std::log(0.1), 1e-5);
  ASSERT_EQ(result->top.size(), 2U);
  EXPECT_EQ(result->top[0].token, 1);
  EXPECT_NEAR(result->top[0].logprob, std::log(0.6), 1e-5);
  EXPECT_EQ(result->top[1].token, 2);
}

TEST(Sampler, NanIsAnErrorNotAToken) {
  std::vector<float> logits{1, std::nanf(""), 2};
  auto result = sample(logits, plain(), std::vector<int32_t>{0}, 7);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("token 1 at position 7"), std::string::npos) << result.error().message;
}

TEST(Sampler, RefusesValuesOutOfRange) {
  const auto message = [](auto change) {
    SamplingParams p;
    change(p);
    const auto result = check(p, 100);
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = -1; }).find("temperature is -1"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = std::nanf(""); }), "");
  EXPECT_NE(message([](SamplingParams& p) { p.top_p = 1.5F; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.repeat_penalty = 0; }).find("repeat_penalty"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias = {{100, 1.0F}}; }).find("token 100"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias = {{1, std::nanf("")}}; }), "");
}

/// The `count` largest of `logits`, as a device gives them.
std::vector<TopLogit> largest(const std::vector<float>& logits, size_t count) {
  std::vector<TopLogit> top;
  for (size_t i = 0; i < logits.size(); ++i) top.push_back({static_cast<int32_t>(i), logits[i]});
  std::stable_sort(top.begin(), top.end(), [](const TopLogit& a, const TopLogit& b) { return a.logit > b.logit; });
  top.resize(count);
  return top;
}

TEST(Sampler, TheLargestLogitsAloneGiveTheSameChoice) {
  constexpr size_t kVocabulary = 3000, kTop = 64;
  int undecided = 0;
  for (uint32_t round = 0; round < 400; ++round) {
    std::vector<float> logits(kVocabulary);
    // Every third round has few distinct values, so that ties lie at the edge of top_k.
    for (size_t i = 0; i < kVocabulary; ++i) {
      const float u = uniform(round, static_cast<uint32_t>(i), 3, 0);
      logits[i] = round % 3 == 0 ? std::floor(200 * u) / 20 : 10 * u;
    }
    SamplingParams p;
    p.seed = round;
    p.temperature = round % 5 == 0 ? 0.0F : 0.3F * static_cast<float>(round % 5);
    p.top_k = 1 + static_cast<int32_t>(round % 63);
    p.top_p = round % 2 == 0 ? 0.9F : 1.0F;
    const auto chosen = sample_top(largest(logits, kTop), {}, p, round);
    undecided += chosen ? 0 : 1;
    if (!chosen) continue;
    EXPECT_EQ(chosen->token, pick(logits, p, {0}, round)) << round;
  }
  EXPECT_GT(undecided, 0);
  EXPECT_LT(undecided, 200);
}

TEST(Sampler, TheLargestLogitsAloneDoNotDecideWhatDependsOnOthers) {
  std::vector<float> logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  const std::vector<TopLogit> top = largest(logits, 64);
  SamplingParams p;
  EXPECT_TRUE(sample_top(top, {}, p, 0));
  const auto refused = [&](auto&& change) {
    SamplingParams other = p;
    change(other);
    return !sample_top(top, {}, other, 0);
  };
  EXPECT_TRUE(refused([](SamplingParams& o) { o.top_k = 0; }));
  EXPECT_TRUE(refused([](SamplingParams& o) { o.top_k = 64; }));
  EXPECT_TRUE(refused([](SamplingParams& o) { o.repeat_penalty = 1.1F; }));
  EXPECT_TRUE(refused([](SamplingParams& o) { o.presence_penalty = 0.1F; }));
  EXPECT_TRUE(refused([](SamplingParams& o) { o.logit_bias = {{3, 1.0F}}; }));
  EXPECT_TRUE(refused([](SamplingParams& o) { o.logprobs = 0; }));
  std::vector<TopLogit> broken = top;
  broken[0].logit = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(sample_top(broken, {}, p, 0));
  // Temperature makes equals of what differs by one unit in the last place: the lower id wins, which may not be seen.
  SamplingParams hot;
  hot.temperature = 1.8F;
  hot.top_k = 1;
  float low = 1.9F;
  while (low / hot.temperature != std::nextafter(low, 2.0F) / hot.temperature) low = std::nextafter(low, 2.0F);
  std::vector<float> close(100, low);
  close[50] = std::nextafter(low, 2.0F);
  EXPECT_FALSE(sample_top(largest(close, 64), {}, hot, 0));
}

TEST(Sampler, ADrawFromAllLogitsGivesTheSameChoice) {
  constexpr size_t kVocabulary = 3000, kTop = 64;
  int undecided = 0, nucleus = 0;
  for (uint32_t round = 0; round < 600; ++round) {
    std::vector<float> logits(kVocabulary);
    // From one that has nearly everything to many that are alike; every third round has ties.
    for (size_t i = 0; i < kVocabulary; ++i) {
      const float u = uniform(round, static_cast<uint32_t>(i), 4, 0);
      logits[i] = (round % 3 == 0 ? std::floor(50 * u) / 50 : u) * static_cast<float>(1 + round % 40);
    }
    if (round % 50 == 7) logits[round] = -std::numeric_limits<float>::infinity();
    SamplingParams p;
    p.seed = round;
    p.stream = round % 3;
    p.temperature = 0.3F + 0.2F * static_cast<float>(round % 5);
    p.top_k = round % 4 == 0 ? kVocabulary : 0;
    p.top_p = round % 2 == 0 ? 0.5F + 0.1F * static_cast<float>(round % 5) : 1.0F;
    p.min_p = round % 7 < 3 ? 0.02F * static_cast<float>(round % 7) : 0.0F;
    const Draw drawn = draw_from(logits, draw_rule(p, round, kVocabulary));
    ASSERT_GE(drawn.token, 0) << round;
    const auto chosen = sample_top(largest(logits, kTop), drawn, p, round);
    EXPECT_TRUE(chosen || p.top_p < 1) << round;
    undecided += chosen ? 0 : 1;
    if (!chosen) continue;
    nucleus += p.top_p < 1 ? 1 : 0;
    EXPECT_EQ(chosen->token, pick(logits, p, {0}, round)) << round;
  }
  EXPECT_GT(undecided, 0);
  EXPECT_GT(nucleus, 30);
}

TEST(Sampler, ADrawIsAskedForWhereNothingElseIsInTheWay) {
  SamplingParams p;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0.25F;
  p.temperature = 0.5F;
  p.seed = 9;
  p.stream = 2;
  const DrawRule rule = draw_rule(p, 31, 1000);
  EXPECT_EQ(rule.temperature, 0.5F);
  EXPECT_EQ(rule.min_p, 0.25F);
  EXPECT_EQ(rule.u, uniform(9, 31, 0, 2));
  const auto wanted = [&](auto&& change) {
    SamplingParams other = p;
    change(other);
    return draw_rule(other, 31, 1000).temperature > 0;
  };
  EXPECT_TRUE(wanted([](SamplingParams& o) { o.top_k = 1000; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.top_k = 999; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.temperature = 0; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.repeat_penalty = 1.1F; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.frequency_penalty = 0.1F; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.logit_bias = {{3, 1.0F}}; }));
  EXPECT_FALSE(wanted([](SamplingParams& o) { o.logprobs = 0; }));
  // min_p comes after top_p.
  p.top_p = 0.9F;
  EXPECT_EQ(draw_rule(p, 31, 1000).min_p, 0.0F);
}

TEST(Sampler, LogitsThatAreNoNumbersAreNotDrawnFrom) {
  const DrawRule rule{1.0F, 0.0F, 0.5F};
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(draw_from(std::vector<float>{0, std::nanf(""), 1}, rule).token, -1);
  EXPECT_EQ(draw_from(std::vector<float>{0, infinity, 1}, rule).token, -1);
  EXPECT_EQ(draw_from(std::vector<float>{-infinity, -infinity}, rule).token, -1);
  EXPECT_EQ(draw_from(std::vector<float>{-infinity, 3}, rule).token, 1);
  EXPECT_EQ(draw_from(std::vector<float>{1, 2}, {}).token, -1);
}

/// docs/NUMERICS.md, rule 8, as it is written: one token after another, everything sorted.
int32_t pick_plainly(std::vector<float> logits, const SamplingParams& p, uint32_t position) {
  std::vector<std::pair<int32_t, float>> candidates;  // ascending by token
  float maximum = -kInfinity;
  for (float& logit : logits) {
    logit = logit / p.temperature;
    maximum = std::max(maximum, logit);
  }
  for (size_t i = 0; i < logits.size(); ++i)
    candidates.emplace_back(static_cast<int32_t>(i), numerics::exp(logits[i] - maximum));
  const auto sums = [&] {
    std::vector<float> out;
    int32_t chunk = -1;
    for (const auto& [token, value] : candidates) {
      if (token / 256 != chunk) out.push_back(0);
      chunk = token / 256;
      out.back() += value;
    }
    return out;
  };
  const auto total = [&] {
    float out = 0;
    for (const float sum : sums()) out += sum;
    return out;
  };
  if (p.top_p < 1) {
    const float limit = p.top_p * total();
    std::ranges::sort(candidates, [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    float running = 0;
    size_t kept = 0;
    while (kept < candidates.size() && (kept == 0 || running < limit)) running += candidates[kept++].second;
    candidates.resize(kept);
    std::ranges::sort(candidates);
  }
  const float target = uniform(p.seed, position, 0, p.stream) * total();
  float before = 0;
  size_t i = 0;
  for (const float sum : sums()) {
    const int32_t chunk = candidates[i].first / 256;
    float running = before;
    for (; i < candidates.size() && candidates[i].first / 256 == chunk; ++i) {
      running += candidates[i].second;
      if (before + sum > target && running > target) return candidates[i].first;
    }
    if (before + sum > target) return candidates[i - 1].first;
    before += sum;
  }
  return candidates.back().first;
}

TEST(Sampler, FastPathsChooseWhatTheDefinitionChooses) {
  for (const size_t vocabulary : {1U, 7U, 255U, 1024U, 3001U}) {
    for (const float top_p : {1.0F, 0.999F, 0.9F, 0.3F, 0.0F}) {
      for (const float spread : {0.0F, 1.0F, 12.0F}) {
        for (uint32_t position = 0; position < 25; ++position) {
          std::vector<float> logits(vocabulary);
          for (size_t i = 0; i < vocabulary; ++i)
            logits[i] = spread * (uniform(9, static_cast<uint32_t>(i), position, 0) - 0.5F);
          SamplingParams p = plain();
          p.top_p = top_p;
          p.temperature = position % 2 == 0 ? 1.0F : 0.7F;
          p.seed = 77;
          EXPECT_EQ(pick(logits, p, {0}, position), pick_plainly(logits, p, position))
              << vocabulary << " tokens, top_p " << top_p << ", spread " << spread << ", position " << position;
        }
      }
    }
  }
}

TEST(Sampler, NanIsFoundWhereverItIs) {
  for (size_t at = 0; at < 100; ++at) {
    std::vector<float> logits(100, 1.0F);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const auto result = sample(logits, plain(), std::vector<int32_t>{0}, 1);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find(fmt::format("token {} ", at)), std::string::npos);
  }
}

TEST(ExpBelow, EveryInstructionSetGivesTheBitsOfTheDefinition) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 5003; ++i) values.push_back(-110 * uniform(3, i, 0, 0));
  values[17] = -kInfinity;
  values[4999] = 0;
  for (const Isa isa : available_isas()) {
    std::vector<float> got = values;
    row_kernels(isa).exp_below(got, 1.5F);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(numerics::exp(values[i] - 1.5F)))
          << isa_name(isa) << " " << values[i];
    }
  }
}

TEST(Sampler, ScanFindsTheFirstOfTheLargestOnEveryInstructionSet) {
  for (size_t size = 1; size < 300; size += size < 70 ? 1 : 13) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i)
      values[i] = std::floor(uniform(size, static_cast<uint32_t>(i), 0, 0) * 40) - 30;  // ties, mostly negative
    const auto first = std::ranges::max_element(values);
    for (const Isa isa : available_isas()) {
      const RowScan scan = row_kernels(isa).scan(values);
      EXPECT_TRUE(scan.finite) << isa_name(isa) << " " << size;
      EXPECT_EQ(scan.token, first - values.begin()) << isa_name(isa) << " " << size;
      EXPECT_EQ(scan.value, *first) << isa_name(isa) << " " << size;
      for (const float strange : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> broken = values;
        broken[size * 7 / 9] = strange;
        EXPECT_FALSE(row_kernels(isa).scan(broken).finite) << isa_name(isa) << " " << size << " " << strange;
      }
    }
  }
}

TEST(Sampler, InfiniteLogitsAreChosenFromAsOthersAre) {
  SamplingParams p = plain();
  p.temperature = 0;
  std::vector<float> logits(100, -kInfinity);
  logits[60] = logits[70] = -3;
  EXPECT_EQ(pick(logits, p), 60);
  logits[71] = kInfinity;
  EXPECT_EQ(pick(logits, p), 71);
  logits[10] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(sample(logits, p, std::vector<int32_t>{0}, 1));
}

}  // namespace
}  // namespace cohort
