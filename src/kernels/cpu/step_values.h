// Where the values of a step lie while it runs (plan.h says which exist): memory that is kept for the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/plan.h"
#include "moe/groups.h"

namespace cohort::cpu {

/// 64-byte aligned floats that only grow.
class FloatBuffer {
 public:
  /// Room for so many; contents are lost when it grows.
  float* reserve(size_t floats);
  float* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  size_t size_ = 0;
};

/// The experts of every row of a layer.
struct Routes {
  std::vector<int32_t> experts;  // [rows * top_k]
  std::vector<float> weights;    // [rows * top_k]
  RouteGroups groups;
};

class StepValues {
 public:
  /// From the next begin() on; the plan must outlive its use.
  void use(const Plan& plan);
  /// Sizes for the rows of `batch`. logits: [sampled rows, vocabulary], where the plan's logits go.
  void begin(const Batch& batch, std::span<float> logits);

  const Batch& batch() const { return *batch_; }
  int64_t rows() const { return rows_; }
  int64_t sampled() const { return sampled_; }
  /// The sequence of a row: index into Batch::sequences.
  int32_t sequence_of(int64_t row) const { return sequence_of_[static_cast<size_t>(row)]; }
  bool in_canvas(int64_t row) const { return batch_->sequences[static_cast<size_t>(sequence_of(row))].canvas; }

  const ValuePlace& place(ValueId id) const { return plan_->values[static_cast<size_t>(id)]; }
  float* floats(ValueId id, int64_t row) const {
    const ValuePlace& p = place(id);
    float* base = p.floats == kCallersBuffer ? logits_.data() : floats_[static_cast<size_t>(p.floats)].data();
    return base + row * p.width;
  }
  const ActivationBuffer& quant(ValueId id) const { return quants_[static_cast<size_t>(place(id).quant)]; }
  Routes& routes(ValueId id) { return routes_[static_cast<size_t>(id)]; }
  /// Rows first .. of `rows` in all, at most kChunkRows of them, in the form that a matrix takes.
  void fill_chunk(ValueId id, bool quantised, int64_t first, int64_t rows, RowChunk& chunk) const;

 private:
  const Plan* plan_ = nullptr;
  const Batch* batch_ = nullptr;
  std::span<float> logits_;
  int64_t rows_ = 0, sampled_ = 0;
  std::vector<FloatBuffer> floats_;
  std::vector<ActivationBuffer> quants_;
  std::vector<Routes> routes_;        // by value
  std::vector<int32_t> sequence_of_;  // by row
};

}  // namespace cohort::cpu
