// The biases of some of a layer's experts, for those who keep them elsewhere than the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/program.h"

namespace cohort {

/// Those of the given experts, in that order; all: of every expert, of so many rows each.
inline VectorWeight biases_of(const VectorWeight& all, std::span<const int32_t> experts, int64_t rows) {
  VectorWeight some{all.name, {}};
  some.values.reserve(experts.size() * static_cast<size_t>(rows));
  for (int32_t expert : experts) {
    const float* bias = bias_of(&all, expert, rows);
    some.values.insert(some.values.end(), bias, bias + rows);
  }
  return some;
}

}  // namespace cohort
