#include "engine/row_kernels_impl.h"
#include "numerics/simd_neon.h"

namespace cohort {

const RowKernels& row_kernels_neon();

const RowKernels& row_kernels_neon() {
  static constexpr RowKernels kKernels = row_kernels_with<numerics::NeonOps>();
  return kKernels;
}

}  // namespace cohort
