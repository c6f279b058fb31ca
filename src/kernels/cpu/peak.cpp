#include "kernels/cpu/peak.h"

#include "kernels/cpu/peak_impl.h"
#include "numerics/simd_generic.h"

namespace cohort::cpu {

float fma_peak_avx2(int64_t rounds);
float fma_peak_avx512(int64_t rounds);
float fma_peak_neon(int64_t rounds);
int32_t int8_peak_avx512(int64_t rounds);
int32_t int8_peak_amx(int64_t rounds);
int32_t int8_peak_neon(int64_t rounds);

PeakKernel fma_peak_kernel(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return fma_peak_avx2;
    case Isa::avx512:
    case Isa::amx:
      return fma_peak_avx512;
#elif defined(__aarch64__)
    case Isa::neon:
      return fma_peak_neon;
#endif
    default:
      return fma_peak<numerics::GenericOps>;
  }
}

IntPeak int8_peak_kernel(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx512:
      return {16 * 64, int8_peak_avx512};
    case Isa::amx:
      return {4 * 16 * 16 * 64, int8_peak_amx};
#elif defined(__aarch64__)
    case Isa::neon:
      return {16 * 16, int8_peak_neon};
#endif
    default:
      return {0, nullptr};
  }
}

}  // namespace cohort::cpu
