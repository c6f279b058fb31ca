#include "kernels/cpu/elementwise_impl.h"
#include "numerics/simd_avx2.h"

namespace cohort::cpu {

extern const ElementwiseKernels kAvx2Elementwise;
constinit const ElementwiseKernels kAvx2Elementwise = Elementwise<numerics::Avx2Ops>::table();

}  // namespace cohort::cpu
