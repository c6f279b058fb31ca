// dot16 of many rows (the router in prefill) as 16 matrix products, one for each lane of dot16: a warp has a lane, so
// that its operands are those k that leave its number when divided by 16, and a thread has up to 8 rows by 8 outputs of
// them, 64 fma for 16 values loaded. Rows and weights lie in shared memory as [k][row] and [k][output], 64 k at a time;
// groups of four rows (outputs) are exchanged by k so that neither the transposing stores nor the loads meet in a bank.
// The 16 lanes meet in shared memory. Which lanes of a warp read the same addresses: see attention_tile.cu.
#include "kernels/cuda/device.cuh"

namespace cohort::cuda {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * 32;  // a warp for each lane of dot16
constexpr int kOutputs = 32;                        // of a block
constexpr int kChunk = 64;                          // of k, as the weights are packed

COHORT_HD constexpr int chunk_floats(int rows) {
  return kChunk * (rows + kOutputs);
}
COHORT_HD constexpr int shared_floats(int rows) {
  const int buffers = 2 * chunk_floats(rows), sums = kWarps * rows * kOutputs;
  return buffers > sums ? buffers : sums;
}

/// What a thread asks for ahead: its part of a chunk.
template <int R>
struct Chunk {
  static constexpr int kEach = R == 64 ? 2 : 1;
  float4 x[kEach], w;
};

/// One tile of R rows by kOutputs outputs. A function of its own for its registers' sake, as attention_tile.cu's.
template <int R>
__device__ __noinline__ void tile(const FloatLinearArgs& args, float* shared, int rows, int first_row,
                                  int first_output) {
  constexpr int kMine = R / 8;  // rows of a thread: in groups of four (two: R = 16)
  constexpr int kGroup = kMine < 4 ? kMine : 4;
  using Part = Chunk<R>;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int quad = lane & 7, in_four = lane >> 3;
  // Rows 4 * (warp mod R / 4) + in_four, k 4 * quad on; the other half of the chunk: another warp, or the same.
  constexpr int kRowGroups = R / 4;
  const int row_group = warp % kRowGroups, half = warp / kRowGroups;
  const bool copies_x = half < 2;
  const float* x_from = args.input.data +
                        int64_t{min(first_row + row_group * 4 + in_four, rows - 1)} * args.input.stride + half * 32 +
                        quad * 4;
  // Output 4 * (warp mod 8) + in_four, lane `j` of dot16.
  const int output_group = warp & 7, j = (warp >> 3) * 8 + quad;
  const float* w_from =
      args.weights + int64_t{min(first_output + output_group * 4 + in_four, args.outputs - 1)} * args.k + j * 4;
  const auto load = [&](Part& part) {
    if (copies_x) {
#pragma unroll
      for (int i = 0; i < Part::kEach; ++i) part.x[i] = *reinterpret_cast<const float4*>(x_from + i * 32);
    }
    part.w = *reinterpret_cast<const float4*>(w_from);
    x_from += kChunk;
    w_from += kChunk;
  };
  const auto store = [&](const Part& part, float* x, float* w) {
    if (copies_x) {
#pragma unroll
      for (int i = 0; i < Part::kEach; ++i) {
        float* to = x + ((half + i) * 32 + quad * 4) * R + (row_group ^ (quad & (kRowGroups - 1))) * 4 + in_four;
        to[0] = part.x[i].x;
        to[R] = part.x[i].y;
        to[2 * R] = part.x[i].z;
        to[3 * R] = part.x[i].w;
      }
    }
    float* to = w + j * kOutputs + (output_group ^ (j & 7)) * 4 + in_four;
    to[0] = part.w.x;
    to[16 * kOutputs] = part.w.y;
    to[32 * kOutputs] = part.w.z;
    to[48 * kOutputs] = part.w.w;
  };

  const int mi = (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4), ni = (lane >> 1 & 1) | (lane >> 2 & 2);
  // The lane's first row at an even and at an odd multiple of 16, of which k >> 2 and so the exchange is another one.
  const auto row_at = [&](int odd) {
    const int by = (warp >> 2 | odd << 2) & (kRowGroups - 1);
    return kGroup == 4 ? (mi ^ by) * 4 : ((mi >> 1) ^ by) * 4 + (mi & 1) * 2;
  };
  const int even_row = row_at(0), odd_row = row_at(1);
  const int low_output = (ni ^ (warp & 7)) * 4, high_output = low_output ^ 16;
  float acc[kMine][8];
#pragma unroll
  for (int i = 0; i < kMine * 8; ++i) acc[i / 8][i % 8] = 0.0F;
  Part part;
  load(part);
  const int chunks = args.k / kChunk;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float* x = shared + (chunk & 1) * chunk_floats(R);
    float* w = x + kChunk * R;
    store(part, x, w);
    __syncthreads();
    if (chunk + 1 < chunks) load(part);
#pragma unroll 2
    for (int i = 0; i < kChunk / 16; ++i) {
      const float* xs = x + (warp + i * 16) * R + ((i & 1) != 0 ? odd_row : even_row);
      const float* ws = w + (warp + i * 16) * kOutputs;
      float a[kMine];
      if constexpr (kGroup == 4) {
#pragma unroll
        for (int m = 0; m < kMine; m += 4) {
          const float4 v = *reinterpret_cast<const float4*>(xs + m * 8);
          a[m] = v.x, a[m + 1] = v.y, a[m + 2] = v.z, a[m + 3] = v.w;
        }
      } else {
        const float2 v = *reinterpret_cast<const float2*>(xs);
        a[0] = v.x, a[1] = v.y;
      }
      const float4 b0 = *reinterpret_cast<const float4*>(ws + low_output);
      const float4 b1 = *reinterpret_cast<const float4*>(ws + high_output);
      const float b[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
      for (int e = 0; e < kMine * 8; ++e) {  // to and fro
        const int row = e / 8, column = row % 2 == 0 ? e % 8 : 7 - e % 8;
        acc[row][column] = __fmaf_rn(a[row], b[column], acc[row][column]);
      }
    }
  }
  // tree16 over the warps. Groups of four outputs are exchanged by the row. Pairs are stored the other way round: that
  // puts a sum in the bank of registers in which its factor is not.
  const auto exchange = [](int row) { return row / kGroup << 1 & 7; };
  __syncthreads();
  float* sums = shared + warp * (R * kOutputs);
#pragma unroll
  for (int m = 0; m < kMine; ++m) {
    const int row = m / kGroup * 32 + mi * kGroup + m % kGroup;
    float* to = sums + row * kOutputs;
    *reinterpret_cast<float4*>(to + (ni ^ exchange(row)) * 4) = make_float4(acc[m][1], acc[m][0], acc[m][3], acc[m][2]);
    *reinterpret_cast<float4*>(to + ((ni + 4) ^ exchange(row)) * 4) =
        make_float4(acc[m][5], acc[m][4], acc[m][7], acc[m][6]);
  }
  __syncthreads();
#pragma unroll 1
  for (int at = tid; at < R * kOutputs; at += kThreads) {
    float l[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) l[i] = shared[i * (R * kOutputs) + at];
#pragma unroll
    for (int i = 0; i < 8; ++i) l[i] = __fadd_rn(l[i], l[i + 8]);
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i] = __fadd_rn(l[i], l[i + 4]);
    l[0] = __fadd_rn(__fadd_rn(l[0], l[2]), __fadd_rn(l[1], l[3]));
    const int row = at / kOutputs, in_row = at % kOutputs;
    const int output = first_output + ((in_row >> 2) ^ exchange(row)) * 4 + ((in_row & 3) ^ 1);
    if (first_row + row < rows && output < args.outputs) {
      args.out.data[int64_t{first_row + row} * args.out.stride + output] =
          args.bias != nullptr ? __fadd_rn(l[0], args.bias[output]) : l[0];
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 1) float_tiles_kernel(const __grid_constant__ FloatLinearArgs args) {
  extern __shared__ __align__(128) float buffer[];
  wait_and_pass_on();
  const int rows = args.step.header[args.sampled ? kSampled : kRows];
  const int columns = (args.outputs + kOutputs - 1) / kOutputs;
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const auto tiles = [&](int tile_rows) { return (rows + tile_rows - 1) / tile_rows * columns; };
  // The smallest tiles that one round of blocks takes.
  if (tiles(16) <= grid) {
    if (block < tiles(16)) tile<16>(args, buffer, rows, block / columns * 16, block % columns * kOutputs);
  } else if (tiles(32) <= grid) {
    if (block < tiles(32)) tile<32>(args, buffer, rows, block / columns * 32, block % columns * kOutputs);
  } else {
    for (int i = block; i < tiles(64); i += grid)
      tile<64>(args, buffer, rows, i / columns * 64, i % columns * kOutputs);
  }
}

}  // namespace

void launch_float_tiles(const FloatLinearArgs& args, int sms, cudaStream_t stream) {
  launch(&float_tiles_kernel, sms, kThreads, sizeof(float) * static_cast<size_t>(shared_floats(64)), stream, args);
}

}  // namespace cohort::cuda
