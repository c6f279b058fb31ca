// Linear layers for many rows of q4 weights whose segments are of 4 or 6 blocks (else linear_tiles.cuh): output tiles
// of 128 weight rows by 32 columns on int8 tensor cores.
//
// Eight warps, each one tile of 16 weight rows by all 32 columns, so that a weight is unpacked once for four products
// and column groups that an entry does not have are left out; two blocks an SM. K comes in stages of two segments
// through a ring of cp.async copies that runs ahead into the next item; columns are gathered rows, so an expert's
// routes need no copy. The tree of rule 4 runs as segments finish, like a binary counter: four segments in registers,
// the rest in shared memory, each thread on its own outputs.
//
// What bounds it: 24 instructions a 16 x 8 x 32 product, of which 13 are rule 3, and 65% of the issue slots although a
// warp is ready nearly always: the dispatch of mma and its ten operands. Scales that lay as records, four blocks in one
// load, met in the same banks and made shared memory the bound (81%). For q8 it was 5% slower than linear_tiles.cuh.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_tiles.cuh"
#include "kernels/cuda/segments.cuh"

namespace cohort::cuda {
namespace wide {

inline constexpr Format kFormat = Format::q4;
inline constexpr int kGroups = kTileN / 8;  // of 8 columns

/// SB: 32-blocks of a segment. Sizes in bytes.
template <int SB>
struct Shape {
  static constexpr FormatShape shape = shape_of(kFormat);
  static constexpr int kBlocks = 2 * SB;  // of a stage
  static constexpr int kStages = 2;
  static constexpr int kWeightBytes = kBlocks * shape.block_bytes;  // of one tile
  static constexpr int kColumnStride = kBlocks * 32 + 32;           // no bank conflicts among eight columns
  static constexpr int kColumns = kTileM * kWeightBytes;
  static constexpr int kScales = kColumns + kTileN * kColumnStride;  // [blocks][columns]
  static constexpr int kStageBytes = (kScales + kBlocks * kTileN * 4 + 127) / 128 * 128;
  static_assert(shape.super_blocks == 1 && !Block<kFormat>::kSums && kBlocks % 2 == 0);
};

/// A stage's columns as a lane sees them, as ColumnPointers.
template <class S>
struct StageColumns {
  const std::byte* values;
  const std::byte* pair;  // scales of columns 2t and 2t + 1
  __device__ __forceinline__ StageColumns(const std::byte* stage, Lane at)
      : values(stage + S::kColumns + at.g * S::kColumnStride + at.t * 8), pair(stage + S::kScales + at.t * 8) {}
  __device__ __forceinline__ uint2 value(int n, int block) const {
    return *reinterpret_cast<const uint2*>(values + n * 8 * S::kColumnStride + block * 32);
  }
  template <int Count>
  __device__ __forceinline__ void scales(int n, int block, float (&d0)[Count], float (&d1)[Count]) const {
#pragma unroll
    for (int b = 0; b < Count; ++b) {
      const float2 d = *reinterpret_cast<const float2*>(pair + ((block + b) * kTileN + n * 8) * 4);
      d0[b] = d.x;
      d1[b] = d.y;
    }
  }
};

/// Floats between the columns of gate and up where they meet.
inline constexpr int kMeetStride = kTileM * kTileRows + 4;

/// quantise_block of four blocks at once, lane = value; those of `count` on are left out, and the odd ones if `no_odd`.
__device__ __forceinline__ void quantise_some(const float (&x)[4], int lane, const Quantised& out, const int (&rows)[4],
                                              const int (&blocks)[4], int count, int no_odd) {
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t other = __reduce_max_sync(kFullMask, __float_as_uint(x[i]) & 0x7fffffffU);
    if ((lane & 3) == i) amax = other;
  }
  const BlockScale s = block_scale(amax);
  int packed = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const BlockScale of{0.0F, __shfl_sync(kFullMask, s.inverse, i)};
    const int q = quantise_value(x[i], of);
    const int sum = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
    if (lane == i) packed = sum;
    if (i < count && (i & no_odd) == 0)
      out.data[int64_t{rows[i]} * out.stride + blocks[i] * 32 + activation_slot(lane)] = static_cast<std::byte>(q);
  }
  if (lane >= count || (lane & no_odd) != 0) return;
  const int row = lane < 2 ? rows[0] : rows[2], block = (lane & 1) == 0 ? blocks[0] : blocks[1];
  std::byte* scales = out.data + int64_t{row} * out.stride + out.blocks * 32 + block * 4;
  *reinterpret_cast<float*>(scales) = s.d;
  *reinterpret_cast<int32_t*>(scales + out.blocks * 4) = packed;
}

template <Mode M, int SB>
__global__ void __launch_bounds__(kTileThreads, 2) wide_tiles_kernel(const __grid_constant__ LinearArgs args) {
  using S = Shape<SB>;
  extern __shared__ __align__(128) std::byte shared[];
  // What waits for its neighbour in the tree, then gate and up.
  float* levels = reinterpret_cast<float*>(shared + S::kStages * S::kStageBytes);
  const Geometry& geo = args.geometry;
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = __shfl_sync(kFullMask, tid >> 5, 0);
  const Lane at(tid & 31);
  wait_and_pass_on();

  const int m_tiles = (geo.tiles + kTileM - 1) / kTileM;
  const int stages = (geo.blocks + S::kBlocks - 1) / S::kBlocks;
  constexpr int kEntryWords = kEntryHeader + kTileColumns;
  int entries, all_columns = 0;
  if constexpr (M == Mode::dense) {
    all_columns = args.step.header[args.sampled ? kSampled : kRows];
    entries = (all_columns + kTileN - 1) / kTileN;
  } else {
    entries = *args.group.count;
  }
  const int items = entries * m_tiles, grid = static_cast<int>(gridDim.x);
  // Dense: the columns of one weight tile follow each other, so it stays in L2; experts: the tiles of one entry do.
  const auto entry_of = [&](int item) { return M == Mode::dense ? item % entries : item / m_tiles; };
  const auto tile_of = [&](int item) { return (M == Mode::dense ? item / entries : item % m_tiles) * kTileM; };

  // What is copied next: stage `next_stage` of item `next_item`. A warp copies the weights of its tile, and
  // kColumnThreads threads a column.
  const int my_column = tid / kColumnThreads, my_piece = tid % kColumnThreads;
  int next_item = static_cast<int>(blockIdx.x), next_stage = 0, fetch_place = 0;
  const std::byte *my_weights = nullptr, *my_values = nullptr, *my_scales = nullptr;
  bool has_tile = false, has_column = false;
  // Of the item after that, asked for a whole item ahead: expert, columns, and the route of this thread's column.
  int ahead_expert = 0, ahead_columns = 0, ahead_route = 0;
  const auto look_ahead = [&](int item) {
    if (M == Mode::dense || item >= items) return;
    const int32_t* record = args.group.entries + int64_t{entry_of(item)} * kEntryWords;
    ahead_expert = record[0];
    ahead_columns = record[1];
    ahead_route = record[kEntryHeader + my_column];  // of no use past the last column
  };
  const auto start_item = [&] {
    if (next_item >= items) return;
    const int tile = tile_of(next_item) + warp;
    int64_t row;
    has_tile = tile < geo.tiles;
    my_weights = args.weights + int64_t{tile} * geo.tile_bytes + at.lane * 16;
    if constexpr (M == Mode::dense) {
      row = entry_of(next_item) * kTileN + my_column;
      has_column = row < all_columns;
    } else {
      my_weights += ahead_expert * (int64_t{geo.tiles} * geo.tile_bytes);
      row = M == Mode::gate_up ? ahead_route / args.top_k : ahead_route;
      has_column = my_column < ahead_columns;
    }
    const std::byte* record = args.input.data + row * args.input.stride;
    my_values = record + my_piece * 16;
    my_scales = record + geo.blocks * 32 + my_piece * 4;
    look_ahead(next_item + grid);
  };
  const auto fetch = [&] {
    if (next_item < items) {
      std::byte* place = shared + fetch_place * S::kStageBytes;
      if (++fetch_place == S::kStages) fetch_place = 0;
      if (has_tile) {
        std::byte* to = place + warp * S::kWeightBytes + at.lane * 16;
        const int bytes = S::kWeightBytes - at.lane * 16;
#pragma unroll
        for (int i = 0; i < S::kWeightBytes; i += 512) {
          if (i < bytes) copy_async<16>(to + i, my_weights + i);
        }
        my_weights += S::kWeightBytes;
      }
      if (has_column) {
        std::byte* to = place + S::kColumns + my_column * S::kColumnStride;
#pragma unroll
        for (int i = 0; i < S::kBlocks * 2; i += kColumnThreads) {
          if (my_piece + i < S::kBlocks * 2) copy_async<16>(to + (my_piece + i) * 16, my_values + i * 16);
        }
#pragma unroll
        for (int i = 0; i < S::kBlocks; i += kColumnThreads) {
          if (my_piece + i >= S::kBlocks) continue;
          const int at_scale = ((my_piece + i) * kTileN + my_column) * 4;
          copy_async<4>(place + S::kScales + at_scale, my_scales + i * 4);
        }
        my_values += S::kBlocks * 32;
        my_scales += S::kBlocks * 4;
      }
      if (++next_stage == stages) {
        next_stage = 0;
        next_item += grid;
        start_item();
      }
    }
    copy_commit();
  };
  look_ahead(next_item);
  start_item();
  for (int s = 0; s < S::kStages - 1; ++s) fetch();
  int place_now = 0;
  // The next stage is there, and one more is on its way.
  const auto take_stage = [&] {
    copy_wait<S::kStages - 2>();
    __syncthreads();
    fetch();
    const std::byte* place = shared + place_now * S::kStageBytes;
    if (++place_now == S::kStages) place_now = 0;
    return place;
  };

  using Sums = float[kGroups][4];
  constexpr int kMine = kGroups * 4;
  const auto for_all = [](auto&& f) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) f(i / 4, i % 4, i);
  };
  for (int item = static_cast<int>(blockIdx.x); item < items; item += grid) {
    const int first_tile = tile_of(item);
    const int32_t* record = args.group.entries + int64_t{entry_of(item)} * kEntryWords;
    const int first_row = entry_of(item) * kTileN;  // dense
    int columns;
    if constexpr (M == Mode::dense) {
      columns = min(kTileN, all_columns - first_row);
    } else {
      columns = __shfl_sync(kFullMask, record[1], 0);
    }
    const auto target_row = [&](int column) -> int64_t {
      return M == Mode::dense ? first_row + column : record[kEntryHeader + column];
    };
    const auto first_bias = [&]() -> int64_t {  // of the expert
      return M == Mode::dense ? 0 : int64_t{record[0]} * args.outputs;
    };
    const int n_tiles = (columns + 7) >> 3;
    const bool busy = first_tile + warp < geo.tiles;
    Sums acc, two;
    for_all([&](int n, int i, int) { acc[n][i] = 0.0F; });
    // acc is the sum of four segments: add what waits while the bit is set, then wait in its place.
    const auto finish_four = [&](int four, bool last) {
      int level = 0;
      for (; (four >> level) & 1; ++level) {
        const float* waiting = levels + level * kMine * kTileThreads + tid;
        for_all([&](int n, int i, int j) { acc[n][i] = __fadd_rn(waiting[j * kTileThreads], acc[n][i]); });
      }
      if (last) return;
      float* waiting = levels + level * kMine * kTileThreads + tid;
      for_all([&](int n, int i, int j) { waiting[j * kTileThreads] = acc[n][i]; });
    };
    for (int four = 0; four < geo.segments / 4; ++four) {
      // The sum of two segments, a stage.
      const auto add_pair = [&](Sums& sums) {
        const std::byte* place = take_stage();
        if (!busy) return;
        const std::byte* tile = place + warp * S::kWeightBytes;
        const StageColumns<S> x(place, at);
        Sums second;
        const auto add = [&](auto all) {
          constexpr bool kAll = decltype(all)::value;
          known_segment_sum<kFormat, kGroups, SB, kAll>(tile, 0, 0, x, n_tiles, false, at, sums);
          known_segment_sum<kFormat, kGroups, SB, kAll>(tile, SB, SB, x, n_tiles, false, at, second);
        };
        if (n_tiles == kGroups) {
          add(std::true_type());
        } else {
          add(std::false_type());
        }
        for_all([&](int n, int i, int) { sums[n][i] = __fadd_rn(sums[n][i], second[n][i]); });
      };
      add_pair(two);
      add_pair(acc);
      if (!busy) continue;
      for_all([&](int n, int i, int) { acc[n][i] = __fadd_rn(two[n][i], acc[n][i]); });
      finish_four(four, four == geo.segments / 4 - 1);
    }
    if constexpr (M == Mode::gate_up) {
      // The block's 64 outputs of every column meet where sums waited, and leave as two quantised blocks (or, for a
      // float down, as they are). Gate and up of odd pairs change places, against bank conflicts.
      __syncthreads();
      if (busy) {
        float* to = levels + (warp ^ (warp >> 1 & 1)) * kTileRows + at.t * 2 * kMeetStride + at.g;
        for_all([&](int n, int i, int) {
          if (n < n_tiles) to[(n * 8 + (i & 1)) * kMeetStride + (i >> 1) * 8] = acc[n][i];
        });
      }
      __syncthreads();
      // Two columns of two blocks at a time.
      const int pair = at.lane >> 4;
      for (int first = warp; first < columns; first += kTileThreads / 32 * 2) {
        float value[4];
        int rows[4], blocks[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = min(first + (j >> 1) * (kTileThreads / 32), columns - 1);
          const float* from = levels + column * kMeetStride + (j & 1) * 64 + pair * 32 + (at.lane & 15);
          rows[j] = static_cast<int>(target_row(column));
          blocks[j] = first_tile / 4 + (j & 1);
          const int64_t place = first_bias() + min(blocks[j] * 32 + at.lane, args.outputs - 1);
          value[j] = gated(args.act, args.pair_bias, place, from[pair * 16], from[(pair ^ 1) * 16]);
        }
        const int count = first + kTileThreads / 32 < columns ? 4 : 2;
        if (args.quantised.data != nullptr) {
          const int no_odd = blocks[1] * 32 < args.outputs ? 0 : 1;  // the second block of a column
          quantise_some(value, at.lane, args.quantised, rows, blocks, count, no_odd);
          continue;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (j < count && blocks[j] * 32 + at.lane < args.outputs)
            args.out.data[int64_t{rows[j]} * args.out.stride + blocks[j] * 32 + at.lane] = value[j];
        }
      }
      // The next stage's barrier comes before anything else is left where gate and up were.
      continue;
    }
    if (!busy) continue;
    const int first_output = (first_tile + warp) * kTileRows + at.g;
    for_all([&](int n, int i, int) {
      const int column = n * 8 + at.t * 2 + (i & 1), output = first_output + (i >> 1) * 8;
      if (column >= columns || output >= args.outputs) return;
      const int64_t row = target_row(column);
      float y = acc[n][i];
      if (args.bias != nullptr) y = __fadd_rn(y, args.bias[first_bias() + output]);
      if constexpr (M == Mode::dense) {
        if (args.addend.data != nullptr) y = __fadd_rn(args.addend.data[row * args.addend.stride + output], y);
      }
      args.out.data[row * args.out.stride + output] = y;
    });
  }
}

template <Mode M, int SB>
bool launch(const LinearArgs& args, int sms, cudaStream_t stream) {
  using S = Shape<SB>;
  const auto levels = static_cast<size_t>(tile_levels(args.geometry.segments)) * kGroups * 4 * kTileThreads * 4;
  const size_t meet = M == Mode::gate_up ? size_t{kTileN} * kMeetStride * 4 : 0;
  const size_t bytes = size_t{S::kStages} * S::kStageBytes + (levels > meet ? levels : meet);
  cuda::launch(&wide_tiles_kernel<M, SB>, sms * 2, kTileThreads, bytes, stream, args);
  return true;
}

/// Whether this kernel knows the segments; then it was launched.
inline bool launch_tiles(Mode mode, const LinearArgs& args, int sms, cudaStream_t stream) {
  if (args.geometry.segments < 4) return false;
  const int blocks = args.geometry.segment_blocks;
  switch (mode) {
    case Mode::dense:
      return blocks == 4 && launch<Mode::dense, 4>(args, sms, stream);
    case Mode::gate_up:
      return blocks == 4 && launch<Mode::gate_up, 4>(args, sms, stream);
    case Mode::down:
      return blocks == 6 && launch<Mode::down, 6>(args, sms, stream);
  }
  return false;
}

}  // namespace wide
}  // namespace cohort::cuda
