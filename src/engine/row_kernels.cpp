#include "engine/row_kernels.h"

#include "engine/row_kernels_impl.h"
#include "numerics/simd_generic.h"

namespace cohort {

#if defined(__x86_64__)
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();
#elif defined(__aarch64__)
const RowKernels& row_kernels_neon();
#endif

const RowKernels& row_kernels(Isa isa) {
  static constexpr RowKernels kGeneric = row_kernels_with<numerics::GenericOps>();
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return row_kernels_avx2();
    case Isa::avx512:
    case Isa::amx:
      return row_kernels_avx512();
#elif defined(__aarch64__)
    case Isa::neon:
      return row_kernels_neon();
#endif
    default:
      return kGeneric;
  }
}

}  // namespace cohort
