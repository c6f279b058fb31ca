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
inline constexpr int kWarps = 8;  // compute warps of a block of the streaming kernel

/// Where value k of a 32-block lies inside the 32 bytes of a quantised activation block: lane t's eight values are
/// adjacent.
COHORT_HD constexpr int activation_slot(int k) {
  return k % 16 / 4 * 8 + k / 16 * 4 + k % 4;
}

/// How the streaming kernel (linear_stream.cuh) cuts one matrix, or one pair.
struct Geometry {
  int blocks = 0;          // K / 32
  int segments = 1;        // rule 4
  int segment_blocks = 0;  // blocks of a segment
  int matrices = 1;        // 2: gate and up
  int tiles = 0;           // of all matrices, padded to whole tasks
  int tile_bytes = 0;      // of one tile
  int parts = 1;           // runs of K that a tile is cut into, so that a chunk fits the ring
  int segment_warps = 1;   // warps that share a part's segments
  int warp_segments = 1;   // consecutive segments of one warp: 1, 2 or 4
  int chunk_tiles = 1;     // tiles side by side in a chunk
  int task_tiles = 1;      // tiles whose outputs finish together
  int tasks = 0;
  int chunks = 1;  // per task
  int chunk_bytes = 0;
};

/// `rows` outputs of each of `matrices` matrices over K = 32 * blocks.
constexpr Geometry make_geometry(Format format, int64_t rows, int blocks, int matrices) {
  constexpr int kChunkTarget = 40 << 10;
  const FormatShape shape = shape_of(format);
  Geometry g;
  g.blocks = blocks;
  g.segments = numerics::segments_of(int64_t{blocks} * 32);
  g.segment_blocks = blocks / g.segments;
  g.matrices = matrices;
  g.tile_bytes = blocks / shape.super_blocks * shape.super_bytes;
  while (g.segments / g.parts > 1 && g.tile_bytes / g.parts > kChunkTarget &&
         blocks / g.parts % (2 * shape.super_blocks) == 0)
    g.parts *= 2;
  const int part_segments = g.segments / g.parts;
  g.segment_warps = part_segments < kWarps ? part_segments : kWarps;
  g.warp_segments = part_segments / g.segment_warps;
  if (g.parts == 1) {
    g.chunk_tiles = kWarps / g.segment_warps;
    while (g.chunk_tiles > 1 && g.chunk_tiles * g.tile_bytes > kChunkTarget) g.chunk_tiles /= 2;
  }
  g.task_tiles = g.chunk_tiles > matrices ? g.chunk_tiles : matrices;
  const auto tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows) * matrices;
  g.tasks = (tiles + g.task_tiles - 1) / g.task_tiles;
  g.tiles = g.tasks * g.task_tiles;
  g.chunks = g.task_tiles / g.chunk_tiles * g.parts;
  g.chunk_bytes = g.tile_bytes / g.parts * g.chunk_tiles;
  return g;
}

}  // namespace cohort::cuda
