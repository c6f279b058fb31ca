// The inner kernels of one instruction set: pure functions on pointers, no threads. linear_<isa>.cpp fills the table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/layout.h"

namespace cohort::cpu {

/// One tile of a packed weight times one chunk of rows.
struct TileCall {
  const std::byte* tile;
  const PackedShape* shape;
  const ActivationChunk* x;
  float* out;  // [x->rows][out_stride], 16 (or `outputs`) floats of each row are written
  int64_t out_stride;
  int32_t outputs;  // 1 .. 16
  // What to fetch meanwhile. One pass over the tile takes as long as reading it: `next` is the tile that follows (or
  // null), of which the front is fetched near the end of this one. Several passes over the tile (many rows) would leave
  // the memory idle after the first: then `ahead` is this call's share of a tile that comes later (or null), fetched
  // evenly over all passes.
  const std::byte* next;
  const std::byte* ahead = nullptr;
  int64_t ahead_bytes = 0;
};

/// Rows of a float weight times rows of f32: dot16 over all of K.
struct FloatCall {
  const std::byte* weight;  // first of `outputs` rows
  size_t row_bytes;
  TensorType type;        // f32, f16 or bf16
  const float* const* x;  // [rows]
  float* const* out;      // [rows], `outputs` floats of each are written
  int64_t cols;
  int32_t rows;
  int32_t outputs;
};

/// The weighted sum over a row's slots, in slot order: y = w_0 * d_0, then y = fma(w_s, d_s, y).
struct CombineCall {
  const float* partials;  // [places][width]: the down outputs of every route
  const int32_t* places;  // [top_k] of this row
  const float* weights;   // [top_k]
  int32_t top_k;
  int64_t width;  // floats per place, a multiple of 16
  float* out;
  int32_t outputs;  // at most width
};

struct LinearKernels {
  void (*tile[kLayouts])(const TileCall& call);
  void (*float_rows)(const FloatCall& call);
  /// Rule 2: x [blocks * 32] becomes row `row` of the chunk, with every kind of sum the chunk has.
  void (*quantise)(const float* x, int64_t blocks, const ActivationChunk& chunk, int32_t row);
  void (*combine)(const CombineCall& call);
  /// Blocks of FP8 weights (fp8_e4m3: f32 scale, 32 bytes) to f32. [blocks * 32]
  void (*decode_fp8)(const std::byte* from, int64_t blocks, float* out);
};

/// The table of `isa`, which must be one of available_isas().
const LinearKernels& linear_kernels(Isa isa);

extern const LinearKernels kScalarKernels, kAvx2Kernels, kAvx512Kernels, kAmxKernels, kNeonKernels;

}  // namespace cohort::cpu
