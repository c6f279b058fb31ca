#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/row_kernels.h"
#include "numerics/functions.h"

namespace cohort {

constexpr size_t kRowLanes = 16;  // of every policy

template <class Ops>
void exp_below_with(std::span<float> values, float maximum) {
  const typename Ops::F most = Ops::set(maximum);
  size_t i = 0;
  for (; i + kRowLanes <= values.size(); i += kRowLanes) {
    float* at = values.data() + i;
    Ops::store(at, numerics::exp<Ops>(Ops::sub(Ops::load(at), most)));
  }
  for (; i < values.size(); ++i) values[i] = numerics::exp<numerics::ScalarOps>(values[i] - maximum);
}

/// Two passes: how large, then where. x - x is 0 for numbers and NaN for everything else, so one sum shows whether
/// there is anything else. Four chains of each, because one waits for itself.
template <class Ops>
RowScan scan_with(std::span<const float> values) {
  using F = typename Ops::F;
  constexpr size_t kChains = 4;
  F most[kChains], odd[kChains];
  for (size_t chain = 0; chain < kChains; ++chain) {
    most[chain] = Ops::set(values[0]);
    odd[chain] = Ops::set(0);
  }
  const auto see = [&](size_t chain, size_t at) {
    const F x = Ops::load(values.data() + at);
    most[chain] = Ops::max_number(x, most[chain]);
    odd[chain] = Ops::add(odd[chain], Ops::sub(x, x));
  };
  size_t i = 0;
  for (; i + kChains * kRowLanes <= values.size(); i += kChains * kRowLanes) {
    for (size_t chain = 0; chain < kChains; ++chain) see(chain, i + chain * kRowLanes);
  }
  for (; i + kRowLanes <= values.size(); i += kRowLanes) see(0, i);
  RowScan out;
  out.value = values[0];
  float strange = 0;
  for (size_t chain = 0; chain < kChains; ++chain) {
    out.value = std::max(out.value, Ops::max16(most[chain]));
    strange += Ops::tree16(odd[chain]);
  }
  for (; i < values.size(); ++i) {
    out.value = std::max(out.value, values[i]);
    strange += values[i] - values[i];
  }
  out.finite = strange == 0.0F;
  if (!out.finite) return out;
  const F wanted = Ops::set(out.value);
  size_t at = 0;
  for (; at + kRowLanes <= values.size(); at += kRowLanes) {
    const auto lane = static_cast<size_t>(Ops::first_equal(Ops::load(values.data() + at), wanted));
    if (lane < kRowLanes) {
      out.token = static_cast<int32_t>(at + lane);
      return out;
    }
  }
  while (values[at] != out.value) ++at;
  out.token = static_cast<int32_t>(at);
  return out;
}

template <class Ops>
constexpr RowKernels row_kernels_with() {
  return {exp_below_with<Ops>, scan_with<Ops>};
}

}  // namespace cohort
