#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_neon.h"

namespace cohort::cpu {

float fma_peak_neon(int64_t rounds);

float fma_peak_neon(int64_t rounds) {
  return fma_peak<numerics::NeonOps>(rounds);
}

}  // namespace cohort::cpu
