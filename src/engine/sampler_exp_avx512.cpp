#include "engine/sampler_exp_impl.h"
#include "numerics/simd_avx512.h"

namespace cohort {

void exp_below_avx512(std::span<float> values, float maximum) {
  exp_below_with<numerics::Avx512Ops>(values, maximum);
}

}  // namespace cohort
