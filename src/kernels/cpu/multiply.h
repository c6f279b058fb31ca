// One tile of a matrix times one chunk of rows, whether the matrix is quantised or float.
#pragma once

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/weight_memory.h"

namespace cohort::cpu {

/// At most 16 rows of a matrix's input, in the form (or both) that its readers need.
struct RowChunk {
  ActivationChunk quant;
  const float* floats[kChunkRows] = {};
  int32_t rows = 0;
};

/// Where prefetching continues after a tile: the next tile this thread reads, or null.
inline const std::byte* tile_address(const Matrix& matrix, int64_t expert, int64_t tile) {
  return matrix.quantised ? matrix.packed.tile(expert, tile) : nullptr;
}

inline int32_t outputs_of_tile(const Matrix& matrix, int64_t tile) {
  const int64_t left = matrix.source->rows - tile * matrix.tile_outputs;
  return static_cast<int32_t>(std::min<int64_t>(left, matrix.tile_outputs));
}

/// What is read after a tile, for prefetching (TileCall).
struct Upcoming {
  const std::byte* next = nullptr;
  const std::byte* ahead = nullptr;
  int64_t ahead_bytes = 0;
};

/// Up to so many rows are one pass over a tile, which takes as long as reading it.
inline constexpr int32_t kOnePassRows = 8;

/// While rows first .. first + count of all `rows` that a tile meets are multiplied: `next` is the tile that this
/// thread walks to after it, `later` the tile of `later_bytes` that all these rows together fetch when they are many.
inline Upcoming upcoming(const std::byte* next, const std::byte* later, int64_t later_bytes, int64_t first,
                         int64_t count, int64_t rows) {
  if (rows <= kOnePassRows) return {next};
  if (later == nullptr) return {};
  const int64_t begin = later_bytes * first / rows / 64 * 64;
  const int64_t end = first + count == rows ? later_bytes : later_bytes * (first + count) / rows / 64 * 64;
  return {nullptr, later + begin, end - begin};
}

/// FP8 weights: each of the tile's rows is decoded once for all rows of the chunk, then multiplied as f32.
void multiply_decoded(const LinearKernels& kernels, const Matrix& matrix, int64_t expert, int64_t tile,
                      const RowChunk& x, float* out, int64_t stride);

/// out [rows][stride] receives the tile's outputs of every row.
inline void multiply_tile(const LinearKernels& kernels, const Matrix& matrix, int64_t expert, int64_t tile,
                          const RowChunk& x, float* out, int64_t stride, const Upcoming& upcoming) {
  if (matrix.quantised) {
    const PackedWeight& w = matrix.packed;
    kernels.tile[static_cast<int>(w.shape.layout)]({w.tile(expert, tile), &w.shape, &x.quant, out, stride,
                                                    outputs_of_tile(matrix, tile), upcoming.next, upcoming.ahead,
                                                    upcoming.ahead_bytes});
    return;
  }
  if (matrix.source->type == TensorType::fp8_e4m3) {
    multiply_decoded(kernels, matrix, expert, tile, x, out, stride);
    return;
  }
  float* rows[kChunkRows];
  for (int32_t r = 0; r < x.rows; ++r) rows[r] = out + r * stride;
  const Weight& w = *matrix.source;
  const auto first = static_cast<size_t>(tile) * static_cast<size_t>(matrix.tile_outputs);
  kernels.float_rows({w.slices[static_cast<size_t>(expert)] + first * matrix.row_stride, matrix.row_stride, w.type,
                      x.floats, rows, w.cols, x.rows, outputs_of_tile(matrix, tile)});
}

}  // namespace cohort::cpu
