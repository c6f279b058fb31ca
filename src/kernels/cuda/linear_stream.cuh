// Dense layers for few rows: every weight is streamed once for up to 32 columns and used while it is there.
//
// A block has sixteen warps. K is cut into as many parts as the segments of rule 4 allow, and a warp keeps one part
// of K for all tiles; where K has fewer parts, several tiles stand side by side. Tiles come through a ring of bulk
// copies, which fills before the inputs are ready (dense weights depend on nothing). The parts of a tile meet in shared
// memory; that barrier, one a tile, also frees the ring's slot. (A ring for each warp with 1 KB copies was slower: the
// copies cost about 60 ns each.)
//
// With more columns than a pass takes, the blocks share the column groups out, so that a block reads its activations
// once.
//
// What bounds it: latency at few rows; at 64 the wait for tiles, and dispatch and issue of about 30 instructions per
// warp, block and 8 columns.
#pragma once

#include "kernels/cuda/linear_held.cuh"

namespace cohort::cuda {

/// Parts: plan.parts when known at compile time (then one tile at a time), else 0.
template <Format F, int NT, int SB, int Parts>
__global__ void __launch_bounds__(kStreamThreads, NT == 1 ? 2 : 1)
    stream_kernel(const __grid_constant__ LinearArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kMaxSlots], arrived;
  stamp(args.step, 0);
  const Geometry& geo = args.geometry;
  StreamPlan plan = stream_plan(geo, args.slots, NT, Block<F>::kSums);
  if constexpr (Parts > 0) {
    plan.parts = Parts;
    plan.aside = kStreamWarps / Parts;
  }
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const Lane at(tid & 31);
  const int beside = warp / plan.parts, part = warp % plan.parts;
  constexpr int kColumns = 8 * NT;
  const int slot_bytes = plan.aside * geo.tile_bytes;
  std::byte* columns = shared + plan.columns;
  float* partial = reinterpret_cast<float*>(shared + plan.partial);
  if (tid == 0) {
    for (int i = 0; i < args.slots; ++i) barrier_init(&full[i], 1);
    barrier_init(&arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  // The header is two kernels old at least, see wait_and_pass_on.
  const int all_columns = args.step.header[args.sampled ? kSampled : kRows];
  const int groups = max(1, (all_columns + kColumns - 1) / kColumns);
  // The groups share the columns evenly: the time goes with the largest.
  const int group_columns = min(kColumns, ((all_columns + groups - 1) / groups + 7) & ~7);
  const int tiles = (args.outputs + kTileRows - 1) / kTileRows;
  const int tasks = (tiles + plan.aside - 1) / plan.aside;
  // With fewer blocks than groups a block walks over several.
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int walkers = max(1, grid / groups);
  int group = block % groups;
  const int first_task = block / groups;
  const bool busy = first_task < walkers && all_columns > 0;

  int next_task = busy ? first_task : tasks, next_group = group;
  const auto fetch = [&](int slot) {
    if (next_task >= tasks) return;
    const int first = next_task * plan.aside;
    const auto bytes = static_cast<uint32_t>(min(plan.aside, tiles - first) * geo.tile_bytes);
    barrier_expect(&full[slot], bytes);
    bulk_copy(shared + slot * slot_bytes, args.weights + int64_t{first} * geo.tile_bytes, bytes, &full[slot]);
    next_task += walkers;
    if (next_task >= tasks && next_group + grid < groups) {
      next_group += grid;
      next_task = first_task;
    }
  };
  if (tid == 0) {
    for (int i = 0; i < args.slots; ++i) fetch(i);
  }
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);
  if (!busy) return;

  const int segments = geo.segments / plan.parts;
  int slot = 0, buffer = 0;
  uint32_t parity = 0, arrived_parity = 0;
  for (; group < groups; group += grid) {
    const int begin = group * group_columns, count = min(group_columns, all_columns - begin);
    if (warp == 0) {
      if (at.lane == 0) barrier_expect(&arrived, static_cast<uint32_t>(count * plan.column_bytes));
      __syncwarp();
      if (at.lane < count) {
        copy_column(columns, at.lane, plan.column_stride,
                    args.input.data + int64_t{begin + at.lane} * args.input.stride, geo.blocks, plan.column_bytes,
                    &arrived);
      }
    }
    barrier_wait(&arrived, arrived_parity);
    arrived_parity ^= 1;
    stamp(args.step, 3);
    const ColumnPointers x = columns_at(columns, plan.column_stride, geo.blocks, at);
    const int n_tiles = (count + 7) >> 3;
    for (int task = first_task; task < tasks; task += walkers) {
      // What is added to this thread's first output, fetched while the weights arrive.
      const int first_column = tid >> 4 & (kColumns - 1);
      const int first_output = (task * plan.aside + tid / (16 * kColumns)) * kTileRows + (tid & 15);
      float ahead = 0.0F;
      if (args.addend.data != nullptr && first_column < count && first_output < args.outputs &&
          tid < plan.aside * 16 * kColumns)
        ahead = args.addend.data[int64_t{begin + first_column} * args.addend.stride + first_output];
      float acc[NT][4];
      barrier_wait(&full[slot], parity);
      stamp(args.step, 4);
      {
        // Of a tile past the end the sums are not used.
        const std::byte* tile = shared + slot * slot_bytes + beside * geo.tile_bytes;
        const int block = part * segments * geo.segment_blocks;
        segment_sum<F, NT, SB>(tile, block, block, geo.segment_blocks, x, n_tiles, args.two_groups, at, acc);
        if (segments == 2) {  // at most: 32 segments, 16 parts
          float first[NT][4];
          copy_to<NT>(first, acc);
          const int second = block + geo.segment_blocks;
          segment_sum<F, NT, SB>(tile, second, second, geo.segment_blocks, x, n_tiles, args.two_groups, at, acc);
          add_to<NT>(acc, first);
        }
      }
      stamp(args.step, 5);
      float* place = partial + buffer * plan.partial_floats + warp * NT * kStreamPart + at.t * 2 * kStreamColumn + at.g;
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        place[n * kStreamPart] = acc[n][0];
        place[n * kStreamPart + kStreamColumn] = acc[n][1];
        place[n * kStreamPart + 8] = acc[n][2];
        place[n * kStreamPart + kStreamColumn + 8] = acc[n][3];
      }
      // A warp that is two tasks ahead has passed the next barrier, so all have left this buffer.
      __syncthreads();
      if (tid == 0) fetch(slot);
      if (++slot == args.slots) {
        slot = 0;
        parity ^= 1;
      }
      for (int o = tid; o < plan.aside * 16 * kColumns; o += kStreamThreads) {
        const int column = o >> 4 & (kColumns - 1), aside = o / (16 * kColumns);
        const int output = (task * plan.aside + aside) * kTileRows + (o & 15);
        if (column >= count || output >= args.outputs) continue;
        const float* sums = partial + buffer * plan.partial_floats +
                            (aside * plan.parts * NT + (column >> 3)) * kStreamPart + (column & 7) * kStreamColumn +
                            (o & 15);
        const int64_t row = begin + column;
        float y;
        if constexpr (Parts > 0) {
          y = tree_of<Parts>(sums, NT * kStreamPart);
        } else {
          y = tree_of(sums, NT * kStreamPart, plan.parts);
        }
        if (args.bias != nullptr) y = __fadd_rn(y, args.bias[output]);
        if (args.addend.data != nullptr)
          y = __fadd_rn(o == tid ? ahead : args.addend.data[row * args.addend.stride + output], y);
        args.out.data[row * args.out.stride + output] = y;
      }
      stamp(args.step, 6);
      buffer ^= 1;
    }
  }
}

/// Ring slots that fit `limit` bytes; 0 when not even one does.
template <Format F, int NT>
int stream_slots(const Geometry& geometry, int limit) {
  int slots = 0;
  while (slots < kMaxSlots && stream_plan(geometry, slots + 1, NT, Block<F>::kSums).total <= limit) ++slots;
  return slots;
}

template <Format F, int NT>
void launch_stream_kernel(LinearArgs args, int sms, cudaStream_t stream) {
  args.slots = NT == 1 ? stream_slots<F, NT>(args.geometry, kSharedTwo) : 0;
  const bool two = args.slots >= 2;
  if (!two) args.slots = stream_slots<F, NT>(args.geometry, kSharedOne);
  const StreamPlan plan = stream_plan(args.geometry, args.slots, NT, Block<F>::kSums);
  // Two blocks an SM where each has several tiles; else the room is left to the kernels before and after.
  const int grid = two && args.outputs / kTileRows / plan.aside >= 6 * sms ? 2 * sms : sms;
  const auto start = [&](auto* kernel) {
    launch(kernel, grid, kStreamThreads, static_cast<size_t>(plan.total), stream, args);
  };
  constexpr int kParts = F == Format::k4 ? 0 : kStreamWarps;  // k4: spills
  if (args.geometry.segment_blocks == 4 && plan.parts == kParts) {
    start(&stream_kernel<F, NT, 4, kParts>);
  } else if (args.geometry.segment_blocks == 4) {
    start(&stream_kernel<F, NT, 4, 0>);
  } else {
    start(&stream_kernel<F, NT, 0, 0>);
  }
}

template <Format F>
void launch_stream_format(bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  if constexpr (F == Format::q4 || F == Format::q8) {  // others: more registers
    if (wide && launch_held<F>(args, sms, stream)) return;
  }
  if (wide && stream_slots<F, 4>(args.geometry, kSharedOne) >= 2) {
    launch_stream_kernel<F, 4>(args, sms, stream);
  } else if (wide && stream_slots<F, 2>(args.geometry, kSharedOne) >= 2) {
    launch_stream_kernel<F, 2>(args, sms, stream);
  } else {
    launch_stream_kernel<F, 1>(args, sms, stream);
  }
}

}  // namespace cohort::cuda
