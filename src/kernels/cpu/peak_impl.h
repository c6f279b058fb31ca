// The peak loops over an Ops policy; compiled once per instruction set.
#pragma once

#include "kernels/cpu/peak.h"

namespace cohort::cpu {

template <class Ops>
float fma_peak(int64_t rounds) {
  // As many chains as the registers of the instruction set hold; narrower sets go through the 16 chains in parts.
  constexpr int kChains = Ops::kTileVectors < 16 ? Ops::kTileVectors : 16;
  const auto factor = Ops::set(0.999F);
  typename Ops::F chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = Ops::set(static_cast<float>(i));
  for (int64_t left = rounds * 16 / kChains; left > 0; --left) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) chains[i] = Ops::fma(chains[i], factor, factor);
  }
  for (int i = 1; i < kChains; ++i) chains[0] = Ops::add(chains[0], chains[i]);
  return Ops::tree16(chains[0]);
}

}  // namespace cohort::cpu
