// How many new tokens fit behind a prompt.
#pragma once

#include <cstdint>

#include "cohort/engine.h"

namespace cohort {

/// Positions that an answer of so many tokens needs: whole canvases where a model makes those.
inline int64_t answer_positions(const Engine& engine, int64_t tokens) {
  const int64_t canvas = engine.diffusion().canvas_length;
  return canvas > 0 ? (tokens + canvas - 1) / canvas * canvas : tokens;
}

/// New tokens that so many positions behind a prompt hold, at most. A model of block diffusion fills whole canvases,
/// and where no other fits, its answers end.
inline int64_t answer_room(const Engine& engine, int64_t positions) {
  const int64_t canvas = engine.diffusion().canvas_length;
  return canvas > 0 ? positions / canvas * canvas : positions;
}

}  // namespace cohort
