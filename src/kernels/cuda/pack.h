// Weights from their file layout to the device layout (layout.h), on the host.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/layout.h"
#include "models/weights.h"

namespace cohort::cuda {

/// The format that holds a quantised type without loss.
Format format_of(TensorType type);

/// Whether NVFP4's two scales of a block need two roundings (docs/NUMERICS.md, rule 3).
bool has_two_groups(TensorType type);

/// Packs rows [16 * tile, 16 * tile + 16) of slice `expert`; rows past the end become zeros.
/// out: blocks / super_blocks * super_bytes bytes.
void pack_tile(Format format, const Weight& weight, int64_t expert, int64_t tile, std::byte* out);

}  // namespace cohort::cuda
