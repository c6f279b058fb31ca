#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort::cpu {

float fma_peak_avx512(int64_t rounds);

float fma_peak_avx512(int64_t rounds) {
  return fma_peak<numerics::Avx512Ops>(rounds);
}

}  // namespace cohort::cpu
