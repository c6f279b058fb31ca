// Linear layers for few rows: every weight is streamed once through a ring of bulk copies and used while it is there.
//
// A block has eight compute warps and one that copies. Work comes in tasks (a few 16-row tiles over all of K, see
// Geometry), a task in chunks (one ring slot each). The compute warps share a chunk: each takes whole segments of rule 4
// of one tile for up to 8 * NT columns, and leaves its sums in shared memory, where the tree meets them when the task's
// last chunk is done. Shared memory per block is held near 110 KB, so that two blocks share an SM: two of one kernel, or
// the end of one and the start of the next, whose ring fills before its inputs are ready (dense weights do not depend on
// anything).
//
// What bounds it: memory up to about 8 columns an expert; 25 instructions per warp and 288 bytes of weights.
#pragma once

#include "kernels/cuda/formats.cuh"

namespace cohort::cuda {

inline constexpr int kComputeThreads = kWarps * 32;
inline constexpr int kStreamThreads = kComputeThreads + 32;
inline constexpr int kMaxSlots = 8;
inline constexpr int kSharedTwo = 113 << 10;  // of each of two blocks on an SM
inline constexpr int kSharedOne = 226 << 10;

struct StreamLayout {
  int row_stride;    // bytes of one column's int8 values
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
  l.total = l.partial + 2 * l.partial_floats * 4;
  return l;
}

/// Sums of one warp's segments of one tile: acc per n-tile.
template <Format F, int NT>
__device__ __forceinline__ void stream_segments(const std::byte* tile, int block, const Geometry& geo, int activation_block,
                                                const std::byte* values, int row_stride, const float* scales,
                                                const int32_t* sums, int tiles, bool two_groups, Lane at,
                                                float (&acc)[NT][4]) {
  float pair[NT][4], quad[NT][4];
  for (int s = 0; s < geo.warp_segments; ++s) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0F;
    }
#pragma unroll 2
    for (int b = 0; b < geo.segment_blocks; ++b, ++block, ++activation_block) {
      Block<F> w;
      w.load(tile, block, at, two_groups);
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        if (NT > 1 && n >= tiles) break;
        Columns c;
        const uint2 q =
            *reinterpret_cast<const uint2*>(values + (n * 8 + at.g) * row_stride + activation_block * 32 + at.t * 8);
        const int column = (activation_block * NT + n) * 8 + at.t * 2;
        const float2 d = *reinterpret_cast<const float2*>(scales + column);
        c.b0 = q.x;
        c.b1 = q.y;
        c.d0 = d.x;
        c.d1 = d.y;
        if constexpr (Block<F>::kSums) {
          const int2 sum = *reinterpret_cast<const int2*>(sums + column);
          c.sums0 = sum.x;
          c.sums1 = sum.y;
        }
        w.add(acc[n], c);
      }
    }
    // tree over neighbours, as segments finish: after an odd one the pair is summed, after the fourth the pairs are.
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((s & 1) == 0) {
          pair[n][i] = acc[n][i];
        } else {
          acc[n][i] = __fadd_rn(pair[n][i], acc[n][i]);
          if (s == 1) quad[n][i] = acc[n][i];
          if (s == 3) acc[n][i] = __fadd_rn(quad[n][i], acc[n][i]);
        }
      }
    }
  }
}

template <Format F, Mode M, int NT>
__global__ void __launch_bounds__(kStreamThreads, NT == 1 ? 2 : 1) stream_kernel(const __grid_constant__ LinearArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kMaxSlots], empty[kMaxSlots];
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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  let_next_start();

  const int64_t matrix_bytes = int64_t{geo.tiles} * geo.tile_bytes;
  const int task_bytes = geo.chunks * geo.chunk_bytes;

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
      int pushed = 0;
      const int grid = static_cast<int>(gridDim.x);
      int64_t item = blockIdx.x;
      int chunk = 0;
      for (; item < geo.tasks && pushed < args.slots; ++pushed) {
        push(args.weights + item * task_bytes + int64_t{chunk} * geo.chunk_bytes);
        if (++chunk == geo.chunks) {
          chunk = 0;
          item += grid;
        }
      }
      wait_for_previous();
      const int columns = args.step.header[args.sampled ? kSampled : kRows];
      const int64_t items = int64_t{geo.tasks} * ((columns + kColumns - 1) / kColumns);
      for (; item < items; item += grid, chunk = 0) {
        for (; chunk < geo.chunks; ++chunk)
          push(args.weights + item % geo.tasks * task_bytes + int64_t{chunk} * geo.chunk_bytes);
      }
    } else {
      wait_for_previous();
      const int64_t items = int64_t{*args.group.count} * geo.tasks;
      const int64_t begin = items * blockIdx.x / gridDim.x, end = items * (blockIdx.x + 1) / gridDim.x;
      for (int64_t item = begin; item < end; ++item) {
        const int entry = static_cast<int>(item / geo.tasks);
        const std::byte* source = args.weights + args.group.expert[entry] * matrix_bytes + item % geo.tasks * task_bytes;
        for (int chunk = 0; chunk < geo.chunks; ++chunk) push(source + int64_t{chunk} * geo.chunk_bytes);
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

  wait_for_previous();
  int64_t item, end, step;
  int all_columns = 0;
  if constexpr (M == Mode::dense) {
    all_columns = args.step.header[args.sampled ? kSampled : kRows];
    item = blockIdx.x;
    end = int64_t{geo.tasks} * ((all_columns + kColumns - 1) / kColumns);
    step = gridDim.x;
  } else {
    const int64_t items = int64_t{*args.group.count} * geo.tasks;
    item = items * blockIdx.x / gridDim.x;
    end = items * (blockIdx.x + 1) / gridDim.x;
    step = 1;
  }
  const int tile_in_chunk = warp / geo.segment_warps;
  const int segment_warp = warp % geo.segment_warps;
  const int part_blocks = geo.blocks / geo.parts;
  int slot = 0, buffer = 0;
  uint32_t parity = 0;
  int64_t current = -1;  // entry or column group whose activations are in shared memory
  int begin = 0, columns = 0;
  for (; item < end; item += step) {
    const int64_t entry = item / geo.tasks;
    const int task = static_cast<int>(item - entry * geo.tasks);
    if (entry != current) {
      current = entry;
      sync();
      if constexpr (M == Mode::dense) {
        begin = static_cast<int>(entry) * kColumns;
        columns = min(kColumns, all_columns - begin);
      } else {
        begin = args.group.begin[entry];
        columns = args.group.size[entry];
      }
      if constexpr (M == Mode::down) {
        for (int i = warp; i < columns * geo.blocks; i += kWarps) {
          const int column = i / geo.blocks, b = i - column * geo.blocks;
          const int64_t route = args.group.routes[begin + column];
          const float x = args.float_input.data[route * args.float_input.stride + b * 32 + at.lane];
          quantise_block(x, at.lane, reinterpret_cast<int8_t*>(values) + column * layout.row_stride + b * 32,
                         scales + b * kColumns + column, sums + b * kColumns + column);
        }
      } else {
        const auto row_of = [&](int column) {
          return M == Mode::dense ? begin + column : args.group.routes[begin + column] / args.top_k;
        };
        for (int column = 0; column < columns; ++column) {
          const int64_t row = row_of(column);
          const auto* source = reinterpret_cast<const uint4*>(args.input.values + row * geo.blocks * 32);
          auto* target = reinterpret_cast<uint4*>(values + column * layout.row_stride);
          for (int i = tid; i < geo.blocks * 2; i += kComputeThreads) target[i] = source[i];
          for (int b = tid; b < geo.blocks; b += kComputeThreads) {
            scales[b * kColumns + column] = args.input.scales[row * geo.blocks + b];
            if (Block<F>::kSums) sums[b * kColumns + column] = args.input.sums[row * geo.blocks + b];
          }
        }
      }
      sync();
    }
    float* out_partial = partial + buffer * layout.partial_floats;
    for (int chunk = 0; chunk < geo.chunks; ++chunk) {
      const int part = chunk % geo.parts;
      const int tile = chunk / geo.parts * geo.chunk_tiles + tile_in_chunk;
      barrier_wait(&full[slot], parity);
      if (tile_in_chunk < geo.chunk_tiles) {
        const int block = segment_warp * geo.warp_segments * geo.segment_blocks;
        float acc[NT][4];
        const int tiles = (columns + 7) >> 3;
        stream_segments<F, NT>(shared + slot * slot_bytes + tile_in_chunk * geo.tile_bytes, block, geo,
                               part * part_blocks + block, values, layout.row_stride, scales, sums, tiles,
                               args.two_groups, at, acc);
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
    sync();
    // Each output's segments meet. The next task writes the other buffer, and the one after it comes after a barrier.
    const int count = geo.parts * geo.segment_warps;
    const auto total = [&](int tile, int n, int element) {
      return tree_of(out_partial + (tile * count * NT + n) * 128 + element, NT * 128, count);
    };
    const int outputs = geo.task_tiles / geo.matrices * NT * 128;
    for (int o = tid; o < outputs; o += kComputeThreads) {
      const int element = o & 127;
      const int n = (o >> 7) % NT;
      const int pair = (o >> 7) / NT;
      const int column = n * 8 + (element & 7);
      const int output = (task * geo.task_tiles / geo.matrices + pair) * kTileRows + (element >> 3);
      if (column >= columns || output >= args.outputs) continue;
      if constexpr (M == Mode::dense) {
        const int64_t row = begin + column;
        float y = total(pair, n, element);
        if (args.bias != nullptr) y = __fadd_rn(y, args.bias[output]);
        if (args.addend.data != nullptr) y = __fadd_rn(args.addend.data[row * args.addend.stride + output], y);
        args.out.data[row * args.out.stride + output] = y;
      } else {
        const int64_t route = args.group.routes[begin + column];
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
    buffer ^= 1;
  }
}

/// Ring slots that fit `limit` bytes; 0 when not even one does.
template <Format F, Mode M, int NT>
int stream_slots(const Geometry& geometry, int limit) {
  int slots = 0;
  while (slots < kMaxSlots &&
         stream_layout(geometry, slots + 1, NT, Block<F>::kSums || M == Mode::down).total <= limit)
    ++slots;
  return slots;
}

template <Format F, Mode M, int NT>
void launch_stream_kernel(LinearArgs args, int sms, cudaStream_t stream) {
  args.slots = NT == 1 ? stream_slots<F, M, NT>(args.geometry, kSharedTwo) : 0;
  const bool two = args.slots >= 2;
  if (!two) args.slots = stream_slots<F, M, NT>(args.geometry, kSharedOne);
  launch("a streaming linear layer", &stream_kernel<F, M, NT>, sms * (two ? 2 : 1), kStreamThreads,
         static_cast<size_t>(stream_layout(args.geometry, args.slots, NT, Block<F>::kSums || M == Mode::down).total),
         stream, args);
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
