// What a backend can do besides if it reads canvases of block diffusion itself (docs/NUMERICS.md, rule 10): their
// logits, and what a step thinks of their rows, stay where the next step needs them.
#pragma once

#include <cstdint>
#include <span>

#include "cohort/error.h"
#include "kernels/batch.h"

namespace cohort {

/// How a row of a canvas is read.
struct CanvasRule {
  float temperature = 1;
  float u = 0;  // the random number
};

/// What a step says of a row of a canvas, but for what it may hold. The sums run over the vocabulary.
struct CanvasReading {
  int32_t best = 0;    // the most likely token, ties to the lower id
  int32_t drawn = 0;   // one at random
  float total = 0;     // L: of e_i = exp(d_i)
  float moment = 0;    // S: of e_i * d_i
  bool finite = true;  // false: a logit is not, and the rest means nothing
};

/// Where what is thought of a sequence's canvas is kept: -1 nowhere, for rows that are no canvas's. kept: a step before
/// has left something there.
struct CanvasPlace {
  int32_t place = -1;
  bool kept = false;
};

class CanvasReader {
 public:
  virtual ~CanvasReader() = default;
  /// Places 0, 1, ... for canvases; 0: the program has none.
  virtual int32_t canvas_places() const = 0;
  /// As Backend::run, but the rows of canvases are read, and what they may hold is kept in their places for the next
  /// step: mixtures of the batch are not looked at. All rows of all canvases are sampled, no others. places: [sequences
  /// of the batch]; rules, readings: [sampled rows]. (Backend::run may take any place for mixtures of its caller's.)
  virtual Expected<StepStats> run_canvases(const Batch& batch, std::span<const CanvasPlace> places,
                                           std::span<const CanvasRule> rules, std::span<CanvasReading> readings) = 0;
};

}  // namespace cohort
