#include "kernels/cpu/attention_impl.h"
#include "numerics/simd_avx2.h"

namespace cohort::cpu {

extern const AttentionKernels kAvx2Attention;
constinit const AttentionKernels kAvx2Attention = Attention<numerics::Avx2Ops>::table();

}  // namespace cohort::cpu
