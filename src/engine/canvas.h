// One canvas of block diffusion and how its tokens are chosen (docs/NUMERICS.md, rule 10). A function of the rows'
// logits, the rules, the seed and the canvas's place, so company cannot change a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/error.h"
#include "cohort/sampling.h"
#include "kernels/batch.h"
#include "kernels/canvas_reader.h"

namespace cohort {

/// The rules with what `options` want otherwise. invalid_argument names the option, its value and its limits.
Expected<DiffusionRules> with_options(DiffusionRules rules, const DiffusionOptions& options);

/// Of the step that leaves `left` steps, itself included, of rules.max_steps.
float temperature_at(const DiffusionRules& rules, int32_t left);

/// What a step says of one row.
struct CanvasRow {
  int32_t best = 0;   // the most likely token, ties to the lower id
  int32_t drawn = 0;  // one at random
  float entropy = 0;  // nats
  Mixture mixture;
};
/// logits [vocabulary] are scratch afterwards; u in [0, 1) draws. internal: a logit, or a difference of two, is no
/// finite number.
Expected<CanvasRow> read_canvas_row(std::span<float> logits, float temperature, float u);
/// The same of a row that was read elsewhere, where its mixture stays.
Expected<CanvasRow> canvas_row_of(const CanvasReading& reading, float temperature);

/// Which rows a step accepts: in ascending order of entropy, ties to the lower row, those whose predecessors' entropies
/// sum up to at most `bound`; the surest always.
std::vector<bool> accepted_rows(std::span<const float> entropies, float bound);

/// Where random numbers come from: Philox of (seed, position, draw, stream).
struct CanvasRandom {
  uint64_t seed = 0;
  uint32_t stream = 0;
};

class Canvas {
 public:
  /// Positions first_position ... first_position + canvas_length - 1, random tokens of `vocabulary`.
  Canvas(const DiffusionRules& rules, CanvasRandom random, int32_t first_position, int32_t vocabulary);

  int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t steps() const { return steps_; }
  /// What the next step starts from.
  std::span<const int32_t> tokens() const { return tokens_; }
  /// What the rows were thought to hold; empty before the first step.
  std::span<const Mixture> mixtures() const { return mixtures_; }

  /// The step that starts from them has run: their memory is needed for its own.
  void forget_mixtures() { mixtures_ = {}; }

  /// How row `row` of the step that starts from them is read.
  CanvasRule rule(int32_t row) const;
  /// What the logits [vocabulary] of row `row` say; they are scratch afterwards. Rows may be read by different threads.
  Expected<CanvasRow> read(int32_t row, std::span<float> logits) const;
  /// The step's rows, all of them: the next canvas, or the end.
  void settle(std::vector<CanvasRow> rows);

  bool done() const { return done_; }
  /// The most likely tokens of the last step: the result when done().
  std::span<const int32_t> best() const { return best_; }
  float mean_entropy() const { return mean_entropy_; }

 private:
  uint32_t position(int32_t row) const { return static_cast<uint32_t>(first_position_ + row); }
  int32_t random_token(int32_t row, uint32_t draw) const;

  DiffusionRules rules_;
  CanvasRandom random_;
  int32_t first_position_, vocabulary_;
  int32_t steps_ = 0;
  int32_t unchanged_ = 0;  // steps before the last one that had its best tokens
  bool done_ = false;
  float mean_entropy_ = 0;
  std::vector<int32_t> tokens_, best_;
  std::vector<Mixture> mixtures_;
};

}  // namespace cohort
