// Linear layers for few rows: every weight is streamed once through a ring of bulk copies and used while it is there.
//
// A block has eight compute warps and one that copies. Work comes in tasks (a few 16-row tiles over all of K, see
// Geometry), a task in chunks (one ring slot each). The compute warps share a chunk: each takes whole segments of rule
// 4 of one tile for up to 8 * NT columns, and leaves its sums in shared memory, where the tree meets them when the
// task's last chunk is done. Shared memory per block is held near 110 KB, so that two blocks share an SM: two of one
// kernel, or the end of one and the start of the next, whose ring fills before its inputs are ready (dense weights do
// not depend on anything).
//
// What bounds it: memory up to about 8 columns an expert; 25 instructions per warp and 288 bytes of weights.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

inline constexpr int kComputeThreads = kWarps * 32;
inline constexpr int kStreamThreads = kComputeThreads + 32;
inline constexpr int kMaxSlots = 8;
inline constexpr int kPartials = 4;           // buffers of segment sums, see the compute loop
inline constexpr int kSharedTwo = 113 << 10;  // of each of two blocks on an SM
inline constexpr int kSharedOne = 226 << 10;

struct StreamLayout {
  int row_stride;  // bytes of one column's int8 values
  int values, scales, sums, partial, partial_floats, total;
};

/// Byte offsets in dynamic shared memory; the ring is first.
__host__ __device__ inline StreamLayout stream_layout(const Geometry& g, int slots, int nt, bool with_sums) {
  StreamLayout l;
  const int columns = 8 * nt;
  const int k = g.blocks * 32;
  l.row_stride = (k + 127) / 128 * 128 + 32;  // lane (g, t) reads 8 bytes at g * stride + 8 t: no bank conflicts
  l.values = slots * ((g.chunk_bytes + 127) / 128 * 128);
  l.scales = l.values + columns * l.row_stride;
  l.sums = l.scales + g.blocks * columns * 4;
  l.partial = l.sums + (with_sums ? g.blocks * columns * 4 : 0);
  l.partial_floats = g.task_tiles * g.parts * g.segment_warps * nt * 128;
  l.total = l.partial + kPartials * l.partial_floats * 4;
  return l;
}

/// What a warp multiplies with: activations in shared memory.
struct StreamActivations {
  const std::byte* values;
  int row_stride;
  const float* scales;
  const int32_t* sums;
  int n_tiles;  // 8-column groups in use
};

/// One segment of one tile for up to 8 * NT columns, from +0. SB: its 32-blocks when known at compile time, else 0.
template <Format F, int NT, int SB>
__device__ __forceinline__ void stream_segment(const std::byte* tile, int block, int activation_block, int blocks,
                                               const StreamActivations& x, bool two_groups, Lane at,
                                               float (&acc)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0.0F;
  }
  const int count = SB > 0 ? SB : blocks;
#pragma unroll(SB > 0 ? SB : 2)
  for (int b = 0; b < count; ++b) {
    Block<F> w;
    w.load(tile, block + b, at, two_groups);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (NT > 1 && n >= x.n_tiles) break;
      Columns c;
      const uint2 q = *reinterpret_cast<const uint2*>(x.values + (n * 8 + at.g) * x.row_stride +
                                                      (activation_block + b) * 32 + at.t * 8);
      const int column = ((activation_block + b) * NT + n) * 8 + at.t * 2;
      const float2 d = *reinterpret_cast<const float2*>(x.scales + column);
      c.b0 = q.x;
      c.b1 = q.y;
      c.d0 = d.x;
      c.d1 = d.y;
      if constexpr (Block<F>::kSums) {
        const int2 sum = *reinterpret_cast<const int2*>(x.sums + column);
        c.sums0 = sum.x;
        c.sums1 = sum.y;
      }
      w.add(acc[n], c);
    }
  }
}

/// tree over one warp's 1, 2 or 4 segments; pairs of segments are independent work side by side.
template <Format F, int NT, int SB>
__device__ __forceinline__ void stream_segments(const std::byte* tile, int block, int activation_block,
                                                const Geometry& geo, const StreamActivations& x, bool two_groups,
                                                Lane at, float (&acc)[NT][4]) {
  const int blocks = SB > 0 ? SB : geo.segment_blocks;
  if (geo.warp_segments == 1) {
    stream_segment<F, NT, SB>(tile, block, activation_block, blocks, x, two_groups, at, acc);
    return;
  }
  for (int pair = 0; pair < geo.warp_segments; pair += 2) {
    float first[NT][4], second[NT][4];
    const int offset = pair * blocks;
    stream_segment<F, NT, SB>(tile, block + offset, activation_block + offset, blocks, x, two_groups, at, first);
    stream_segment<F, NT, SB>(tile, block + offset + blocks, activation_block + offset + blocks, blocks, x, two_groups,
                              at, second);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = __fadd_rn(first[n][i], second[n][i]);
        acc[n][i] = pair == 0 ? sum : __fadd_rn(acc[n][i], sum);
      }
    }
  }
}

/// Walks over (entry, task) items without dividing: an entry is a group of columns.
struct Cursor {
  int entry, task, left;  // left: items to come, this one included
  __device__ __forceinline__ void advance(int step, int tasks) {
    --left;
    task += step;
    while (task >= tasks) {
      task -= tasks;
      ++entry;
    }
  }
};
/// Dense: every gridDim-th item. Experts: a contiguous run, so that a block meets few entries.
template <Mode M>
__device__ __forceinline__ Cursor first_item(int items, int tasks) {
  const int block = static_cast<int>(blockIdx.x), grid = static_cast<int>(gridDim.x);
  if constexpr (M == Mode::dense) {
    return {block / tasks, block % tasks, block < items ? (items - 1 - block) / grid + 1 : 0};
  } else {
    const int begin = static_cast<int>(int64_t{items} * block / grid);
    const int end = static_cast<int>(int64_t{items} * (block + 1) / grid);
    return {begin / tasks, begin % tasks, end - begin};
  }
}

template <Format F, Mode M, int NT, int SB>
__global__ void __launch_bounds__(kStreamThreads, NT == 1 ? 2 : 1)
    stream_kernel(const __grid_constant__ LinearArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kMaxSlots], empty[kMaxSlots], ready[kPartials];
  __shared__ int32_t routes[8];
  const Geometry& geo = args.geometry;
  const StreamLayout layout = stream_layout(geo, args.slots, NT, Block<F>::kSums || M == Mode::down);
  const int slot_bytes = (geo.chunk_bytes + 127) / 128 * 128;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  constexpr int kColumns = 8 * NT;
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.slots; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], kWarps);
    }
    for (uint64_t& barrier : ready) barrier_init(&barrier, kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  let_next_start();

  const int64_t matrix_bytes = int64_t{geo.tiles} * geo.tile_bytes;
  const int task_bytes = geo.chunks * geo.chunk_bytes;
  const int step = M == Mode::dense ? static_cast<int>(gridDim.x) : 1;

  if (warp == kWarps) {
    if ((threadIdx.x & 31) != 0) return;
    int slot = 0;
    uint32_t parity = 1;
    const auto push = [&](const std::byte* source) {
      barrier_wait(&empty[slot], parity);
      barrier_expect(&full[slot], static_cast<uint32_t>(geo.chunk_bytes));
      bulk_copy(shared + slot * slot_bytes, source, static_cast<uint32_t>(geo.chunk_bytes), &full[slot]);
      if (++slot == args.slots) {
        slot = 0;
        parity ^= 1;
      }
    };
    if constexpr (M == Mode::dense) {
      // The first column group's tasks are known before the rows are: fill the ring, then wait.
      int pushed = 0, chunk = 0;
      Cursor at = first_item<M>(geo.tasks, geo.tasks);
      while (at.left > 0 && pushed < args.slots) {
        push(args.weights + int64_t{at.task} * task_bytes + chunk * geo.chunk_bytes);
        ++pushed;
        if (++chunk == geo.chunks) {
          chunk = 0;
          at.advance(step, geo.tasks);
        }
      }
      wait_for_previous();
      const int columns = args.step.header[args.sampled ? kSampled : kRows];
      if (columns == 0) {  // nothing to do: stay until the copies have landed
        for (int i = 0; i < pushed; ++i) barrier_wait(&full[i], 0);
        return;
      }
      at = first_item<M>(geo.tasks * ((columns + kColumns - 1) / kColumns), geo.tasks);
      // Skip what was pushed before.
      for (chunk = pushed; at.left > 0 && chunk >= geo.chunks; chunk -= geo.chunks) at.advance(step, geo.tasks);
      for (; at.left > 0; at.advance(step, geo.tasks), chunk = 0) {
        const std::byte* source = args.weights + int64_t{at.task} * task_bytes;
        for (; chunk < geo.chunks; ++chunk) push(source + chunk * geo.chunk_bytes);
      }
    } else {
      wait_for_previous();
      int entry = -1;
      const std::byte* matrix = nullptr;
      for (Cursor at = first_item<M>(*args.group.count * geo.tasks, geo.tasks); at.left > 0; at.advance(1, geo.tasks)) {
        if (at.entry != entry) {
          entry = at.entry;
          matrix = args.weights + args.group.expert[entry] * matrix_bytes;
        }
        const std::byte* source = matrix + int64_t{at.task} * task_bytes;
        for (int chunk = 0; chunk < geo.chunks; ++chunk) push(source + chunk * geo.chunk_bytes);
      }
    }
    return;
  }

  // Compute warps.
  const int tid = static_cast<int>(threadIdx.x);
  const Lane at(tid & 31);
  std::byte* values = shared + layout.values;
  float* scales = reinterpret_cast<float*>(shared + layout.scales);
  int32_t* sums = reinterpret_cast<int32_t*>(shared + layout.sums);
  float* partial = reinterpret_cast<float*>(shared + layout.partial);
  const auto sync = [] { asm volatile("bar.sync 1, %0;" ::"n"(kComputeThreads) : "memory"); };
  const int tile_in_chunk = warp / geo.segment_warps;
  const int segment_warp = warp % geo.segment_warps;
  const int part_blocks = geo.blocks / geo.parts;
  const int first_block = segment_warp * geo.warp_segments * geo.segment_blocks;
  const int task_outputs = geo.task_tiles / geo.matrices * kTileRows;

  wait_for_previous();
  int all_columns = 0;
  Cursor item;
  if constexpr (M == Mode::dense) {
    all_columns = args.step.header[args.sampled ? kSampled : kRows];
    item = first_item<M>(geo.tasks * ((all_columns + kColumns - 1) / kColumns), geo.tasks);
  } else {
    item = first_item<M>(*args.group.count * geo.tasks, geo.tasks);
  }
  int slot = 0;
  uint32_t parity = 0;
  int current = -1;  // entry whose activations are in shared memory
  int begin = 0, columns = 0;

  // Each output's segments meet. A task's sums are met one task later, so that no warp waits for the others in between:
  // a warp that starts on task i + 4 has seen all warps done with the sums of i + 2, so with meeting those of i, whose
  // buffer it takes.
  constexpr int kAhead = NT == 4 ? 2 : 1;
  float ahead[kAhead];  // what is added to this thread's first outputs, fetched while the weights arrive
  int pending = -1;     // first output of the task whose sums wait
  int buffer = 0;
  uint32_t ready_parity = 0;
  const int count = geo.parts * geo.segment_warps;
  const auto meet = [&] {
    barrier_wait(&ready[buffer], ready_parity);
    const float* sums_of_task = partial + buffer * layout.partial_floats;
    const auto total = [&](int tile, int n, int element) {
      return tree_of(sums_of_task + (tile * count * NT + n) * 128 + element, NT * 128, count);
    };
    for (int o = tid, u = 0; o < task_outputs * kColumns; o += kComputeThreads, ++u) {
      const int element = o & 127;
      const int n = (o >> 7) % NT;
      const int pair = (o >> 7) / NT;
      const int column = n * 8 + (element & 7);
      const int output = pending + pair * kTileRows + (element >> 3);
      if (column >= columns || output >= args.outputs) continue;
      if constexpr (M == Mode::dense) {
        const int64_t row = begin + column;
        float y = total(pair, n, element);
        if (args.bias != nullptr) y = __fadd_rn(y, args.bias[output]);
        if (args.addend.data != nullptr) {
          const float other = u == 0                 ? ahead[0]
                              : u == 1 && kAhead > 1 ? ahead[kAhead - 1]
                                                     : args.addend.data[row * args.addend.stride + output];
          y = __fadd_rn(other, y);
        }
        args.out.data[row * args.out.stride + output] = y;
      } else {
        const int64_t route = routes[column];
        float y;
        if constexpr (M == Mode::gate_up) {
          const float gate = total(pair * 2, n, element);
          const float up = total(pair * 2 + 1, n, element);
          y = __fmul_rn(args.act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate), up);
        } else {
          y = total(pair, n, element);
        }
        args.out.data[route * args.out.stride + output] = y;
      }
    }
    pending = -1;
    if (++buffer == kPartials) {
      buffer = 0;
      ready_parity ^= 1;
    }
  };

  int write_buffer = 0;
  for (; item.left > 0; item.advance(step, geo.tasks)) {
    if (item.entry != current) {
      if (pending >= 0) meet();
      current = item.entry;
      sync();
      if constexpr (M == Mode::dense) {
        begin = current * kColumns;
        columns = min(kColumns, all_columns - begin);
      } else {
        begin = args.group.begin[current];
        columns = args.group.size[current];
        if (tid < columns) routes[tid] = args.group.routes[begin + tid];
        sync();
      }
      if constexpr (M == Mode::down) {
        // Eight blocks' loads in flight per warp.
        for (int column = 0; column < columns; ++column) {
          const float* source = args.float_input.data + int64_t{routes[column]} * args.float_input.stride + at.lane;
          for (int first = warp; first < geo.blocks; first += kWarps * 4) {
            float x[4];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
              const int b = first + u * kWarps;
              x[u] = b < geo.blocks ? source[b * 32] : 0.0F;
            }
#pragma unroll
            for (int u = 0; u < 4; ++u) {
              const int b = first + u * kWarps;
              if (b < geo.blocks) {
                quantise_block(x[u], at.lane, reinterpret_cast<int8_t*>(values) + column * layout.row_stride + b * 32,
                               scales + b * kColumns + column, sums + b * kColumns + column);
              }
            }
          }
        }
      } else {
        for (int column = warp; column < columns; column += kWarps) {
          const int64_t row = M == Mode::dense ? begin + column : routes[column] / args.top_k;
          const int8_t* source = args.input.values + row * geo.blocks * 32;
          std::byte* target = values + column * layout.row_stride;
          for (int i = at.lane; i < geo.blocks * 2; i += 32) copy_async<16>(target + i * 16, source + i * 16);
          const int64_t first = row * geo.blocks;
          for (int b = at.lane; b < geo.blocks; b += 32) {
            copy_async<4>(scales + b * kColumns + column, args.input.scales + first + b);
            if constexpr (Block<F>::kSums) copy_async<4>(sums + b * kColumns + column, args.input.sums + first + b);
          }
        }
        copy_commit();
        copy_wait<0>();
      }
      sync();
    }
    const int first_output = item.task * task_outputs;
    float* out_partial = partial + write_buffer * layout.partial_floats;
    const StreamActivations x{values, layout.row_stride, scales, sums, (columns + 7) >> 3};
    for (int tile = tile_in_chunk; tile < geo.task_tiles + tile_in_chunk; tile += geo.chunk_tiles) {
      for (int part = 0; part < geo.parts; ++part) {
        barrier_wait(&full[slot], parity);
        if (tile_in_chunk < geo.chunk_tiles) {
          float acc[NT][4];
          stream_segments<F, NT, SB>(shared + slot * slot_bytes + tile_in_chunk * geo.tile_bytes, first_block,
                                     part * part_blocks + first_block, geo, x, args.two_groups, at, acc);
          float* place = out_partial + ((tile * geo.parts + part) * geo.segment_warps + segment_warp) * NT * 128;
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            *reinterpret_cast<float2*>(place + n * 128 + at.g * 8 + at.t * 2) = make_float2(acc[n][0], acc[n][1]);
            *reinterpret_cast<float2*>(place + n * 128 + 64 + at.g * 8 + at.t * 2) = make_float2(acc[n][2], acc[n][3]);
          }
        }
        __syncwarp();
        if (at.lane == 0) barrier_arrive(&empty[slot]);
        if (++slot == args.slots) {
          slot = 0;
          parity ^= 1;
        }
      }
    }
    if (at.lane == 0) barrier_arrive(&ready[write_buffer]);
    if (++write_buffer == kPartials) write_buffer = 0;
    if (pending >= 0) meet();
    pending = first_output;
    if constexpr (M == Mode::dense) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int o = tid + u * kComputeThreads;
        const int column = (o >> 7) % NT * 8 + (o & 7),
                  output = first_output + (o >> 7) / NT * kTileRows + (o >> 3 & 15);
        ahead[u] = 0.0F;
        if (args.addend.data != nullptr && o < task_outputs * kColumns && column < columns && output < args.outputs)
          ahead[u] = args.addend.data[int64_t{begin + column} * args.addend.stride + output];
      }
    }
  }
  if (pending >= 0) meet();
}

/// Ring slots that fit `limit` bytes; 0 when not even one does.
template <Format F, Mode M, int NT>
int stream_slots(const Geometry& geometry, int limit) {
  int slots = 0;
  while (slots < kMaxSlots && stream_layout(geometry, slots + 1, NT, Block<F>::kSums || M == Mode::down).total <= limit)
    ++slots;
  return slots;
}

template <Format F, Mode M, int NT>
void launch_stream_kernel(LinearArgs args, int sms, cudaStream_t stream) {
  args.slots = NT == 1 ? stream_slots<F, M, NT>(args.geometry, kSharedTwo) : 0;
  const bool two = args.slots >= 2;
  if (!two) args.slots = stream_slots<F, M, NT>(args.geometry, kSharedOne);
  const int grid = sms * (two ? 2 : 1);
  const auto bytes =
      static_cast<size_t>(stream_layout(args.geometry, args.slots, NT, Block<F>::kSums || M == Mode::down).total);
  const auto start = [&](auto* kernel) {
    launch("a streaming linear layer", kernel, grid, kStreamThreads, bytes, stream, args);
  };
  if (args.geometry.segment_blocks == 4) {
    start(&stream_kernel<F, M, NT, 4>);
  } else if (args.geometry.segment_blocks == 6) {
    start(&stream_kernel<F, M, NT, 6>);
  } else {
    start(&stream_kernel<F, M, NT, 0>);
  }
}

template <Format F>
void launch_stream_format(Mode mode, bool wide, const LinearArgs& args, int sms, cudaStream_t stream) {
  switch (mode) {
    case Mode::dense:
      if (wide && stream_slots<F, Mode::dense, 4>(args.geometry, kSharedOne) >= 2) {
        launch_stream_kernel<F, Mode::dense, 4>(args, sms, stream);
      } else if (wide && stream_slots<F, Mode::dense, 2>(args.geometry, kSharedOne) >= 2) {
        launch_stream_kernel<F, Mode::dense, 2>(args, sms, stream);
      } else {
        launch_stream_kernel<F, Mode::dense, 1>(args, sms, stream);
      }
      break;
    case Mode::gate_up:
      launch_stream_kernel<F, Mode::gate_up, 1>(args, sms, stream);
      break;
    case Mode::down:
      launch_stream_kernel<F, Mode::down, 1>(args, sms, stream);
      break;
  }
}

}  // namespace cohort::cuda
