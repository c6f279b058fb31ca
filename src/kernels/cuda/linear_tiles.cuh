// Linear layers for many rows (of q4 mostly linear_tiles_wide.cuh): output tiles of 128 weight rows by 32 columns on
// int8 tensor cores.
//
// Eight warps, each 32 weight rows (two tiles: a gate and its up, or two neighbours) by 16 columns; two blocks an SM. K
// comes in stages of a few 32-blocks through a ring of cp.async copies; columns are gathered rows, so an expert's
// routes need no copy. Rule 3 costs three float operations per output and 32-block, about as much as the issue slots
// allow beside the mma, and is what bounds it. The tree of rule 4 runs as segments finish, like a binary counter:
// levels 0 and 1 wait in registers, higher ones in shared memory, each thread on its own outputs.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

inline constexpr int kTileM = 8;   // 16-row tiles of a block
inline constexpr int kTileN = 32;  // columns of a block; also the routes of an entry (lower.h: kTileColumns)
inline constexpr int kWarpN = 2;   // 8-column groups of a warp
inline constexpr int kTileThreads = 256;
inline constexpr int kColumnThreads = kTileThreads / kTileN;  // that copy a column

/// SB: 32-blocks of a segment when known at compile time, else 0.
template <Format F, int SB>
struct TileShape {
  static constexpr FormatShape shape = shape_of(F);
  // Two blocks an SM: formats whose stages are large have room for two.
  static constexpr int kStages = F == Format::q4 || F == Format::q8 ? 3 : 2;
  // 32-blocks of K per stage: whole segments where they are known, so that a stage is straight-line code.
  static constexpr int kBlocks = shape.super_blocks == 1 ? (SB > 0 ? SB : 4) : 8;
  static constexpr int kSegments = SB > 0 && kBlocks % (SB > 0 ? SB : 1) == 0 ? kBlocks / (SB > 0 ? SB : 1) : 0;
  static constexpr int kWeightBytes = kBlocks / shape.super_blocks * shape.super_bytes;  // of one tile
  static constexpr int kChunks = kWeightBytes / 16;
  static constexpr int kThreadChunks = (kTileM * kChunks + kTileThreads - 1) / kTileThreads;
  static constexpr int kRowStride = kBlocks * 32 + 32;  // bytes of one column
  static constexpr int kWeights = 0;
  static constexpr int kValues = kTileM * kWeightBytes;
  static constexpr int kScales = kValues + kTileN * kRowStride;
  static constexpr int kSums = kScales + kTileN * kBlocks * 4;
  static constexpr int kStageBytes = (kSums + (Block<F>::kSums ? kTileN * kBlocks * 4 : 0) + 127) / 128 * 128;
};

/// log2 of the segments that wait in shared memory.
inline int tile_levels(int segments) {
  int levels = 0;
  while ((4 << levels) < segments) ++levels;
  return levels;
}

template <Format F, Mode M, int SB>
__global__ void __launch_bounds__(kTileThreads, 2) tiles_kernel(const __grid_constant__ LinearArgs args) {
  using Shape = TileShape<F, SB>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int32_t source_row[kTileN], target_row[kTileN];
  float* levels = reinterpret_cast<float*>(shared + Shape::kStages * Shape::kStageBytes);
  const Geometry& geo = args.geometry;
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid >> 5;
  const Lane at(tid & 31);
  const int warp_m = warp & 3, warp_n = warp >> 2;
  wait_and_pass_on();

  // The chunks of a stage's weights that this thread copies: where from, of the block's first tile on.
  int chunk_source[Shape::kThreadChunks], in_tile[Shape::kThreadChunks];
#pragma unroll
  for (int i = 0; i < Shape::kThreadChunks; ++i) {
    const int chunk = tid + i * kTileThreads;
    in_tile[i] = chunk % Shape::kChunks * 16;
    chunk_source[i] = chunk / Shape::kChunks * geo.tile_bytes + in_tile[i];
  }
  const int m_tiles = (geo.tiles + kTileM - 1) / kTileM;
  const int stages = (geo.blocks + Shape::kBlocks - 1) / Shape::kBlocks;
  int entries, all_columns = 0;
  if constexpr (M == Mode::dense) {
    all_columns = args.step.header[args.sampled ? kSampled : kRows];
    entries = (all_columns + kTileN - 1) / kTileN;
  } else {
    entries = *args.group.count;
  }
  const int64_t matrix_bytes = int64_t{geo.tiles} * geo.tile_bytes;
  const int64_t items = int64_t{entries} * m_tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    // Dense: the columns of one weight tile follow each other, so it stays in L2; experts: the tiles of one entry do.
    const int entry = static_cast<int>(M == Mode::dense ? item % entries : item / m_tiles);
    const int m = static_cast<int>(M == Mode::dense ? item / entries : item % m_tiles);
    const int first_tile = m * kTileM;
    const int tiles = min(kTileM, geo.tiles - first_tile);
    const std::byte* weights = args.weights + int64_t{first_tile} * geo.tile_bytes;
    int columns;
    [[maybe_unused]] int64_t first_bias = 0;  // of the expert
    __syncthreads();
    if constexpr (M == Mode::dense) {
      columns = min(kTileN, all_columns - entry * kTileN);
      if (tid < columns) source_row[tid] = target_row[tid] = entry * kTileN + tid;
    } else {
      const int32_t* record = args.group.entries + int64_t{entry} * (kEntryHeader + kTileColumns);
      columns = record[1];
      weights += record[0] * matrix_bytes;
      first_bias = int64_t{record[0]} * args.outputs;
      if (tid < columns) {
        const int route = record[kEntryHeader + tid];
        source_row[tid] = M == Mode::gate_up ? route / args.top_k : route;
        target_row[tid] = route;
      }
    }
    __syncthreads();

    // Columns past the last are copies of the last.
    const int my_column = tid / kColumnThreads, my_piece = tid % kColumnThreads;
    const std::byte* record = args.input.data + int64_t{source_row[min(my_column, columns - 1)]} * args.input.stride;
    const std::byte* my_values = record + my_piece * 16;
    const std::byte* my_scales = record + geo.blocks * 32 + my_piece * 4;
    const int weight_chunks = tiles * Shape::kChunks;
    int fetch_place = 0;
    const auto fetch = [&](int stage) {
      if (stage < stages) {
        std::byte* place = shared + fetch_place * Shape::kStageBytes;
        if (++fetch_place == Shape::kStages) fetch_place = 0;
        // Only where segments are not known at compile time is a stage ever less than whole.
        const int blocks =
            Shape::kSegments > 0 ? Shape::kBlocks : min(Shape::kBlocks, geo.blocks - stage * Shape::kBlocks);
        const int bytes = blocks / Shape::shape.super_blocks * Shape::shape.super_bytes;
#pragma unroll
        for (int i = 0; i < Shape::kThreadChunks; ++i) {
          if (tid + i * kTileThreads < weight_chunks && (Shape::kSegments > 0 || in_tile[i] < bytes))
            copy_async<16>(place + (tid + i * kTileThreads) * 16, weights + chunk_source[i]);
        }
        weights += Shape::kWeightBytes;
        std::byte* target = place + Shape::kValues + my_column * Shape::kRowStride + my_piece * 16;
#pragma unroll
        for (int i = 0; i * kColumnThreads < Shape::kBlocks * 2; ++i) {
          if (my_piece + i * kColumnThreads < blocks * 2)
            copy_async<16>(target + i * kColumnThreads * 16, my_values + i * kColumnThreads * 16);
        }
        if (my_piece < blocks) {
          copy_async<4>(place + Shape::kScales + (my_piece * kTileN + my_column) * 4, my_scales);
          if constexpr (Block<F>::kSums)
            copy_async<4>(place + Shape::kSums + (my_piece * kTileN + my_column) * 4, my_scales + geo.blocks * 4);
        }
        my_values += Shape::kBlocks * 32;
        my_scales += Shape::kBlocks * 4;
      }
      copy_commit();
    };

    const int first_column = warp_n * kWarpN * 8;
    const int n_tiles = min(kWarpN, (columns - first_column + 7) >> 3);  // may be negative: nothing to do
    const bool busy = warp_m * 2 < tiles && n_tiles > 0;
    using Sums = float[2][kWarpN][4];
    constexpr int kMine = 2 * kWarpN * 4;
    const auto for_all = [](auto&& f) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) f(i / (kWarpN * 4), i / 4 % kWarpN, i % 4, i);
    };
    Sums acc, one, two;
    for_all([&](int h, int n, int i, int) { acc[h][n][i] = 0.0F; });
    int segment = 0, next_place = 0;
    [[maybe_unused]] int in_segment = 0;
    // acc is the sum of segments `segment` - 1 and `segment`, an odd one.
    const auto finish_pair = [&] {
      const bool last = segment + 1 == geo.segments;
      if ((segment & 2) == 0) {
        if (!last) for_all([&](int h, int n, int i, int) { two[h][n][i] = acc[h][n][i]; });
        return;
      }
      for_all([&](int h, int n, int i, int) { acc[h][n][i] = __fadd_rn(two[h][n][i], acc[h][n][i]); });
      // Higher levels: add what waits while the bit is set, then wait in its place.
      int level = 0;
      for (; (segment >> (2 + level)) & 1; ++level) {
        const float* waiting = levels + level * kMine * kTileThreads + tid;
        for_all(
            [&](int h, int n, int i, int at) { acc[h][n][i] = __fadd_rn(waiting[at * kTileThreads], acc[h][n][i]); });
      }
      if (last) return;
      float* waiting = levels + level * kMine * kTileThreads + tid;
      for_all([&](int h, int n, int i, int at) { waiting[at * kTileThreads] = acc[h][n][i]; });
    };
    [[maybe_unused]] const auto finish_segment = [&] {  // where a stage is not a segment
      const bool last = segment + 1 == geo.segments;
      if ((segment & 1) == 0) {
        if (!last) for_all([&](int h, int n, int i, int) { one[h][n][i] = acc[h][n][i]; });
      } else {
        for_all([&](int h, int n, int i, int) { acc[h][n][i] = __fadd_rn(one[h][n][i], acc[h][n][i]); });
        finish_pair();
      }
      if (!last) for_all([&](int h, int n, int i, int) { acc[h][n][i] = 0.0F; });
      ++segment;
    };
    const auto add_block = [&](const std::byte* place, int b, int use_tiles, Sums& sums) {
      Block<F> w[2];
      w[0].load(place + warp_m * 2 * Shape::kWeightBytes, b, at, args.two_groups);
      w[1].load(place + (warp_m * 2 + 1) * Shape::kWeightBytes, b, at, args.two_groups);
#pragma unroll
      for (int n = 0; n < kWarpN; ++n) {
        if (n < use_tiles) {
          Columns c;
          const int column = first_column + n * 8;
          const uint2 q = *reinterpret_cast<const uint2*>(place + Shape::kValues + (column + at.g) * Shape::kRowStride +
                                                          b * 32 + at.t * 8);
          c.b0 = q.x;
          c.b1 = q.y;
          const int scale = (b * kTileN + column + at.t * 2) * 4;
          const float2 d = *reinterpret_cast<const float2*>(place + Shape::kScales + scale);
          c.d0 = d.x;
          c.d1 = d.y;
          if constexpr (Block<F>::kSums) {
            const int2 sums = *reinterpret_cast<const int2*>(place + Shape::kSums + scale);
            c.sums0 = sums.x;
            c.sums1 = sums.y;
          }
          w[0].add(sums[0][n], c);
          w[1].add(sums[1][n], c);
        }
      }
    };
    for (int s = 0; s < Shape::kStages - 1; ++s) fetch(s);
    // The next stage is there, and one more is on its way.
    const auto take_stage = [&](int stage) {
      copy_wait<Shape::kStages - 2>();
      __syncthreads();
      fetch(stage + Shape::kStages - 1);
      const std::byte* place = shared + next_place * Shape::kStageBytes;
      if (++next_place == Shape::kStages) next_place = 0;
      return place;
    };
    if constexpr (Shape::kSegments > 0) {
      // Whole pairs of segments as straight-line code. Columns past the last are computed too; they are not written.
      static_assert(Shape::kSegments <= 2);
      constexpr int kPairStages = 2 / Shape::kSegments;
      for (int stage = 0; stage < stages; stage += kPairStages) {
#pragma unroll
        for (int u = 0; u < kPairStages; ++u) {
          const std::byte* place = take_stage(stage + u);
          if (!busy) continue;
#pragma unroll
          for (int part = 0; part < Shape::kSegments; ++part) {
            Sums& sums = u + part == 0 ? one : acc;
            for_all([&](int h, int n, int i, int) { sums[h][n][i] = 0.0F; });
#pragma unroll
            for (int b = 0; b < SB; ++b) add_block(place, part * SB + b, kWarpN, sums);
          }
        }
        if (!busy) continue;
        for_all([&](int h, int n, int i, int) { acc[h][n][i] = __fadd_rn(one[h][n][i], acc[h][n][i]); });
        ++segment;
        finish_pair();
        ++segment;
      }
    } else {
      for (int stage = 0; stage < stages; ++stage) {
        const std::byte* place = take_stage(stage);
        if (!busy) continue;
        const int blocks = min(Shape::kBlocks, geo.blocks - stage * Shape::kBlocks);
#pragma unroll 2
        for (int b = 0; b < blocks; ++b) {
          add_block(place, b, n_tiles, acc);
          if (++in_segment == geo.segment_blocks) {
            in_segment = 0;
            finish_segment();
          }
        }
      }
    }
    copy_wait<0>();
    const int tile = first_tile + warp_m * 2;
    if constexpr (M == Mode::gate_up) {
      // The block's 64 outputs of every column meet where the stages were, and leave as two quantised blocks (or, for
      // a float down, as they are).
      constexpr int kColumnStride = kTileM / 2 * kTileRows + 4;
      float* h = reinterpret_cast<float*>(shared);
      __syncthreads();
      if (busy) {
#pragma unroll
        for (int n = 0; n < kWarpN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int column = first_column + n * 8 + at.t * 2 + (i & 1);
            const int output = warp_m * kTileRows + at.g + (i >> 1) * 8;
            const int64_t place = first_bias + min(m * (kTileM / 2 * kTileRows) + output, args.outputs - 1);
            h[column * kColumnStride + output] = gated(args.act, args.pair_bias, place, acc[0][n][i], acc[1][n][i]);
          }
        }
      }
      __syncthreads();
      for (int job = warp; job < columns * 2; job += kTileThreads / 32) {
        const int column = job >> 1, block = m * 2 + (job & 1);
        const float value = h[column * kColumnStride + (job & 1) * 32 + at.lane];
        if (args.quantised.data == nullptr) {
          if (block * 32 + at.lane < args.outputs)
            args.out.data[int64_t{target_row[column]} * args.out.stride + block * 32 + at.lane] = value;
        } else if (block * 32 < args.outputs) {
          quantise_block(value, at.lane, args.quantised, target_row[column], block);
        }
      }
      continue;
    }
    if (!busy) continue;
#pragma unroll
    for (int n = 0; n < kWarpN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first_column + n * 8 + at.t * 2 + (i & 1);
        if (column >= columns) continue;
        const int64_t row = target_row[column];
        const int in_tile = at.g + (i >> 1) * 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int output = (tile + half) * kTileRows + in_tile;
          if (output >= args.outputs) continue;
          float y = acc[half][n][i];
          if (args.bias != nullptr) y = __fadd_rn(y, args.bias[first_bias + output]);
          if constexpr (M == Mode::dense) {
            if (args.addend.data != nullptr) y = __fadd_rn(args.addend.data[row * args.addend.stride + output], y);
          }
          args.out.data[row * args.out.stride + output] = y;
        }
      }
    }
  }
}

template <Format F, Mode M, int SB>
void launch_tiles_kernel(const LinearArgs& args, int sms, cudaStream_t stream) {
  using Shape = TileShape<F, SB>;
  const size_t bytes = static_cast<size_t>(Shape::kStages) * Shape::kStageBytes +
                       static_cast<size_t>(tile_levels(args.geometry.segments)) * 2 * kWarpN * 4 * kTileThreads * 4;
  launch(&tiles_kernel<F, M, SB>, sms * 2, kTileThreads, bytes, stream, args);
}

template <Format F>
void launch_tiles_format(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  const int blocks = args.geometry.segments > 1 ? args.geometry.segment_blocks : 0;
  switch (mode) {
    case Mode::dense:
      return blocks == 4 ? launch_tiles_kernel<F, Mode::dense, 4>(args, sms, stream)
                         : launch_tiles_kernel<F, Mode::dense, 0>(args, sms, stream);
    case Mode::gate_up:
      return blocks == 4 ? launch_tiles_kernel<F, Mode::gate_up, 4>(args, sms, stream)
                         : launch_tiles_kernel<F, Mode::gate_up, 0>(args, sms, stream);
    case Mode::down:
      return blocks == 6 ? launch_tiles_kernel<F, Mode::down, 6>(args, sms, stream)
                         : launch_tiles_kernel<F, Mode::down, 0>(args, sms, stream);
  }
}

}  // namespace cohort::cuda
