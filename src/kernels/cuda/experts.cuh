// The experts for few rows (at most 128): two kernels that read every weight of a distinct expert once.
//
// Gate and up: a block of eight warps takes 32 outputs of one entry (an expert and up to eight of its routes) at a
// time: two gate tiles and their up tiles, four warps to a pair, each a quarter of K. A warp streams its own quarters
// through a ring of its own, so the only barrier is where the quarters meet; there a warp has one route's 32 outputs,
// which are one quantised block.
//
// Down of at most 8 rows: a block owns 16 outputs and walks over all entries, a warp an entry at a time, each with a
// ring of its own; the activations come straight from the L2 cache. At the end the block has everything the weighted
// sum of its outputs needs, and adds the residual. With more rows that reads the activations too often.
//
// What bounds them: memory. Four warps to a pair because 16 rows by 2048 is 26 us of one warp's instructions.
#pragma once

#include "kernels/cuda/segments.cuh"

namespace cohort::cuda {

/// Count: segments of a chunk when known at compile time (with SB), else 0.
template <Format F, int SB, int Count, int PerSm>
__global__ void __launch_bounds__(kUpThreads, PerSm) up_kernel(const __grid_constant__ UpArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kUpWarps][kUpSlots], arrived, ready[2];
  stamp(args.step, 0);
  const UpPlan& plan = args.plan;
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const Lane at(tid & 31);
  const int pair = warp >> 2, part = warp & 3;
  const bool working = part < plan.parts;
  std::byte* ring = shared + warp * plan.slots * plan.chunk_bytes;
  std::byte* columns = shared + plan.columns;
  float* partial = reinterpret_cast<float*>(shared + plan.partial);
  if (at.lane == 0) {
    for (int i = 0; i < plan.slots; ++i) barrier_init(&full[warp][i], 1);
    if (warp == 0) {
      barrier_init(&arrived, 1);
      barrier_init(&ready[0], kUpWarps);
      barrier_init(&ready[1], kUpWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // Steps of few rows: all rows come before the routes are known (they are older than the kernel before this one);
  // after them they would queue behind the weights, 3 us.
  const int rows = args.early ? args.step.header[kRows] : 0;
  if (args.early && warp == 1) {
    if (at.lane == 0) barrier_expect(&arrived, static_cast<uint32_t>(rows * plan.column_bytes));
    __syncwarp();
    if (at.lane < rows)
      bulk_copy(columns + at.lane * plan.column_stride, args.input.data + int64_t{at.lane} * args.input.stride,
                static_cast<uint32_t>(plan.column_bytes), &arrived);
  }
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);

  // A single row's routes are the entries.
  const int items = (rows == 1 ? args.top_k : *args.group.count) * args.units;
  // Neighbouring runs of items go to the blocks of one SM (blocks come to the SMs in turn), so that all SMs have the
  // same number of items, give or take one, where blocks have hardly any.
  const int grid = static_cast<int>(gridDim.x), sms = grid / plan.per_sm;
  const int block = static_cast<int>(blockIdx.x) % sms * plan.per_sm + static_cast<int>(blockIdx.x) / sms;
  // At most 4096 routes' entries, 512 units and a few hundred blocks: 32 bits suffice.
  const int begin = static_cast<int>(static_cast<unsigned>(items * block) / static_cast<unsigned>(grid));
  const int end = static_cast<int>(static_cast<unsigned>(items * (block + 1)) / static_cast<unsigned>(grid));
  if (begin >= end) {
    if (args.early) barrier_wait(&arrived, 0);  // nobody leaves before the copies have come
    return;
  }
  constexpr int kEntryWords = kEntryHeader + kEntryColumns;

  // What lane 0 fetches next: chunk `next_cut` of matrix `next_matrix` of unit `next_unit` of entry `next_entry`.
  int next = begin, next_entry = begin / args.units, next_unit = begin % args.units, next_matrix = 0, next_cut = 0;
  const std::byte* source = nullptr;
  const auto locate = [&] {  // the entry's expert
    source = args.weights + args.group.entries[next_entry * kEntryWords] * args.matrix_bytes;
  };
  const auto fetch = [&](int slot) {
    if (next >= end) return;
    barrier_expect(&full[warp][slot], static_cast<uint32_t>(plan.chunk_bytes));
    const int tile = next_unit * 4 + pair * 2 + next_matrix;
    bulk_copy(ring + slot * plan.chunk_bytes,
              source + int64_t{tile} * args.tile_bytes + (part * plan.cuts + next_cut) * plan.chunk_bytes,
              static_cast<uint32_t>(plan.chunk_bytes), &full[warp][slot]);
    if (++next_cut < plan.cuts) return;
    next_cut = 0;
    if (++next_matrix < 2) return;
    next_matrix = 0;
    ++next;
    if (++next_unit == args.units) {
      next_unit = 0;
      ++next_entry;
      if (next < end) locate();
    }
  };

  int entry = next_entry, unit = next_unit;
  int size = 0, route = 0;  // of the entry; route: of column `lane`
  int64_t first_bias = 0;
  uint32_t arrived_parity = 0;
  ColumnPointers x = columns_at(columns, plan.column_stride, args.input.blocks, at);
  int next_expert = 0, next_size = 0, next_route = 0;  // of the next entry, read while this one's items are computed
  const auto read_ahead = [&](int e) {
    if (e * args.units >= end) return;
    const int32_t* record = args.group.entries + e * kEntryWords;
    next_expert = record[0];
    next_size = record[1];
    next_route = at.lane < kEntryColumns ? record[kEntryHeader + at.lane] : 0;
  };
  const auto read_entry = [&] {
    size = next_size;
    route = next_route;
    first_bias = int64_t{next_expert} * args.units * 32;
    read_ahead(entry + 1);
  };
  const auto take_columns = [&] {
    if (args.early) {  // columns past the last: the first row
      const auto column = [&](int i) {
        const int row = __shfl_sync(kFullMask, route, i) / args.top_k;
        return columns + (i < size ? row : 0) * plan.column_stride;
      };
      const int scales = args.input.blocks * 32;
      const std::byte *own = column(at.g), *even = column(at.t * 2), *odd = column(at.t * 2 + 1);
      x.values = own + at.t * 8;
      x.scales0 = even + scales;
      x.scales1 = odd + scales;
      return;
    }
    if (warp != 0) return;
    if (at.lane == 0) barrier_expect(&arrived, static_cast<uint32_t>(size * plan.column_bytes));
    __syncwarp();
    if (at.lane < size) {
      copy_column(columns, at.lane, plan.column_stride,
                  args.input.data + int64_t{route / args.top_k} * args.input.stride, args.input.blocks,
                  plan.column_bytes, &arrived);
    }
  };
  // Whatever is asked for after the weights waits for them.
  read_ahead(entry);
  read_entry();
  if (!args.early) take_columns();
  if (working && at.lane == 0) {
    locate();
    for (int i = 0; i < plan.slots; ++i) fetch(i);
  }
  if (args.early) take_columns();
  stamp(args.step, 3);
  barrier_wait(&arrived, arrived_parity);
  stamp(args.step, 4);
  arrived_parity ^= 1;

  const int chunk_blocks = plan.chunk_segments * args.segment_blocks;
  const int pair_floats = up_partial_floats(plan.parts) / 2;
  int slot = 0, buffer = 0;
  uint32_t parity = 0, ready_parity = 0;
  // The parts of an item meet after the next item's were computed, so that no warp waits for another: the sums of item
  // i are stored after i - 1 was met, which saw that all warps had left i - 2, whose buffer i takes.
  int pending = -1;  // unit
  const auto meet = [&] {
    barrier_wait(&ready[buffer ^ 1], ready_parity);
    if (buffer == 0) ready_parity ^= 1;
    // Columns go round, for there are fewer than warps more often than not.
    const int column = (warp + pending * 4) & (kEntryColumns - 1);
    const int64_t to = __shfl_sync(kFullMask, route, column);
    if (column < size) {
      const float* place = partial + (buffer ^ 1) * 2 * pair_floats + (at.lane >> 4) * pair_floats +
                           column * kColumnFloats + (at.lane & 15);
      const float gate = tree_of(place, kPartFloats, plan.parts);
      const float up = tree_of(place + plan.parts * kPartFloats, kPartFloats, plan.parts);
      quantise_block(gated(args.act, args.bias, first_bias + pending * 32 + at.lane, gate, up), at.lane, args.out, to,
                     pending);
    }
    pending = -1;
  };
  for (int item = begin; item < end; ++item) {
    float sums[2][4];
    if (working) {
#pragma unroll
      for (int matrix = 0; matrix < 2; ++matrix) {
        float acc[1][4], first[1][4], half[1][4];
#pragma unroll 1
        for (int cut = 0; cut < plan.cuts; ++cut) {
          barrier_wait(&full[warp][slot], parity);
          stamp(args.step, 5 + matrix * 2 + (cut != 0));
          segments_tree<F, SB, Count>(ring + slot * plan.chunk_bytes, (part * plan.cuts + cut) * chunk_blocks,
                                      args.segment_blocks, plan.chunk_segments, x, args.two_groups, at, acc);
          __syncwarp();
          if (at.lane == 0) fetch(slot);
          if (++slot == plan.slots) {
            slot = 0;
            parity ^= 1;
          }
          // At most four cuts: the tree over them.
          if ((cut & 1) != 0) add_to<1>(acc, first);
          if (cut == 3) add_to<1>(acc, half);
          if (cut == 1) copy_to<1>(half, acc);
          if ((cut & 1) == 0) copy_to<1>(first, acc);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[matrix][i] = acc[0][i];
      }
    }
    stamp(args.step, 9);
    if (pending >= 0) meet();
    if (working) {
#pragma unroll
      for (int matrix = 0; matrix < 2; ++matrix) {
        float* place = partial + buffer * 2 * pair_floats + pair * pair_floats +
                       (matrix * plan.parts + part) * kPartFloats + at.t * 2 * kColumnFloats + at.g;
        place[0] = sums[matrix][0];
        place[kColumnFloats] = sums[matrix][1];
        place[8] = sums[matrix][2];
        place[kColumnFloats + 8] = sums[matrix][3];
      }
    }
    __syncwarp();
    if (at.lane == 0) barrier_arrive(&ready[buffer]);
    buffer ^= 1;
    pending = unit;
    if (++unit == args.units) {
      unit = 0;
      ++entry;
      meet();  // and so all are done with the old columns
      if (item + 1 < end) {
        read_entry();
        take_columns();
        if (!args.early) {
          barrier_wait(&arrived, arrived_parity);
          arrived_parity ^= 1;
        }
      }
    }
  }
  if (pending >= 0) meet();
  stamp(args.step, 10);
}

/// The expert's bias to a lane's sums: `output` of two columns, then output + 8.
__device__ __forceinline__ void add_bias(const DownArgs& args, int expert, int output, float (&sums)[4]) {
  const float* bias = args.bias + int64_t{expert} * args.outputs;
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = __fadd_rn(sums[i], bias[min(output + (i >> 1) * 8, args.outputs - 1)]);
}

template <Format F, int SB>
__global__ void __launch_bounds__(kDownThreads, 1) down_kernel(const __grid_constant__ DownArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kDownWarps][kDownSlots];
  stamp(args.step, 0);
  const DownPlan& plan = args.plan;
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const Lane at(tid & 31);
  const bool working = warp < plan.workers;
  std::byte* ring = shared + warp * plan.slots * plan.slot_bytes;
  if (working && at.lane == 0) {
    for (int i = 0; i < plan.slots; ++i) barrier_init(&full[warp][i], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  constexpr int kEntryWords = kEntryHeader + kEntryColumns;
  const int tiles = (args.outputs + kTileRows - 1) / kTileRows;
  const int grid = static_cast<int>(gridDim.x);
  // The routes are older than the kernel before this one, so the first weights need not wait; see wait_and_pass_on.
  const int count = *args.group.count;
  int next = warp, next_tile = static_cast<int>(blockIdx.x);
  const auto fetch = [&](int slot) {
    if (next_tile >= tiles) return;
    const int expert = args.group.entries[next * kEntryWords];
    barrier_expect(&full[warp][slot], static_cast<uint32_t>(args.tile_bytes));
    bulk_copy(ring + slot * plan.slot_bytes,
              args.weights + expert * args.matrix_bytes + int64_t{next_tile} * args.tile_bytes,
              static_cast<uint32_t>(args.tile_bytes), &full[warp][slot]);
    next += plan.workers;
    if (next >= count) {
      next = warp;
      next_tile += grid;
    }
  };
  if (working && warp < count && at.lane == 0) {
    for (int i = 0; i < plan.slots; ++i) fetch(i);
  }
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);
  const int rows = args.step.header[kRows];
  int slot = 0;
  uint32_t parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += grid) {
    float* results = reinterpret_cast<float*>(shared + plan.results);
    constexpr int64_t stride = kTileRows;
    // Lane i of a record: the expert and the size in the last lanes, the route of column i in the first ones; read one
    // entry ahead.
    const auto read_record = [&](int entry) {
      const int32_t* record = args.group.entries + entry * kEntryWords;
      return entry >= count ? 0 : at.lane >= 30 ? record[at.lane - 30] : record[kEntryHeader + (at.lane & 7)];
    };
    int ahead = working ? read_record(warp) : 0;
    for (int entry = warp; working && entry < count; entry += plan.workers) {
      const int expert = __shfl_sync(kFullMask, ahead, 30), size = __shfl_sync(kFullMask, ahead, 31);
      // Columns past the last read the first one's record; their sums are not used.
      const int route = __shfl_sync(kFullMask, ahead, at.lane < size ? at.lane : 0);
      ahead = read_record(entry + plan.workers);
      const auto record_of = [&](int column) {
        return args.input.data + int64_t{__shfl_sync(kFullMask, route, column)} * args.input.stride;
      };
      const int scales = args.input.blocks * 32;
      const ColumnPointers x{record_of(at.g) + at.t * 8, record_of(at.t * 2) + scales, record_of(at.t * 2 + 1) + scales,
                             0, args.input.blocks * 4};
      stamp(args.step, 3);
      barrier_wait(&full[warp][slot], parity);
      stamp(args.step, 4);
      float acc[1][4];
      segments_tree<F, SB, SB == 6 ? 4 : 0>(ring + slot * plan.slot_bytes, 0, args.segment_blocks, args.segments, x,
                                            args.two_groups, at, acc);
      __syncwarp();
      if (at.lane == 0) fetch(slot);
      if (++slot == plan.slots) {
        slot = 0;
        parity ^= 1;
      }
      if (args.bias != nullptr) add_bias(args, expert, tile * kTileRows + at.g, acc[0]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = at.t * 2 + i;
        const int64_t to = __shfl_sync(kFullMask, route, column);
        if (column >= size) continue;
        results[to * stride + at.g] = acc[0][i];
        results[to * stride + at.g + 8] = acc[0][i + 2];
      }
    }
    stamp(args.step, 5);
    __syncthreads();
    stamp(args.step, 6);
    for (int i = tid; i < rows * kTileRows; i += kDownThreads) {
      const int row = i / kTileRows, in_tile = i % kTileRows;
      const int output = tile * kTileRows + in_tile;
      if (output >= args.outputs) continue;
      const int64_t first = int64_t{row} * args.top_k;
      const float* d = results + first * stride + in_tile;
      const float* w = args.group.slot_weight + first;
      float other = 0.0F;
      if (args.addend.data != nullptr) other = args.addend.data[row * args.addend.stride + output];
      float y = __fmul_rn(w[0], d[0]);
#pragma unroll 8
      for (int s = 1; s < args.top_k; ++s) y = __fmaf_rn(w[s], d[s * stride], y);
      if (args.addend.data != nullptr) y = __fadd_rn(other, y);
      args.out.data[row * args.out.stride + output] = y;
    }
    stamp(args.step, 7);
    if (tile + grid < tiles) __syncthreads();
  }
}

/// More rows: a block takes a run of the tiles of all entries, a warp a tile at a time, and all warps share an entry's
/// columns; the weighted sum is another kernel's.
template <Format F, int SB>
__global__ void __launch_bounds__(kDownThreads, 1) down_wide_kernel(const __grid_constant__ DownArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kDownWarps][kDownSlots], arrived;
  const DownPlan& plan = args.plan;
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const Lane at(tid & 31);
  const bool working = warp < plan.workers;
  std::byte* ring = shared + warp * plan.slots * plan.slot_bytes;
  std::byte* columns = shared + plan.columns;
  if (at.lane == 0) {
    if (working) {
      for (int i = 0; i < plan.slots; ++i) barrier_init(&full[warp][i], 1);
    }
    if (warp == 0) barrier_init(&arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  constexpr int kEntryWords = kEntryHeader + kEntryColumns;
  const int tiles = (args.outputs + kTileRows - 1) / kTileRows;
  const int block = static_cast<int>(blockIdx.x), grid = static_cast<int>(gridDim.x);
  // The routes are older than the kernel before this one, so the first weights need not wait; see wait_and_pass_on.
  const int total = *args.group.count * tiles;
  const int begin = static_cast<int>(int64_t{total} * block / grid);
  const int end = static_cast<int>(int64_t{total} * (block + 1) / grid);
  const int first_entry = begin / tiles;
  const auto tile_end = [&](int entry) { return min(tiles, end - entry * tiles); };
  int next_entry = first_entry, next = begin - first_entry * tiles + warp;
  const std::byte* source = nullptr;
  const auto settle = [&] {  // on the next tile that exists; source is null at the end
    source = nullptr;
    while (next_entry * tiles < end && next >= tile_end(next_entry)) {
      ++next_entry;
      next = warp;
    }
    if (next_entry * tiles < end)
      source = args.weights + args.group.entries[next_entry * kEntryWords] * args.matrix_bytes;
  };
  const auto fetch = [&](int slot) {
    if (source == nullptr) return;
    barrier_expect(&full[warp][slot], static_cast<uint32_t>(args.tile_bytes));
    bulk_copy(ring + slot * plan.slot_bytes, source + int64_t{next} * args.tile_bytes,
              static_cast<uint32_t>(args.tile_bytes), &full[warp][slot]);
    next += plan.workers;
    if (next >= tile_end(next_entry)) settle();
  };
  if (working && at.lane == 0 && begin < end) {
    settle();
    for (int i = 0; i < plan.slots; ++i) fetch(i);
  }
  wait_and_pass_on();
  const ColumnPointers x = columns_at(columns, plan.column_stride, args.input.blocks, at);
  int slot = 0;
  uint32_t parity = 0, arrived_parity = 0;
  for (int entry = first_entry; entry * tiles < end; ++entry) {
    const int32_t* record = args.group.entries + entry * kEntryWords;
    const int size = record[1];
    const int route = at.lane < kEntryColumns ? record[kEntryHeader + at.lane] : 0;
    if (entry != first_entry) __syncthreads();  // all are done with the old columns
    if (warp == 0) {
      if (at.lane == 0) barrier_expect(&arrived, static_cast<uint32_t>(size * plan.column_bytes));
      __syncwarp();
      if (at.lane < size) {
        copy_column(columns, at.lane, plan.column_stride, args.input.data + int64_t{route} * args.input.stride,
                    args.input.blocks, plan.column_bytes, &arrived);
      }
    }
    const int64_t to0 = __shfl_sync(kFullMask, route, at.t * 2), to1 = __shfl_sync(kFullMask, route, at.t * 2 + 1);
    barrier_wait(&arrived, arrived_parity);
    arrived_parity ^= 1;
    const int last = tile_end(entry);
    for (int tile = max(begin - entry * tiles, 0) + warp; working && tile < last; tile += plan.workers) {
      barrier_wait(&full[warp][slot], parity);
      float acc[1][4];
      segments_tree<F, SB, SB == 6 ? 4 : 0>(ring + slot * plan.slot_bytes, 0, args.segment_blocks, args.segments, x,
                                            args.two_groups, at, acc);
      __syncwarp();
      if (at.lane == 0) fetch(slot);
      if (++slot == plan.slots) {
        slot = 0;
        parity ^= 1;
      }
      const int output = tile * kTileRows + at.g;
      if (args.bias != nullptr) add_bias(args, record[0], output, acc[0]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = output + (i >> 1) * 8;
        if (at.t * 2 + (i & 1) < size && row < args.outputs)
          args.results.data[((i & 1) != 0 ? to1 : to0) * args.results.stride + row] = acc[0][i];
      }
    }
  }
}

template <Format F>
void launch_up_format(const Geometry& geometry, UpArgs args, int sms, cudaStream_t stream) {
  args.plan = up_plan(shape_of(F), Block<F>::kSums, geometry);
  args.segment_blocks = geometry.segment_blocks;
  const int segments = geometry.segment_blocks == 4 ? args.plan.chunk_segments : 0;
  const auto start = [&](auto* kernel, int per_sm) {
    args.plan.per_sm = per_sm;
    launch(kernel, sms * per_sm, kUpThreads, static_cast<size_t>(args.plan.total), stream, args);
  };
  if (segments == 2) {
    start(&up_kernel<F, 4, 2, 2>, args.plan.per_sm);
  } else if (segments == 4) {
    start(&up_kernel<F, 4, 4, 2>, args.plan.per_sm);
  } else {
    start(&up_kernel<F, 0, 0, 2>, args.plan.per_sm);
  }
}

template <Format F>
void launch_down_format(bool small, const Geometry& geometry, DownArgs args, int sms, cudaStream_t stream) {
  args.plan = down_plan(Block<F>::kSums, geometry, small ? args.step.max_rows * args.top_k : 0, kSharedOne);
  args.segments = geometry.segments;
  args.segment_blocks = geometry.segment_blocks;
  const auto start = [&](auto* few, auto* wide) {
    launch(small ? few : wide, sms, kDownThreads, static_cast<size_t>(args.plan.total), stream, args);
  };
  if (geometry.segment_blocks == 6 && geometry.segments == 4) {
    start(&down_kernel<F, 6>, &down_wide_kernel<F, 6>);
  } else if (geometry.segment_blocks == 4) {
    start(&down_kernel<F, 4>, &down_wide_kernel<F, 4>);
  } else {
    start(&down_kernel<F, 0>, &down_wide_kernel<F, 0>);
  }
}

}  // namespace cohort::cuda
