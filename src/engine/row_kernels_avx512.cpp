#include "engine/row_kernels_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort {

const RowKernels& row_kernels_avx512();

const RowKernels& row_kernels_avx512() {
  static constexpr RowKernels kKernels = row_kernels_with<numerics::Avx512Ops>();
  return kKernels;
}

}  // namespace cohort
