// How the kernels of few rows lie in shared memory: plain arithmetic, so that it can be tested where there is no
// device.
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"

namespace cohort::cuda {

/// Bytes of a record that a kernel copies: without the sums where the format does not need them.
COHORT_HD constexpr int record_bytes(int blocks, bool with_sums) {
  return (blocks * (with_sums ? 40 : 36) + 15) / 16 * 16;
}
/// Bytes that the scales of some columns lie further from their values; see copy_column (segments.cuh).
inline constexpr int kScaleGap = 32;
/// Distance of records in shared memory: lane (g, t) reads 8 bytes at g * stride + 8 t without a bank conflict, and
/// there is room for the gap.
COHORT_HD constexpr int shared_record(int blocks, bool with_sums) {
  return (record_bytes(blocks, with_sums) + 63) / 64 * 64 + kScaleGap;
}

inline constexpr int kEntryColumns = 8;  // routes of an entry of the streaming kernels
inline constexpr int kTileColumns = 32;  // of the tiled ones
inline constexpr int kEntryHeader = 4;   // words before an entry's routes: expert, size

// Bytes of dynamic shared memory of a block when so many share an SM (228 KB, of which each block takes 1 KB more).
inline constexpr int kSharedTwo = 113 << 10;
inline constexpr int kSharedOne = 226 << 10;

// ---- Gate/up and down (experts.cuh).

inline constexpr int kUpThreads = 256, kUpWarps = 8;
inline constexpr int kUpSlots = 4;        // most chunks of a ring
inline constexpr int kColumnFloats = 20;  // of partial sums: 16 and a gap against bank conflicts
inline constexpr int kPartFloats = 8 * kColumnFloats;
inline constexpr int kDownThreads = 512, kDownWarps = 16, kDownSlots = 3;

/// Floats of one buffer of partial sums: two pairs of [gate, up][parts] and a gap between the pairs.
COHORT_HD constexpr int up_partial_floats(int parts) {
  return 2 * (2 * parts * kPartFloats + 16);
}

/// How gate/up of few rows lies in shared memory; see experts.cuh.
struct UpPlan {
  int32_t parts = 1;           // warps that share K of a tile
  int32_t cuts = 1;            // chunks of a warp's part
  int32_t chunk_segments = 1;  // segments of a chunk
  int32_t chunk_bytes = 0;
  int32_t slots = 0;  // chunks of a warp in shared memory; 0: does not fit
  int32_t column_bytes = 0, column_stride = 0;
  int32_t columns = 0, partial = 0, total = 0;  // offsets
  int32_t per_sm = 1;
};

/// Shared memory of gate/up within `limit` bytes; slots = 0 when it does not fit.
inline UpPlan up_plan_within(const FormatShape& shape, bool with_sums, const Geometry& g, int limit) {
  UpPlan plan;
  const int supers = g.blocks / shape.super_blocks;
  for (plan.parts = 4; plan.parts > 1 && (g.segments % plan.parts != 0 || supers % plan.parts != 0);) plan.parts /= 2;
  plan.column_bytes = record_bytes(g.blocks, with_sums);
  plan.column_stride = shared_record(g.blocks, with_sums);
  plan.per_sm = limit == kSharedTwo ? 2 : 1;
  const int fixed = 8 * plan.column_stride + 2 * up_partial_floats(plan.parts) * 4;
  for (plan.cuts = 1; plan.cuts <= 4; plan.cuts *= 2) {
    const int pieces = plan.parts * plan.cuts;
    if (g.segments % pieces != 0 || supers % pieces != 0) break;
    plan.chunk_segments = g.segments / pieces;
    plan.chunk_bytes = g.tile_bytes / pieces;
    const int slots = (limit - fixed) / (kUpWarps * plan.chunk_bytes);
    if (limit <= fixed || slots < 2) continue;
    plan.slots = slots < kUpSlots ? slots : kUpSlots;
    plan.columns = kUpWarps * plan.slots * plan.chunk_bytes;
    plan.partial = plan.columns + 8 * plan.column_stride;
    plan.total = plan.columns + fixed;
    return plan;
  }
  plan.slots = 0;
  return plan;
}
/// Two blocks an SM where they fit. (Three with smaller chunks were slower once the columns came early.)
inline UpPlan up_plan(const FormatShape& shape, bool with_sums, const Geometry& g) {
  const UpPlan plan = up_plan_within(shape, with_sums, g, kSharedTwo);
  return plan.slots > 0 ? plan : up_plan_within(shape, with_sums, g, kSharedOne);
}

struct DownPlan {
  int32_t workers = 0;  // warps with a ring; 0: does not fit
  int32_t slots = 1;
  int32_t slot_bytes = 0;
  int32_t results = 0;  // offset, of few rows
  int32_t columns = 0;  // offset, of more
  int32_t column_bytes = 0, column_stride = 0;
  int32_t total = 0;
};

/// small_routes > 0: results stay in shared memory; 0: for down_wide_kernel.
inline DownPlan down_plan(bool with_sums, const Geometry& g, int small_routes, int limit) {
  DownPlan plan;
  plan.slot_bytes = (g.tile_bytes + 127) / 128 * 128;
  plan.column_bytes = record_bytes(g.blocks, with_sums);
  plan.column_stride = shared_record(g.blocks, with_sums);
  const int rest = small_routes > 0 ? small_routes * kTileRows * 4 : kEntryColumns * plan.column_stride;
  const int slots = limit > rest ? (limit - rest) / plan.slot_bytes : 0;
  plan.workers = slots < kDownWarps ? slots : kDownWarps;
  plan.slots = slots / kDownWarps;
  if (plan.slots < 1) plan.slots = 1;
  if (plan.slots > kDownSlots) plan.slots = kDownSlots;
  plan.results = plan.columns = plan.workers * plan.slots * plan.slot_bytes;
  plan.total = plan.columns + rest;
  return plan;
}

// ---- Dense layers (linear_stream.cuh).

inline constexpr int kStreamWarps = 16, kStreamThreads = kStreamWarps * 32;
inline constexpr int kMaxSlots = 4;
inline constexpr int kStreamColumn = 20;               // floats of a column's partial sums of one tile
inline constexpr int kStreamPart = 8 * kStreamColumn;  // of 8 columns

struct StreamPlan {
  int parts, aside;  // warps that share K; tiles side by side
  int column_bytes, column_stride;
  int columns, partial, partial_floats, total;
};

/// Byte offsets in dynamic shared memory; the rings are first.
COHORT_HD inline StreamPlan stream_plan(const Geometry& g, int slots, int nt, bool with_sums) {
  StreamPlan p;
  p.parts = g.segments < kStreamWarps ? g.segments : kStreamWarps;
  p.aside = kStreamWarps / p.parts;
  p.column_bytes = record_bytes(g.blocks, with_sums);
  p.column_stride = shared_record(g.blocks, with_sums);
  p.columns = slots * p.aside * g.tile_bytes;
  p.partial = p.columns + 8 * nt * p.column_stride;
  p.partial_floats = kStreamWarps * nt * kStreamPart;
  p.total = p.partial + 2 * p.partial_floats * 4;
  return p;
}

}  // namespace cohort::cuda
