// Loops that do nothing but arithmetic, to measure what a core can do: the denominators of `cohort doctor` and of the
// notes in docs/perf.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.h"

namespace cohort::cpu {

/// f32 multiply-adds of one round of fma_peak_kernel: 16 independent chains of 16 lanes.
inline constexpr int64_t kPeakFmas = 16 * 16;

/// Runs `rounds` rounds and returns a value that depends on all of them.
using PeakKernel = float (*)(int64_t rounds);
PeakKernel fma_peak_kernel(Isa isa);

/// int8 x int8 multiply-adds into int32 of one round, and the loop; {0, nullptr} for sets without such an instruction
/// (scalar; avx2, which needs three).
struct IntPeak {
  int64_t multiply_adds;
  int32_t (*run)(int64_t rounds);
};
IntPeak int8_peak_kernel(Isa isa);

}  // namespace cohort::cpu
