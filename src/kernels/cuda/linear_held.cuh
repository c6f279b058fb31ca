// Dense layers of nine rows and more where K has 16 or 32 segments of four blocks: as linear_stream.cuh, but a warp
// keeps its part of K of all its columns in registers. No load of them stands between products, and the place where
// they come into shared memory serves the sums later, so that there is room for more tiles.
//
// What bounds it: with many tiles a block (the head) issue slots, of which it uses 60%: 16 instructions a product of
// 16 x 8 x 32, of which 13 are rule 3, and five where the parts of K meet. With few the columns: 74 KB a block take 3
// us.
#pragma once

#include "kernels/cuda/segments.cuh"

namespace cohort::cuda {

inline constexpr int kHeldSlots = 8, kHeldAhead = 2;  // tiles of the ring; those that are asked for before the columns

/// NT: groups of 8 columns of a pass. Segments: of a warp, of four blocks each.
template <Format F, int NT, int Segments>
struct HeldColumns {
  static constexpr int kBlocks = Segments * 4;
  static_assert(!Block<F>::kSums);
  uint2 values[NT][kBlocks];
  float d0[NT][kBlocks], d1[NT][kBlocks];

  // A column of a warp's part while it is on its way: values, then scales; lane (g, t) reads 8 bytes at g * kStride + 8
  // t without a bank conflict.
  static constexpr int kStride = Segments == 1 ? 160 : 288;
  static constexpr int kBytes = kStreamWarps * NT * 8 * kStride;
  static_assert(kStride / 4 % 32 == 8 && kStride >= kBlocks * 36);

  /// Columns [begin, begin + count) of blocks `block` on, by way of this warp's part of kBytes of shared memory: as
  /// operands they would come in pieces of 32 bytes, a transaction each. Columns past the last are what was there:
  /// their sums are not used, and if all blocks read the last row for them its lines would be the bound (7 us at 17
  /// rows).
  __device__ __forceinline__ void load(std::byte* staging, const Quantised& input, int begin, int count, int block,
                                       Lane at) {
    staging += (static_cast<int>(threadIdx.x) >> 5) * (NT * 8 * kStride);
    const auto record = [&](int column) { return input.data + int64_t{begin + column} * input.stride; };
    constexpr int kPieces = kBlocks * 2;  // of 16 bytes
#pragma unroll
    for (int i = 0; i < NT * 8 * kPieces; i += 32) {
      const int column = (i + at.lane) / kPieces, piece = (i + at.lane) % kPieces;
      if (column < count)
        copy_async<16>(staging + column * kStride + piece * 16, record(column) + block * 32 + piece * 16);
    }
    static_assert(NT * 8 * Segments == 32);
    const int column = at.lane / Segments, piece = at.lane % Segments;
    if (column < count) {
      copy_async<16>(staging + column * kStride + kBlocks * 32 + piece * 16,
                     record(column) + (input.blocks * 32 + block * 4) + piece * 16);
    }
    copy_commit();
    copy_wait<0>();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const std::byte* group = staging + n * 8 * kStride;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b)
        values[n][b] = *reinterpret_cast<const uint2*>(group + at.g * kStride + b * 32 + at.t * 8);
#pragma unroll
      for (int b = 0; b < kBlocks; b += 4) {
        const std::byte* scales = group + at.t * 2 * kStride + kBlocks * 32 + b * 4;
        *reinterpret_cast<float4*>(&d0[n][b]) = *reinterpret_cast<const float4*>(scales);
        *reinterpret_cast<float4*>(&d1[n][b]) = *reinterpret_cast<const float4*>(scales + kStride);
      }
    }
  }
  /// The first Used groups of a tile's products over this warp's segments.
  template <int Used>
  __device__ __forceinline__ void multiply(const std::byte* tile, int block, Lane at, float (&acc)[NT][4]) const {
    float sum[Used][4];
#pragma unroll
    for (int s = 0; s < Segments; ++s) {
      clear<Used>(sum);
#pragma unroll
      for (int b = s * 4; b < s * 4 + 4; ++b) {
        Block<F> w;
        w.load(tile, block + b, at, false);
#pragma unroll
        for (int n = 0; n < Used; ++n) {
          Columns c;
          c.b0 = values[n][b].x;
          c.b1 = values[n][b].y;
          c.d0 = d0[n][b];
          c.d1 = d1[n][b];
          w.add(sum[n], c);
        }
      }
#pragma unroll
      for (int i = 0; i < Used * 4; ++i)
        acc[i / 4][i % 4] = s == 0 ? sum[i / 4][i % 4] : __fadd_rn(acc[i / 4][i % 4], sum[i / 4][i % 4]);
    }
  }
};

/// tree_of for four adjacent floats at once.
template <int Count>
__device__ __forceinline__ float4 tree4_of(const float* p, int stride) {
  if constexpr (Count == 1) {
    return *reinterpret_cast<const float4*>(p);
  } else {
    const float4 a = tree4_of<Count / 2>(p, stride), b = tree4_of<Count / 2>(p + Count / 2 * stride, stride);
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
  }
}

template <Format F, int NT, int Segments>
__global__ void __launch_bounds__(kStreamThreads, 1) held_kernel(const __grid_constant__ LinearArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ uint64_t full[kHeldSlots];
  stamp(args.step, 0);
  constexpr int kColumns = 8 * NT, kPartialFloats = kStreamWarps * NT * kStreamPart;
  const int tile_bytes = args.geometry.tile_bytes;
  const int tid = static_cast<int>(threadIdx.x), warp = tid >> 5;
  const Lane at(tid & 31);
  float* partial = reinterpret_cast<float*>(shared + args.slots * tile_bytes);
  if (tid == 0) {
    for (int i = 0; i < args.slots; ++i) barrier_init(&full[i], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  // The header is two kernels old at least, see wait_and_pass_on. Groups, blocks and tasks as in stream_kernel.
  const int all_columns = args.step.header[args.sampled ? kSampled : kRows];
  const int groups = max(1, (all_columns + kColumns - 1) / kColumns);
  const int group_columns = min(kColumns, ((all_columns + groups - 1) / groups + 7) & ~7);
  const int tiles = args.outputs / kTileRows;
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int walkers = max(1, grid / groups);
  int group = block % groups;
  const int first_tile = block / groups;
  const bool busy = first_tile < walkers && all_columns > 0;
  int next_tile = busy ? first_tile : tiles, next_group = group;
  const auto fetch = [&](int slot) {
    if (next_tile >= tiles) return;
    barrier_expect(&full[slot], static_cast<uint32_t>(tile_bytes));
    bulk_copy(shared + slot * tile_bytes, args.weights + int64_t{next_tile} * tile_bytes,
              static_cast<uint32_t>(tile_bytes), &full[slot]);
    next_tile += walkers;
    if (next_tile >= tiles && next_group + grid < groups) {
      next_group += grid;
      next_tile = first_tile;
    }
  };
  if (tid == 0) {
    for (int i = 0; i < kHeldAhead; ++i) fetch(i);
  }
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);
  if (!busy) return;

  // Where this lane's outputs are when it is its warp's turn: four of a column. Lanes of neighbouring fours of lanes
  // have columns four apart, whose sums lie in other banks.
  const int my_column = warp % NT * 8 + (at.lane >> 2 & 1) * 4 + (at.lane >> 3), my_row = (at.lane & 3) * 4;
  const int first_block = warp * Segments * 4;
  int slot = 0, buffer = 0, turn = 0;
  uint32_t parity = 0;
  for (; group < groups; group += grid) {
    const int begin = group * group_columns, count = min(group_columns, all_columns - begin);
    HeldColumns<F, NT, Segments> x;
    if (group >= grid) __syncthreads();  // all sums were read
    x.load(reinterpret_cast<std::byte*>(partial), args.input, begin, count, first_block, at);
    __syncthreads();  // sums may come here
    if (tid == 0 && group < grid) {
      for (int i = kHeldAhead; i < args.slots; ++i) fetch(i);
    }
    stamp(args.step, 3);
    const int n_tiles = (count + 7) >> 3;
    for (int tile = first_tile; tile < tiles; tile += walkers) {
      const bool mine = warp / NT == turn && my_column < count;
      if (++turn == kStreamWarps / NT) turn = 0;
      const int output = tile * kTileRows + my_row;
      float4 ahead = make_float4(0.0F, 0.0F, 0.0F, 0.0F);  // what is added, asked for while the weights arrive
      if (mine && args.addend.data != nullptr)
        ahead = __ldcg(reinterpret_cast<const float4*>(args.addend.data +
                                                       int64_t{begin + my_column} * args.addend.stride + output));
      float acc[NT][4];
      barrier_wait(&full[slot], parity);
      stamp(args.step, 4);
      const std::byte* weights = shared + slot * tile_bytes;
      if (n_tiles == NT) {
        x.template multiply<NT>(weights, first_block, at, acc);
      } else if (NT > 2 && n_tiles == 3) {
        x.template multiply<(NT > 2 ? 3 : 1)>(weights, first_block, at, acc);
      } else if (NT > 2 && n_tiles == 2) {
        x.template multiply<(NT > 2 ? 2 : 1)>(weights, first_block, at, acc);
      } else {
        x.template multiply<1>(weights, first_block, at, acc);
      }
      stamp(args.step, 5);
      float* sums = partial + buffer * kPartialFloats;
      float* place = sums + warp * NT * kStreamPart + at.t * 2 * kStreamColumn + at.g;
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        if (n >= n_tiles) break;
        place[n * kStreamPart] = acc[n][0];
        place[n * kStreamPart + kStreamColumn] = acc[n][1];
        place[n * kStreamPart + 8] = acc[n][2];
        place[n * kStreamPart + kStreamColumn + 8] = acc[n][3];
      }
      // A warp that is two tiles ahead has passed the next barrier, so all have left this buffer.
      __syncthreads();
      if (tid == 0) fetch(slot);
      if (++slot == args.slots) {
        slot = 0;
        parity ^= 1;
      }
      if (mine) {
        float4 y = tree4_of<kStreamWarps>(
            sums + (my_column >> 3) * kStreamPart + (my_column & 7) * kStreamColumn + my_row, NT * kStreamPart);
        if (args.bias != nullptr) {
          const float4 b = *reinterpret_cast<const float4*>(args.bias + output);
          y = make_float4(__fadd_rn(y.x, b.x), __fadd_rn(y.y, b.y), __fadd_rn(y.z, b.z), __fadd_rn(y.w, b.w));
        }
        if (args.addend.data != nullptr) {
          y = make_float4(__fadd_rn(ahead.x, y.x), __fadd_rn(ahead.y, y.y), __fadd_rn(ahead.z, y.z),
                          __fadd_rn(ahead.w, y.w));
        }
        *reinterpret_cast<float4*>(args.out.data + int64_t{begin + my_column} * args.out.stride + output) = y;
      }
      stamp(args.step, 6);
      buffer ^= 1;
    }
  }
}

template <Format F, int NT, int Segments>
bool start_held(LinearArgs args, int sms, cudaStream_t stream) {
  constexpr int kSums = 2 * kStreamWarps * NT * kStreamPart * 4, kStaging = HeldColumns<F, NT, Segments>::kBytes;
  constexpr int kPartialBytes = kSums > kStaging ? kSums : kStaging;
  args.slots = (kSharedOne - kPartialBytes) / args.geometry.tile_bytes;
  if (args.slots > kHeldSlots) args.slots = kHeldSlots;
  if (args.slots < kHeldAhead) return false;
  launch(&held_kernel<F, NT, Segments>, sms, kStreamThreads,
         static_cast<size_t>(args.slots * args.geometry.tile_bytes + kPartialBytes), stream, args);
  return true;
}
/// False: this layer is launch_stream's.
template <Format F>
bool launch_held(const LinearArgs& args, int sms, cudaStream_t stream) {
  const auto fours = [](const Rows& rows) {
    return rows.data == nullptr || (rows.stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.data) % 16 == 0);
  };
  if (args.geometry.segment_blocks != 4 || args.outputs % kTileRows != 0 || !fours(args.addend) || !fours(args.out) ||
      reinterpret_cast<uintptr_t>(args.bias) % 16 != 0)
    return false;
  if (args.geometry.segments == kStreamWarps) return start_held<F, 4, 1>(args, sms, stream);
  if (args.geometry.segments == 2 * kStreamWarps) return start_held<F, 2, 2>(args, sms, stream);
  return false;
}

}  // namespace cohort::cuda
