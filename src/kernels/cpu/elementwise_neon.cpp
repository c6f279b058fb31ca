#include "kernels/cpu/elementwise_impl.h"
#include "numerics/simd_neon.h"

namespace cohort::cpu {

extern const ElementwiseKernels kNeonElementwise;
constinit const ElementwiseKernels kNeonElementwise = Elementwise<numerics::NeonOps>::table();

}  // namespace cohort::cpu
