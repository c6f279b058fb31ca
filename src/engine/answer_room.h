// How many new tokens fit behind a prompt.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "cohort/sampling.h"

namespace cohort {

/// Positions that an answer of so many tokens needs: whole canvases where a model makes those.
inline int64_t answer_positions(const DiffusionRules& rules, int64_t tokens) {
  const int64_t canvas = rules.canvas_length;
  return canvas > 0 ? (tokens + canvas - 1) / canvas * canvas : tokens;
}

/// New tokens that so many positions behind a prompt hold, at most. A model of block diffusion fills whole canvases,
/// and where no other fits, its answers end.
inline int64_t answer_room(const DiffusionRules& rules, int64_t positions) {
  const int64_t canvas = rules.canvas_length;
  return canvas > 0 ? positions / canvas * canvas : positions;
}

/// Behind positions that answer_positions() counts: " in whole canvases of 256", or nothing.
inline std::string in_canvases(const DiffusionRules& rules) {
  return rules.canvas_length > 0 ? fmt::format(" in whole canvases of {}", rules.canvas_length) : "";
}

}  // namespace cohort
