#include "kernels/cpu/attention_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort::cpu {

extern const AttentionKernels kAvx512Attention;
constinit const AttentionKernels kAvx512Attention = Attention<numerics::Avx512Ops>::table();

}  // namespace cohort::cpu
