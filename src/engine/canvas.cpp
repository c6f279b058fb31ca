#include "engine/canvas.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "base/rng.h"
#include "engine/limits.h"
#include "engine/row_kernels.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort {
namespace {

const RowKernels& kernels() {
  static const RowKernels& best = row_kernels(best_isa());
  return best;
}

/// Tokens less likely than this are left out of a mixture. All that are left out of a row of 262144 tokens weigh less
/// than 1/128 together, which is what bf16 rounds off the others.
constexpr float kLeastWeight = 0x1p-25F;

/// The first token at which the running sum exceeds `target`; sums [chunks].
int32_t draw(std::span<const float> weights, std::span<const float> sums, float target) {
  float running = 0;
  for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
    if (!(running + sums[chunk] > target)) {
      running += sums[chunk];
      continue;
    }
    const size_t end = std::min((chunk + 1) * kRowChunk, weights.size());
    for (size_t i = chunk * kRowChunk; i < end; ++i) {
      running += weights[i];
      if (running > target) return static_cast<int32_t>(i);
    }
    return static_cast<int32_t>(end - 1);  // the chunk's sum may round above its running sum
  }
  return static_cast<int32_t>(weights.size() - 1);
}

Mixture mixture_of(std::span<const float> weights, std::span<const float> sums, float inverse) {
  Mixture out;
  for (size_t chunk = 0; chunk < sums.size(); ++chunk) {
    if (sums[chunk] * inverse < kLeastWeight) continue;  // a sum of weights is no less than any of them
    const size_t end = std::min((chunk + 1) * kRowChunk, weights.size());
    for (size_t i = chunk * kRowChunk; i < end; ++i) {
      const float weight = weights[i] * inverse;
      if (weight < kLeastWeight) continue;
      out.tokens.push_back(static_cast<int32_t>(i));
      out.weights.push_back(weight);
    }
  }
  return out;
}

}  // namespace

Expected<DiffusionRules> with_options(DiffusionRules rules, const DiffusionOptions& options) {
  rules.max_steps = options.max_steps.value_or(rules.max_steps);
  rules.stability = options.stability.value_or(rules.stability);
  rules.t_min = options.t_min.value_or(rules.t_min);
  rules.t_max = options.t_max.value_or(rules.t_max);
  rules.entropy_bound = options.entropy_bound.value_or(rules.entropy_bound);
  rules.confidence = options.confidence.value_or(rules.confidence);
  const auto in_range = [](std::string_view what, auto value, auto low, auto high) -> Expected<void> {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected {} to {}", what, value, low, high);
  };
  COHORT_TRY(in_range("the length of a canvas (diffusion.canvas_length)", rules.canvas_length, 1, kMaxCanvas));
  COHORT_TRY(in_range("the most steps of a canvas (--diffusion-steps)", rules.max_steps, 1, kMaxDiffusionSteps));
  COHORT_TRY(in_range("the steps without a change that end a canvas (--diffusion-stability)", rules.stability, 0,
                      kMaxDiffusionSteps));
  COHORT_TRY(
      in_range("the last temperature (--diffusion-t-min)", rules.t_min, 0.0F, static_cast<float>(kMaxTemperature)));
  COHORT_TRY(
      in_range("the first temperature (--diffusion-t-max)", rules.t_max, 0.0F, static_cast<float>(kMaxTemperature)));
  COHORT_TRY(
      in_range("the entropy that a step accepts (--diffusion-entropy-bound)", rules.entropy_bound, 0.0F, kMaxEntropy));
  COHORT_TRY(in_range("the entropy below which a canvas may end (--diffusion-confidence)", rules.confidence, 0.0F,
                      kMaxEntropy));
  if (rules.t_max < rules.t_min) {
    return fail(ErrorCode::invalid_argument,
                "the first temperature (--diffusion-t-max) is {}, below the last one (--diffusion-t-min), {}",
                rules.t_max, rules.t_min);
  }
  if (const float least = temperature_at(rules, 1); least < kLeastDiffusionTemperature) {
    return fail(ErrorCode::invalid_argument,
                "the temperature of a canvas's last step is {}; expected at least {} (--diffusion-t-min)", least,
                kLeastDiffusionTemperature);
  }
  return rules;
}

float temperature_at(const DiffusionRules& rules, int32_t left) {
  const float part = static_cast<float>(left) / static_cast<float>(rules.max_steps);
  return rules.t_min + (rules.t_max - rules.t_min) * part;
}

Expected<CanvasRow> canvas_row_of(const CanvasReading& reading, float temperature) {
  if (!reading.finite) {
    return fail(ErrorCode::internal,
                "a logit is not a finite number: the weights hold NaN or Inf, or overflow (temperature {})",
                temperature);
  }
  CanvasRow row;
  row.best = reading.best;
  row.drawn = reading.drawn;
  row.entropy = numerics::log(reading.total) - reading.moment / reading.total;
  if (!std::isfinite(row.entropy)) {
    return fail(ErrorCode::internal,
                "a row of logits spans more than a float holds: the weights overflow (temperature {})", temperature);
  }
  return row;
}

Expected<CanvasRow> read_canvas_row(std::span<float> logits, float temperature, float u) {
  kernels().divide(logits, temperature);
  const RowScan scan = kernels().scan(logits);
  CanvasReading reading;
  reading.finite = scan.finite;
  reading.best = scan.token;
  const size_t chunks = (logits.size() + kRowChunk - 1) / kRowChunk;
  std::vector<float> sums(chunks), moments(chunks);
  if (scan.finite) {
    kernels().weigh(logits, scan.value, sums, moments);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      reading.total += sums[chunk];
      reading.moment += moments[chunk];
    }
    reading.drawn = draw(logits, sums, u * reading.total);
  }
  COHORT_ASSIGN(CanvasRow row, canvas_row_of(reading, temperature));
  row.mixture = mixture_of(logits, sums, 1.0F / reading.total);
  return row;
}

std::vector<bool> accepted_rows(std::span<const float> entropies, float bound) {
  std::vector<size_t> order(entropies.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t row) { return entropies[row]; });
  std::vector<bool> accepted(entropies.size());
  float sum = 0;
  for (const size_t row : order) {
    sum += entropies[row];
    accepted[row] = sum - entropies[row] <= bound;
  }
  return accepted;
}

Canvas::Canvas(const DiffusionRules& rules, CanvasRandom random, int32_t first_position, int32_t vocabulary)
    : rules_(rules), random_(random), first_position_(first_position), vocabulary_(vocabulary) {
  tokens_.resize(static_cast<size_t>(rules.canvas_length));
  for (int32_t row = 0; row < length(); ++row) tokens_[static_cast<size_t>(row)] = random_token(row, 0);
}

int32_t Canvas::random_token(int32_t row, uint32_t draw) const {
  return static_cast<int32_t>(
      random_below(random_.seed, position(row), draw, random_.stream, static_cast<uint32_t>(vocabulary_)));
}

CanvasRule Canvas::rule(int32_t row) const {
  // Draw 0 made the first canvas; step k = 1, 2, ... has draws 2k - 1 for the choice and 2k for the noise.
  const auto draw = static_cast<uint32_t>(2 * steps_ + 1);
  return {temperature_at(rules_, rules_.max_steps - steps_),
          uniform(random_.seed, position(row), draw, random_.stream)};
}

Expected<CanvasRow> Canvas::read(int32_t row, std::span<float> logits) const {
  const CanvasRule rule = this->rule(row);
  return read_canvas_row(logits, rule.temperature, rule.u);
}

void Canvas::settle(std::vector<CanvasRow> rows) {
  ++steps_;
  std::vector<float> entropies;
  bool changed = best_.empty();
  best_.resize(tokens_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    entropies.push_back(rows[i].entropy);
    changed = changed || best_[i] != rows[i].best;
    best_[i] = rows[i].best;
  }
  unchanged_ = changed ? 0 : unchanged_ + 1;
  const auto count = static_cast<int64_t>(entropies.size());
  mean_entropy_ = numerics::sum16(entropies.data(), count) / static_cast<float>(count);
  done_ = steps_ == rules_.max_steps || (unchanged_ >= rules_.stability && mean_entropy_ < rules_.confidence);
  if (done_) {
    mixtures_.clear();
    return;
  }
  const std::vector<bool> accepted = accepted_rows(entropies, rules_.entropy_bound);
  mixtures_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int32_t>(i);
    tokens_[i] = accepted[i] ? rows[i].drawn : random_token(row, static_cast<uint32_t>(2 * steps_));
    mixtures_[i] = std::move(rows[i].mixture);
  }
}

}  // namespace cohort
