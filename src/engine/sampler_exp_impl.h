#pragma once

#include <cstddef>
#include <span>

#include "numerics/functions.h"

namespace cohort {

template <class Ops>
void exp_below_with(std::span<float> values, float maximum) {
  constexpr size_t kLanes = 16;  // of every policy
  const typename Ops::F most = Ops::set(maximum);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    float* at = values.data() + i;
    Ops::store(at, numerics::exp<Ops>(Ops::sub(Ops::load(at), most)));
  }
  for (; i < values.size(); ++i) values[i] = numerics::exp<numerics::ScalarOps>(values[i] - maximum);
}

}  // namespace cohort
