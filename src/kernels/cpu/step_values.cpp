#include "kernels/cpu/step_values.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace cohort::cpu {

void FloatBuffer::Free::operator()(float* memory) const {
  std::free(memory);
}

float* FloatBuffer::reserve(size_t floats) {
  if (floats > size_) {
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
    if (!memory_) throw std::bad_alloc();
    size_ = floats;
  }
  return memory_.get();
}

void StepValues::use(const Plan& plan) {
  plan_ = &plan;
  floats_.resize(plan.float_widths.size());
  quants_.clear();  // sizes may have changed
  quants_.resize(plan.quants.size());
  routes_.resize(plan.values.size());
}

void StepValues::begin(const Batch& batch, std::span<float> logits) {
  batch_ = &batch;
  logits_ = logits;
  rows_ = batch.rows();
  sampled_ = static_cast<int64_t>(batch.sampled_rows.size());
  for (size_t i = 0; i < floats_.size(); ++i) floats_[i].reserve(static_cast<size_t>(rows_ * plan_->float_widths[i]));
  for (size_t i = 0; i < quants_.size(); ++i) quants_[i].reserve(rows_, plan_->quants[i].width, plan_->quants[i].sums);
  for (size_t v = 0; v < plan_->values.size(); ++v) {
    if (plan_->values[v].kind != ValueKind::routes) continue;
    const auto count = static_cast<size_t>(rows_ * plan_->values[v].width);
    routes_[v].experts.resize(count);
    routes_[v].weights.resize(count);
  }
  sequence_of_.resize(static_cast<size_t>(rows_));
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceRows& sequence = batch.sequences[s];
    std::fill_n(sequence_of_.begin() + sequence.first_row, sequence.rows, static_cast<int32_t>(s));
  }
}

void StepValues::fill_chunk(ValueId id, bool quantised, int64_t first, int64_t rows, RowChunk& chunk) const {
  chunk.rows = static_cast<int32_t>(std::min<int64_t>(kChunkRows, rows - first));
  if (quantised) {
    chunk.quant = quant(id).chunk(first / kChunkRows, rows);
    return;
  }
  for (int32_t r = 0; r < chunk.rows; ++r) chunk.floats[r] = floats(id, first + r);
}

}  // namespace cohort::cpu
