#include "kernels/cpu/elementwise_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort::cpu {

extern const ElementwiseKernels kAvx512Elementwise;
constinit const ElementwiseKernels kAvx512Elementwise = Elementwise<numerics::Avx512Ops>::table();

}  // namespace cohort::cpu
