// What a program computes with: matrices as the file holds them, and small float vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quant/types.h"

namespace cohort {

class MadeSlices;

/// A matrix, or one matrix per expert: [experts, rows, cols], y = W x with x of `cols` values.
struct Weight {
  std::string name;  // GGUF's name without ".weight": "blk.0.ffn_gate_exps"
  TensorType type = TensorType::f32;
  int64_t experts = 1;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // K
  /// One pointer per expert to `rows` consecutive encoded rows of row_bytes(type, cols) each: of a mapped file that the
  /// Model owns, or of `made`, and then there only while a SliceHold (models/made_slices.h) lives.
  std::vector<const std::byte*> slices;
  std::vector<std::shared_ptr<MadeSlices>> made = {};

  size_t slice_bytes() const { return row_bytes(type, cols) * static_cast<size_t>(rows); }
  size_t bytes() const { return slice_bytes() * static_cast<size_t>(experts); }
};

/// A norm weight, a bias, a scale: always f32.
struct VectorWeight {
  std::string name;
  std::vector<float> values;
};

}  // namespace cohort
