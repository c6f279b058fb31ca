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
void divide_with(std::span<float> values, float divisor) {
  const typename Ops::F by = Ops::set(divisor);
  size_t i = 0;
  for (; i + kRowLanes <= values.size(); i += kRowLanes) {
    float* at = values.data() + i;
    Ops::store(at, Ops::div(Ops::load(at), by));
  }
  for (; i < values.size(); ++i) values[i] = values[i] / divisor;
}

template <class Ops>
void weigh_with(std::span<float> values, float maximum, std::span<float> sums, std::span<float> moments) {
  using F = typename Ops::F;
  const F most = Ops::set(maximum), zero = Ops::set(0.0F);
  for (size_t chunk = 0; chunk * kRowChunk < values.size(); ++chunk) {
    const size_t end = (chunk + 1) * kRowChunk < values.size() ? (chunk + 1) * kRowChunk : values.size();
    F sum = zero, moment = zero;
    size_t i = chunk * kRowChunk;
    for (; i + kRowLanes <= end; i += kRowLanes) {
      float* at = values.data() + i;
      const F d = Ops::sub(Ops::load(at), most), e = numerics::exp<Ops>(d);
      sum = Ops::add(sum, e);
      moment = Ops::fma(e, d, moment);
      Ops::store(at, e);
    }
    if (i < end) {  // lanes without a value add 0 to sums that are never -0: no change
      const int n = static_cast<int>(end - i);
      float* at = values.data() + i;
      const F d = Ops::sub(Ops::load_part(at, n, maximum), most), e = Ops::within(numerics::exp<Ops>(d), zero, 0, n);
      sum = Ops::add(sum, e);
      moment = Ops::fma(e, d, moment);
      Ops::store_part(at, e, n);
    }
    sums[chunk] = Ops::tree16(sum);
    moments[chunk] = Ops::tree16(moment);
  }
}

template <class Ops>
constexpr RowKernels row_kernels_with() {
  return {exp_below_with<Ops>, scan_with<Ops>, divide_with<Ops>, weigh_with<Ops>};
}

}  // namespace cohort
