// A stage of matrices that all rows share, as one flat list of jobs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/step_values.h"

namespace cohort::cpu {

class LinearStage {
 public:
  LinearStage(const LinearKernels& linear, const ElementwiseKernels& elementwise, int threads)
      : linear_(linear), elementwise_(elementwise), threads_(threads) {}

  /// Lists the jobs of a stage of `rows` rows. Stage and values must outlive the jobs.
  void begin(const Stage& stage, const StepValues& values, int64_t rows);
  int64_t jobs() const { return static_cast<int64_t>(jobs_.size()); }
  const Op* op_of(int64_t job) const { return jobs_[static_cast<size_t>(job)].item->op; }
  void run(int64_t job) const;

 private:
  /// Tiles of one matrix times chunks of rows.
  struct Job {
    const LinearItem* item;
    size_t chunks;  // where those of the item's input start
    int64_t first_tile, last_tile;
    int32_t first_chunk, last_chunk;
  };
  size_t chunks_of(const LinearItem& item);

  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  int threads_;
  const StepValues* values_ = nullptr;
  int64_t rows_ = 0;
  std::vector<Job> jobs_;
  std::vector<RowChunk> chunks_;
};

}  // namespace cohort::cpu
