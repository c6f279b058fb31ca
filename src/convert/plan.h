// What convert() will write: every tensor with its type, shape and where its rows come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "models/config.h"
#include "models/made_slices.h"
#include "models/weight_store.h"
#include "quant/types.h"

namespace cohort::convert_detail {

/// A tensor of the output. Row r of the output is row source_row(r % rows) of slice r / rows.
struct PlannedTensor {
  std::string name;
  TensorType type = TensorType::f32;         // of the output
  TensorType source_type = TensorType::f32;  // of the slices
  std::vector<int64_t> shape;                // GGUF order
  int64_t rows = 1;                          // of one slice
  int64_t cols = 1;
  std::vector<const std::byte*> slices;
  std::vector<std::shared_ptr<MadeSlices>> made;  // behind the slices, when they have to be made first
  std::vector<const float*> importance;           // of each slice [cols], or nullptr; empty: none
  int64_t rotary_head = 0;  // > 0: rows are heads of this size, whose halves are to be interleaved

  int64_t total_rows() const { return rows * static_cast<int64_t>(slices.size()); }
  int64_t source_row(int64_t row) const {
    if (rotary_head == 0) return row;
    int64_t head = row / rotary_head, within = row % rotary_head;
    return head * rotary_head + (within % 2) * (rotary_head / 2) + within / 2;
  }
};

struct Plan {
  std::vector<PlannedTensor> tensors;
  std::vector<float> rope_factors;  // storage of rope_freqs.weight, if there is one
  std::vector<std::string> notes;   // fallbacks
};

/// Plans all matrices and vectors that `store` handed out. `tied`: the head is the embedding, so none is written. The
/// store (and the files behind it) must outlive the plan.
Plan make_plan(const WeightStore& store, const ModelConfig& config, TensorType type, bool tied);

/// llama.cpp's general.file_type for files whose matrices are mostly `type`.
uint32_t file_type(TensorType type);

}  // namespace cohort::convert_detail
