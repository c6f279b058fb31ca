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

/// How the device holds weights that are not quantised: f16 and bf16 as they are, all others as f32.
FloatType float_type(TensorType type);
/// Row `row` of slice `expert` of such a weight: value k stands in block k / (16 n), lane k mod 16, place k / 16 mod n,
/// with n values in 16 bytes. out: float_row_bytes(float_type(type), cols) bytes; past the end are zeros.
void pack_float_row(const Weight& weight, int64_t expert, int64_t row, std::byte* out);

}  // namespace cohort::cuda
