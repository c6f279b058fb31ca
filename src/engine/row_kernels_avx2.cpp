#include "engine/row_kernels_impl.h"
#include "numerics/simd_avx2.h"

namespace cohort {

const RowKernels& row_kernels_avx2();

const RowKernels& row_kernels_avx2() {
  static constexpr RowKernels kKernels = row_kernels_with<numerics::Avx2Ops>();
  return kKernels;
}

}  // namespace cohort
