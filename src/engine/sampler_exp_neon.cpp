#include "engine/sampler_exp_impl.h"
#include "numerics/simd_neon.h"

namespace cohort {

void exp_below_neon(std::span<float> values, float maximum) {
  exp_below_with<numerics::NeonOps>(values, maximum);
}

}  // namespace cohort
