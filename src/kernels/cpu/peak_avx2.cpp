#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_avx2.h"

namespace cohort::cpu {

float fma_peak_avx2(int64_t rounds);

float fma_peak_avx2(int64_t rounds) {
  return fma_peak<numerics::Avx2Ops>(rounds);
}

}  // namespace cohort::cpu
