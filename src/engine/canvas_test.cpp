#include "engine/canvas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "engine/row_kernels.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort {
namespace {

DiffusionRules small_rules() {
  DiffusionRules rules;
  rules.canvas_length = 8;
  rules.max_steps = 4;
  return rules;
}

std::vector<float> random_logits(size_t count, uint32_t seed, float spread) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = spread * (uniform(seed, static_cast<uint32_t>(i), 0, 0) - 0.5F);
  return out;
}

/// Nearly certain of `token`.
std::vector<float> sure_of(int32_t token, size_t vocabulary = 50) {
  std::vector<float> logits(vocabulary, -20.0F);
  logits[static_cast<size_t>(token)] = 20.0F;
  return logits;
}

CanvasRow read(std::vector<float> logits, float temperature, float u) {
  auto row = read_canvas_row(logits, temperature, u);
  EXPECT_TRUE(row.has_value());
  return row ? *row : CanvasRow{};
}

TEST(numerics_log, is_within_two_units_in_the_last_place) {
  for (uint32_t i = 0; i < 100000; ++i) {
    const float x = std::ldexp(1.0F + uniform(1, i, 0, 0), static_cast<int>(i % 40) - 20);
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(numerics::log(x), exact, 2.4e-7 * std::max(std::abs(exact), 0.1)) << x;
  }
  EXPECT_EQ(numerics::log(1.0F), 0.0F);
}

TEST(canvas, temperature_falls_in_a_line) {
  DiffusionRules rules;
  EXPECT_FLOAT_EQ(temperature_at(rules, 48), 0.8F);
  EXPECT_FLOAT_EQ(temperature_at(rules, 24), 0.6F);
  EXPECT_FLOAT_EQ(temperature_at(rules, 1), 0.4F + 0.4F / 48);
}

TEST(canvas, a_row_is_the_textbook_up_to_rounding) {
  for (const size_t vocabulary : {1U, 5U, 17U, 255U, 256U, 300U, 5000U}) {
    for (const float spread : {0.0F, 3.0F, 40.0F}) {
      const std::vector<float> logits = random_logits(vocabulary, 7, spread);
      std::vector<double> p(vocabulary);
      double total = 0, entropy = 0;
      const double most = *std::ranges::max_element(logits) / 0.7;
      for (size_t i = 0; i < vocabulary; ++i) total += p[i] = std::exp(logits[i] / 0.7 - most);
      for (double& x : p) {
        x /= total;
        entropy -= x > 0 ? x * std::log(x) : 0;
      }
      const CanvasRow row = read(logits, 0.7F, 0.4F);
      EXPECT_EQ(row.best, std::ranges::max_element(logits) - logits.begin());
      EXPECT_NEAR(row.entropy, entropy, 1e-5);
      double before = 0;
      for (int32_t i = 0; i < row.drawn; ++i) before += p[static_cast<size_t>(i)];
      EXPECT_LE(before, 0.4 + 1e-6);
      EXPECT_GE(before + p[static_cast<size_t>(row.drawn)], 0.4 - 1e-6);
      size_t kept = 0;
      for (size_t i = 0; i < vocabulary; ++i) {
        if (kept < row.mixture.tokens.size() && row.mixture.tokens[kept] == static_cast<int32_t>(i)) {
          EXPECT_NEAR(row.mixture.weights[kept++], p[i], 1e-5 * p[i]);  // logits of 57 lose 2^-19
        } else {
          EXPECT_LT(p[i], 0x1.0001p-25);
        }
      }
      EXPECT_EQ(kept, row.mixture.tokens.size());
    }
  }
}

TEST(canvas, a_draw_hits_every_token_as_often_as_it_should) {
  std::vector<float> logits = {0.0F, std::log(2.0F), -100.0F, std::log(5.0F)};
  std::vector<int> hits(4);
  for (uint32_t i = 0; i < 8000; ++i) ++hits[static_cast<size_t>(read(logits, 1.0F, uniform(3, i, 0, 0)).drawn)];
  EXPECT_NEAR(hits[0], 1000, 120);
  EXPECT_NEAR(hits[1], 2000, 160);
  EXPECT_EQ(hits[2], 0);
  EXPECT_NEAR(hits[3], 5000, 180);
}

TEST(canvas, sums_are_the_same_bits_on_every_instruction_set) {
  for (const size_t size : {1U, 15U, 16U, 255U, 256U, 257U, 300U, 1031U}) {
    const std::vector<float> logits = random_logits(size, 11, 60.0F);
    const float most = *std::ranges::max_element(logits);
    std::vector<float> e(size), sums, moments;
    for (size_t first = 0; first < size; first += kRowChunk) {
      float sum[numerics::kLanes] = {}, moment[numerics::kLanes] = {};
      for (size_t i = first; i < std::min(size, first + kRowChunk); ++i) {
        const float d = logits[i] - most;
        e[i] = numerics::exp(d);
        sum[i % numerics::kLanes] += e[i];
        moment[i % numerics::kLanes] = std::fma(e[i], d, moment[i % numerics::kLanes]);
      }
      sums.push_back(numerics::tree16(sum));
      moments.push_back(numerics::tree16(moment));
    }
    for (const Isa isa : available_isas()) {
      std::vector<float> values = logits, got_sums(sums.size()), got_moments(sums.size());
      row_kernels(isa).weigh(values, most, got_sums, got_moments);
      EXPECT_EQ(values, e) << isa_name(isa) << " " << size;
      EXPECT_EQ(got_sums, sums) << isa_name(isa) << " " << size;
      EXPECT_EQ(got_moments, moments) << isa_name(isa) << " " << size;
      values = logits;
      row_kernels(isa).divide(values, 0.37F);
      for (size_t i = 0; i < size; ++i) EXPECT_EQ(values[i], logits[i] / 0.37F);
    }
  }
}

TEST(canvas, a_row_that_is_not_finite_is_an_error) {
  for (const float strange : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> logits(30, 1.0F);
    logits[20] = strange;
    const auto row = read_canvas_row(logits, 0.5F, 0.5F);
    ASSERT_FALSE(row.has_value());
    EXPECT_EQ(row.error().code, ErrorCode::internal);
  }
  std::vector<float> wide(30, -3e38F);  // finite, but their differences to the largest are not
  wide[20] = 3e38F;
  const auto row = read_canvas_row(wide, 1, 0.5F);
  ASSERT_FALSE(row.has_value());
  EXPECT_NE(row.error().message.find("spans more than a float holds"), std::string::npos) << row.error().message;
}

TEST(canvas, accepts_the_surest_rows_within_the_bound) {
  using Mask = std::vector<bool>;
  // Ascending 0.01 0.05 0.05 0.2 3: what comes before each of them is 0, 0.01, 0.06, 0.11, 0.31.
  const std::vector<float> entropies = {3.0F, 0.05F, 0.01F, 0.2F, 0.05F};
  EXPECT_EQ(accepted_rows(entropies, 0.1F), (Mask{false, true, true, false, true}));
  EXPECT_EQ(accepted_rows(entropies, 0.12F), (Mask{false, true, true, true, true}));
  EXPECT_EQ(accepted_rows(entropies, 0.03F), (Mask{false, true, true, false, false}));  // of equals the first
  EXPECT_EQ(accepted_rows(entropies, 10.0F), (Mask(5, true)));
  EXPECT_EQ(accepted_rows(entropies, 0.0F), (Mask{false, false, true, false, false}));  // one at least
  EXPECT_EQ(accepted_rows(std::vector<float>{9.0F}, 0.0F), Mask{true});
}

TEST(canvas, starts_at_random_and_depends_on_seed_and_place_only) {
  const DiffusionRules rules = small_rules();
  const auto start = [&](CanvasRandom random, int32_t first) {
    const Canvas canvas(rules, random, first, 1000);
    return std::vector<int32_t>(canvas.tokens().begin(), canvas.tokens().end());
  };
  const auto tokens = start({1, 0}, 100);
  EXPECT_EQ(tokens, start({1, 0}, 100));
  EXPECT_NE(tokens, start({2, 0}, 100));
  EXPECT_NE(tokens, start({1, 1}, 100));
  const auto later = start({1, 0}, 103);
  EXPECT_TRUE(std::equal(tokens.begin() + 3, tokens.end(), later.begin()));
  EXPECT_TRUE(std::ranges::all_of(tokens, [](int32_t t) { return t >= 0 && t < 1000; }));
}

/// One step whose rows are sure of `tokens`; a negative one is unsure.
void step(Canvas& canvas, const std::vector<int32_t>& tokens) {
  std::vector<CanvasRow> rows;
  for (int32_t i = 0; i < canvas.length(); ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    std::vector<float> logits = token >= 0 ? sure_of(token) : random_logits(50, static_cast<uint32_t>(i), 0.5F);
    auto row = canvas.read(i, logits);
    ASSERT_TRUE(row.has_value());
    rows.push_back(std::move(*row));
  }
  canvas.settle(std::move(rows));
}

TEST(canvas, keeps_what_is_sure_and_draws_the_rest_anew) {
  Canvas canvas(small_rules(), {5, 0}, 40, 50);
  const std::vector<int32_t> before(canvas.tokens().begin(), canvas.tokens().end());
  EXPECT_TRUE(canvas.mixtures().empty());
  step(canvas, {7, 8, -1, -1, 9, -1, -1, -1});
  EXPECT_EQ(canvas.tokens()[0], 7);
  EXPECT_EQ(canvas.tokens()[1], 8);
  EXPECT_EQ(canvas.tokens()[4], 9);
  int same = 0;
  for (const size_t i : {2U, 3U, 5U, 6U, 7U}) same += canvas.tokens()[i] == before[i] ? 1 : 0;
  EXPECT_LT(same, 3);  // drawn anew; and one of them was the surest within the bound
  ASSERT_EQ(canvas.mixtures().size(), 8U);
  EXPECT_EQ(canvas.mixtures()[0].tokens, std::vector<int32_t>{7});
  EXPECT_EQ(canvas.mixtures()[2].tokens.size(), 50U);
  canvas.forget_mixtures();
  EXPECT_TRUE(canvas.mixtures().empty());
  EXPECT_FALSE(canvas.done());
}

TEST(canvas, ends_when_stable_and_sure_or_after_the_last_step) {
  const std::vector<int32_t> one = {1, 2, 3, 4, 5, 6, 7, 8}, other = {1, 2, 3, 4, 5, 6, 7, 9};
  Canvas stable(small_rules(), {}, 0, 50);
  step(stable, one);
  EXPECT_FALSE(stable.done());
  step(stable, other);
  EXPECT_FALSE(stable.done());
  step(stable, other);
  EXPECT_TRUE(stable.done());
  EXPECT_EQ(stable.steps(), 3);
  EXPECT_TRUE(std::ranges::equal(stable.best(), other));

  Canvas unsure(small_rules(), {}, 0, 50);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(unsure.done());
    step(unsure, {1, 2, 3, 4, 5, 6, 7, -1});
  }
  EXPECT_TRUE(unsure.done());
  EXPECT_GT(unsure.mean_entropy(), 0.1F);

  DiffusionRules at_once = small_rules();
  at_once.stability = 0;
  Canvas sure(at_once, {}, 0, 50);
  step(sure, one);
  EXPECT_TRUE(sure.done());

  DiffusionRules twice = small_rules();
  twice.stability = 2;
  Canvas slow(twice, {}, 0, 50);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(slow.done());
    step(slow, one);
  }
  EXPECT_TRUE(slow.done());
}

TEST(canvas, options_are_checked_and_named) {
  const auto message = [](DiffusionOptions options) {
    const auto rules = with_options(small_rules(), options);
    return rules ? std::string() : rules.error().message;
  };
  DiffusionOptions o;
  o.max_steps = 0;
  EXPECT_NE(message(o).find("--diffusion-steps) is 0"), std::string::npos);
  o = {};
  o.t_min = 0.9F;
  EXPECT_NE(message(o).find("--diffusion-t-max"), std::string::npos);
  o.t_max = 0.9F;
  EXPECT_EQ(message(o), "");
  o.t_min = o.t_max = 0.0F;
  EXPECT_NE(message(o).find("at least 0.001"), std::string::npos);
  o = {};
  o.entropy_bound = std::nanf("");
  EXPECT_NE(message(o).find("--diffusion-entropy-bound"), std::string::npos);
  o = {};
  o.max_steps = 12;
  o.confidence = 1.0F;
  const auto rules = with_options(small_rules(), o);
  ASSERT_TRUE(rules.has_value());
  EXPECT_EQ(rules->max_steps, 12);
  EXPECT_EQ(rules->confidence, 1.0F);
  EXPECT_EQ(rules->canvas_length, 8);
}

}  // namespace
}  // namespace cohort
