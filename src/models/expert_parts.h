// Some of a layer's experts, for those who keep them elsewhere than the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/program.h"

namespace cohort {

/// The matrices of the given experts, in that order; they stay where they are.
inline Weight part_of(const Weight& all, std::span<const int32_t> experts) {
  Weight some = all;
  some.experts = static_cast<int64_t>(experts.size());
  some.slices.clear();
  for (int32_t expert : experts) some.slices.push_back(all.slices[static_cast<size_t>(expert)]);
  return some;
}

/// The biases of the given experts, in that order; all: of every expert, of so many rows each.
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
