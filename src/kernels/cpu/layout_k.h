// Packing of Q4_K, Q5_K and Q6_K from the file's bytes, a word at a time, without decoding every value.
#pragma once

#include "kernels/cpu/layout.h"

namespace cohort::cpu {

/// Packs one row of `weight` into lane `lane` of a tile, scales and quants as layout.h has them. False: another type,
/// nothing was done. The quants of five and six bits must be zero before.
bool pack_k_row(const Weight& weight, const std::byte* row, int64_t blocks, int32_t lane, std::byte* scales,
                std::byte* quants);

}  // namespace cohort::cpu
