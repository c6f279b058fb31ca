// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A draw is a function of (seed, position, draw, stream) and of nothing else, so company cannot change
// it.
#pragma once

#include <array>
#include <cstdint>

#if defined(__CUDACC__)
#define COHORT_RNG_HD __host__ __device__
#else
#define COHORT_RNG_HD
#endif

namespace cohort {

COHORT_RNG_HD constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                                           std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Uniform in [0, 1) with 24 bits (docs/NUMERICS.md, rule 8).
COHORT_RNG_HD constexpr float uniform(uint64_t seed, uint32_t position, uint32_t draw, uint32_t stream) {
  const auto words =
      philox4x32({position, draw, stream, 0U}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(words[0] >> 8) * 0x1p-24F;
}

/// Uniform in [0, bound), from the same counters.
COHORT_RNG_HD constexpr uint32_t random_below(uint64_t seed, uint32_t position, uint32_t draw, uint32_t stream,
                                              uint32_t bound) {
  const auto words =
      philox4x32({position, draw, stream, 0U}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<uint32_t>((uint64_t{words[0]} * bound) >> 32);
}

}  // namespace cohort
