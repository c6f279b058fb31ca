#include "engine/sampler_exp_impl.h"
#include "numerics/simd_avx2.h"

namespace cohort {

void exp_below_avx2(std::span<float> values, float maximum) {
  exp_below_with<numerics::Avx2Ops>(values, maximum);
}

}  // namespace cohort
