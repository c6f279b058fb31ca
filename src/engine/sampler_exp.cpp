#include "engine/sampler_exp.h"

#include "numerics/functions.h"

namespace cohort {

#if defined(__x86_64__)
void exp_below_avx2(std::span<float> values, float maximum);
void exp_below_avx512(std::span<float> values, float maximum);
#elif defined(__aarch64__)
void exp_below_neon(std::span<float> values, float maximum);
#endif

namespace {

void exp_below_scalar(std::span<float> values, float maximum) {
  for (float& value : values) value = numerics::exp(value - maximum);
}

}  // namespace

ExpBelow exp_below(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return exp_below_avx2;
    case Isa::avx512:
    case Isa::amx:
      return exp_below_avx512;
#elif defined(__aarch64__)
    case Isa::neon:
      return exp_below_neon;
#endif
    default:
      return exp_below_scalar;
  }
}

}  // namespace cohort
