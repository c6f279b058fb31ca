// How weights lie in device memory. One layout serves every row count.
//
// A matrix is cut into tiles of 16 output rows over all of K; a tile is a run of 32-blocks in order, each block the A
// operand of one m16n8k32 (lane (g, t) = g * 4 + t holds values 4t..4t+3 and 16+4t..16+4t+3 of rows g and g + 8)
// followed by its scales, so any run of K of a tile is one contiguous bulk copy. K formats keep their f16 super-scales
// behind every eight blocks. A pair of matrices (gate, up) interleaves its tiles: gate 0, up 0, gate 1, ...
#pragma once

#include <cstdint>

#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort::cuda {

enum class Format : int32_t {
  q4,       // 4-bit codes -8..7, f16 scale
  q8,       // int8 codes, f16 scale
  k4,       // 4-bit codes 0..15, 6-bit scale and minimum, f16 super-scales (Q4_K)
  k6,       // 6-bit codes -32..31, two int8 scales, f16 super-scale (Q6_K)
  generic,  // int8 codes, two f32 scales, two integer sub-scales and offsets, f32 offset scale: every other type
};
inline constexpr int kFormats = 5;

struct FormatShape {
  int block_bytes;   // one 32-block of a tile, with its scales
  int super_blocks;  // blocks that share super-scales
  int super_bytes;   // those blocks and their super-scales
};

COHORT_HD constexpr FormatShape shape_of(Format format) {
  switch (format) {
    case Format::q4:
      return {288, 1, 288};
    case Format::q8:
      return {544, 1, 544};
    case Format::k4:
      return {288, 8, 8 * 288 + 64};
    case Format::k6:
      return {416, 8, 8 * 416 + 32};
    case Format::generic:
      break;
  }
  return {832, 1, 832};
}

inline constexpr int kTileRows = 16;

/// Where value k of a 32-block lies inside the 32 bytes of a quantised activation block: lane t's eight values are
/// adjacent.
COHORT_HD constexpr int activation_slot(int k) {
  return k % 16 / 4 * 8 + k / 16 * 4 + k % 4;
}

/// Sizes of one matrix, or of one pair.
struct Geometry {
  int blocks = 0;          // K / 32
  int segments = 1;        // rule 4
  int segment_blocks = 0;  // blocks of a segment
  int tiles = 0;           // of all matrices
  int tile_bytes = 0;      // of one tile
};

/// `rows` outputs of each of `matrices` matrices over K = 32 * blocks.
constexpr Geometry make_geometry(Format format, int64_t rows, int blocks, int matrices) {
  const FormatShape shape = shape_of(format);
  Geometry g;
  g.blocks = blocks;
  g.segments = numerics::segments_of(int64_t{blocks} * 32);
  g.segment_blocks = blocks / g.segments;
  g.tile_bytes = blocks / shape.super_blocks * shape.super_bytes;
  g.tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows) * matrices;
  return g;
}

/// The types that float weights keep on the device.
enum class FloatType : int32_t { f32, f16, bf16 };
/// Values in 16 bytes.
COHORT_HD constexpr int float_values(FloatType type) {
  return type == FloatType::f32 ? 4 : 8;
}
/// Bytes of a row of k weights: whole blocks of 16 lanes of 16 bytes, zeros at the end.
COHORT_HD constexpr int64_t float_row_bytes(FloatType type, int64_t k) {
  const int64_t block = int64_t{16} * float_values(type);
  return (k + block - 1) / block * 256;
}

}  // namespace cohort::cuda
