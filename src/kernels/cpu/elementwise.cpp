#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/elementwise_impl.h"
#include "numerics/simd_generic.h"

namespace cohort::cpu {

extern const ElementwiseKernels kAvx2Elementwise, kAvx512Elementwise, kNeonElementwise;

namespace {
constinit const ElementwiseKernels kScalarElementwise = Elementwise<numerics::GenericOps>::table();
}

const ElementwiseKernels& elementwise_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return kAvx2Elementwise;
    case Isa::avx512:
    case Isa::amx:
      return kAvx512Elementwise;
#elif defined(__aarch64__)
    case Isa::neon:
      return kNeonElementwise;
#endif
    default:
      return kScalarElementwise;
  }
}

}  // namespace cohort::cpu
