#include "kernels/cpu/attention_impl.h"
#include "numerics/simd_neon.h"

namespace cohort::cpu {

extern const AttentionKernels kNeonAttention;
constinit const AttentionKernels kNeonAttention = Attention<numerics::NeonOps>::table();

}  // namespace cohort::cpu
