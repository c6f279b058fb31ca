// One row of one row-wise operation (RowItem), for the row stages of a step.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/step_values.h"
#include "kv/cache.h"

namespace cohort::cpu {

/// What row items call and where `append` stores keys and values.
struct RowKernels {
  const LinearKernels& linear;
  const ElementwiseKernels& elementwise;
  const AttentionKernels& attention;
  KvCache* cache;
};

/// Row `row` of `rows` (of the stage: all rows of the step, or the sampled ones).
void run_row_item(const RowKernels& kernels, const RowItem& item, int64_t row, int64_t rows, StepValues& values);

}  // namespace cohort::cpu
