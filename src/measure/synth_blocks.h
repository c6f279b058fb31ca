// Random blocks of any weight type that `cohort synth` writes: random quants under scales that give the values the
// wanted spread and a mean of zero. Filled directly, so that tens of gigabytes take seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/types.h"

namespace cohort {

/// Whether fill_random_blocks knows the type.
bool can_synthesise(TensorType type);
std::span<const TensorType> synthesised_types();

/// Fills blocks [first, first + count) of a tensor. Block i depends on (seed, i, sigma) alone: the same on every
/// machine and for any cut into pieces. sigma: standard deviation of the values.
void fill_random_blocks(TensorType type, uint64_t seed, int64_t first, int64_t count, float sigma, std::byte* out);

/// A well-mixed 64-bit function of (seed, index): the generator behind all of it (SplitMix64's finaliser: Steele, Lea,
/// Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
constexpr uint64_t random_word(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace cohort
