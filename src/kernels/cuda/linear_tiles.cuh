// Linear layers for many rows: output tiles of 128 weight rows by 32 columns on int8 tensor cores.
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

/// SB: 32-blocks of a segment when known at compile time, else 0.
template <Format F, int SB>
struct TileShape {
  static constexpr FormatShape shape = shape_of(F);
  static constexpr int kStages = 3;
  // 32-blocks of K per stage: whole segments where they are known, so that a stage is straight-line code.
  static constexpr int kBlocks = shape.super_blocks == 1 ? (SB > 0 ? SB : 4) : 8;
  static constexpr int kSegments = SB > 0 && kBlocks % (SB > 0 ? SB : 1) == 0 ? kBlocks / (SB > 0 ? SB : 1) : 0;
  static constexpr int kWeightBytes = kBlocks / shape.super_blocks * shape.super_bytes;  // of one tile
  static constexpr int kRowStride = kBlocks * 32 + 32;                                   // bytes of one column
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
    __syncthreads();
    if constexpr (M == Mode::dense) {
      columns = min(kTileN, all_columns - entry * kTileN);
      if (tid < columns) source_row[tid] = target_row[tid] = entry * kTileN + tid;
    } else {
      const int32_t* record = args.group.entries + int64_t{entry} * (kEntryHeader + kTileColumns);
      columns = record[1];
      weights += record[0] * matrix_bytes;
      if (tid < columns) {
        const int route = record[kEntryHeader + tid];
        source_row[tid] = M == Mode::gate_up ? route / args.top_k : route;
        target_row[tid] = route;
      }
    }
    __syncthreads();

    // Copies without divisions: a warp fetches one weight tile, eight threads one column.
    const int my_column = tid >> 3, my_piece = tid & 7;
    const int64_t my_row = my_column < columns ? source_row[my_column] : 0;
    const std::byte* my_values = args.input.data + my_row * args.input.stride + my_piece * 16;
    const std::byte* my_scales = args.input.data + my_row * args.input.stride + geo.blocks * 32 + my_piece * 4;
    const std::byte* my_weights = weights + int64_t{warp} * geo.tile_bytes + at.lane * 16;
    int fetch_place = 0;
    const auto fetch = [&](int stage) {
      if (stage < stages) {
        std::byte* place = shared + fetch_place * Shape::kStageBytes;
        if (++fetch_place == Shape::kStages) fetch_place = 0;
        const int block = stage * Shape::kBlocks;
        const int blocks = min(Shape::kBlocks, geo.blocks - block);
        if (warp < tiles) {
          const int bytes = blocks / Shape::shape.super_blocks * Shape::shape.super_bytes;
          std::byte* target = place + warp * Shape::kWeightBytes + at.lane * 16;
#pragma unroll
          for (int i = 0; i < (Shape::kWeightBytes + 511) / 512; ++i) {
            if (i * 512 + at.lane * 16 < bytes) copy_async<16>(target + i * 512, my_weights + i * 512);
          }
          my_weights += Shape::kWeightBytes;
        }
        if (my_column < columns) {
          std::byte* target = place + Shape::kValues + my_column * Shape::kRowStride + my_piece * 16;
#pragma unroll
          for (int i = 0; i < (Shape::kBlocks + 3) / 4; ++i) {
            if (my_piece + i * 8 < blocks * 2) copy_async<16>(target + i * 128, my_values + i * 128);
          }
          if (my_piece < blocks) {
            copy_async<4>(place + Shape::kScales + (my_piece * kTileN + my_column) * 4, my_scales);
            if constexpr (Block<F>::kSums)
              copy_async<4>(place + Shape::kSums + (my_piece * kTileN + my_column) * 4, my_scales + geo.blocks * 4);
          }
          my_values += Shape::kBlocks * 32;
          my_scales += Shape::kBlocks * 4;
        }
      }
      copy_commit();
    };

    const int first_column = warp_n * kWarpN * 8;
    const int n_tiles = min(kWarpN, (columns - first_column + 7) >> 3);  // may be negative: nothing to do
    const bool busy = warp_m * 2 < tiles && n_tiles > 0;
    float acc[2][kWarpN][4], one[2][kWarpN][4], two[2][kWarpN][4];
    constexpr int kMine = 2 * kWarpN * 4;
    const auto clear = [&] {
#pragma unroll
      for (int i = 0; i < kMine; ++i) acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4] = 0.0F;
    };
    clear();
    int segment = 0, next_place = 0;
    [[maybe_unused]] int in_segment = 0;
    const auto finish_segment = [&] {
      const bool last = segment + 1 == geo.segments;
      if ((segment & 1) == 0) {
        if (!last) {
#pragma unroll
          for (int i = 0; i < kMine; ++i)
            one[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4] = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
        }
      } else {
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          float& x = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
          x = __fadd_rn(one[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4], x);
        }
        if ((segment & 2) == 0) {
#pragma unroll
          for (int i = 0; i < kMine; ++i)
            two[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4] = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
        } else {
#pragma unroll
          for (int i = 0; i < kMine; ++i) {
            float& x = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
            x = __fadd_rn(two[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4], x);
          }
          // Higher levels: add what waits while the bit is set, then wait in its place.
          int level = 0;
          for (; (segment >> (2 + level)) & 1; ++level) {
            const float* waiting = levels + level * kMine * kTileThreads + tid;
#pragma unroll
            for (int i = 0; i < kMine; ++i) {
              float& x = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
              x = __fadd_rn(waiting[i * kTileThreads], x);
            }
          }
          if (!last) {
            float* waiting = levels + level * kMine * kTileThreads + tid;
#pragma unroll
            for (int i = 0; i < kMine; ++i) waiting[i * kTileThreads] = acc[i / (kWarpN * 4)][i / 4 % kWarpN][i % 4];
          }
        }
      }
      if (!last) clear();
      ++segment;
    };
    const auto add_block = [&](const std::byte* place, int b, int use_tiles) {
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
          w[0].add(acc[0][n], c);
          w[1].add(acc[1][n], c);
        }
      }
    };
    for (int s = 0; s < Shape::kStages - 1; ++s) fetch(s);
    for (int stage = 0; stage < stages; ++stage) {
      copy_wait<Shape::kStages - 2>();
      __syncthreads();
      fetch(stage + Shape::kStages - 1);
      const int use_place = next_place;
      if (++next_place == Shape::kStages) next_place = 0;
      if (!busy) continue;
      const std::byte* place = shared + use_place * Shape::kStageBytes;
      [[maybe_unused]] const int blocks = min(Shape::kBlocks, geo.blocks - stage * Shape::kBlocks);
      if constexpr (Shape::kSegments > 0) {
#pragma unroll
        for (int part = 0; part < Shape::kSegments; ++part) {
          // Columns past the last are computed too; they are not written.
#pragma unroll
          for (int b = 0; b < SB; ++b) add_block(place, part * SB + b, kWarpN);
          finish_segment();
        }
      } else {
#pragma unroll 2
        for (int b = 0; b < blocks; ++b) {
          add_block(place, b, n_tiles);
          if (++in_segment == geo.segment_blocks) {
            in_segment = 0;
            finish_segment();
          }
        }
      }
    }
    copy_wait<0>();
    if (!busy) continue;
    const int tile = first_tile + warp_m * 2;
#pragma unroll
    for (int n = 0; n < kWarpN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first_column + n * 8 + at.t * 2 + (i & 1);
        if (column >= columns) continue;
        const int64_t row = target_row[column];
        const int in_tile = at.g + (i >> 1) * 8;
        if constexpr (M == Mode::gate_up) {
          const int output = (tile >> 1) * kTileRows + in_tile;
          if (output < args.outputs) {
            const float gate = acc[0][n][i];
            const float active = args.act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate);
            args.out.data[row * args.out.stride + output] = __fmul_rn(active, acc[1][n][i]);
          }
        } else {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int output = (tile + half) * kTileRows + in_tile;
            if (output >= args.outputs) continue;
            float y = acc[half][n][i];
            if constexpr (M == Mode::dense) {
              if (args.bias != nullptr) y = __fadd_rn(y, args.bias[output]);
              if (args.addend.data != nullptr) y = __fadd_rn(args.addend.data[row * args.addend.stride + output], y);
            }
            args.out.data[row * args.out.stride + output] = y;
          }
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
  const int blocks = args.geometry.segment_blocks;
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
