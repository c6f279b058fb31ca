// What the rows of canvases were thought to hold (op::Mix; docs/NUMERICS.md, rule 10), as a flat list of jobs: so many
// rows of one canvas, so many columns. A job walks the vocabulary once, in order: of every few tokens, those that one
// of its rows holds are decoded once and added to each row that does.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cpu/elementwise.h"
#include "models/program.h"

namespace cohort::cpu {

class MixStage {
 public:
  explicit MixStage(const ElementwiseKernels& kernels) : kernels_(kernels) {}

  /// out: [rows of the batch, cols of the table]. `batch` must live until the jobs have run.
  void begin(const op::Mix& mix, const Batch& batch, float* out);
  int64_t jobs() const { return static_cast<int64_t>(jobs_.size()); }
  void run(int64_t job) const;

 private:
  struct Job {
    const SequenceRows* sequence;
    int32_t first_row, rows;  // within the sequence
    int64_t first_column, columns;
  };
  const ElementwiseKernels& kernels_;
  op::Mix mix_{};
  float* out_ = nullptr;
  std::vector<Job> jobs_;
};

}  // namespace cohort::cpu
