// Float weights (f32, f16, bf16), dense or of experts: dot16 (docs/NUMERICS.md, rule 4) of up to eight rows with S rows
// of weights at a time by half a warp, lane = k mod 16.
//
// Weights keep their type: [experts][outputs][row_bytes], a row in blocks of [16 lanes][16 bytes], so that a lane reads
// its values of 64 (f32) or 128 k at once. Rows of activations lie in shared memory as [K / 64][16 lanes][4], at most
// kChunk values of each at a time; the sums go on from chunk to chunk, so any K fits.
//
// What bounds it: at few rows memory (a lane has eight loads of 16 bytes in flight), at many the fma of dot16, which
// has no tensor form: a warp's 128 fma cost it 8 loads of shared memory and 16 conversions.
#pragma once

#include "kernels/cuda/device.cuh"

namespace cohort::cuda {

inline constexpr int kFloatThreads = 256, kFloatHalves = kFloatThreads / 16;
inline constexpr int kFloatRows = 8;
inline constexpr int kChunk = 2048;

/// Value `i` of 16 bytes of weights.
template <FloatType T>
__device__ __forceinline__ float weight_at(const uint4& raw, int i) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (T == FloatType::f32) {
    return __uint_as_float(words[i]);
  } else {
    const uint32_t word = words[i / 2];
    if constexpr (T == FloatType::bf16) {
      return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000U);
    } else {
      const __half2 pair = *reinterpret_cast<const __half2*>(&word);
      return i % 2 == 0 ? __low2float(pair) : __high2float(pair);
    }
  }
}

/// Goes on with the sums of k in [from, from + count), `from` a multiple of the block. x: rows kChunk floats apart.
template <FloatType T, int R, int S>
__device__ __forceinline__ void add_dots(const float* x, const std::byte* const (&weights)[S], int from, int count,
                                         int lane, float (&sum)[R][S]) {
  constexpr int kValues = float_values(T), kBlock = 16 * kValues;
  constexpr int kUnroll = R * S <= 2 ? 8 : R * S <= 8 ? 2 : 1;
  const int whole = count / kBlock;
  const int first = from / kBlock * 256 + lane * 16;
  const float* my_x = x + lane * 4;
#pragma unroll kUnroll
  for (int b = 0; b < whole; ++b) {
    uint4 raw[S];
#pragma unroll
    for (int s = 0; s < S; ++s) raw[s] = __ldg(reinterpret_cast<const uint4*>(weights[s] + first + b * 256));
#pragma unroll
    for (int v = 0; v < kValues; v += 4) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float4 a = *reinterpret_cast<const float4*>(my_x + r * kChunk + b * kBlock + v * 16);
#pragma unroll
        for (int s = 0; s < S; ++s) {
          sum[r][s] = __fmaf_rn(a.x, weight_at<T>(raw[s], v), sum[r][s]);
          sum[r][s] = __fmaf_rn(a.y, weight_at<T>(raw[s], v + 1), sum[r][s]);
          sum[r][s] = __fmaf_rn(a.z, weight_at<T>(raw[s], v + 2), sum[r][s]);
          sum[r][s] = __fmaf_rn(a.w, weight_at<T>(raw[s], v + 3), sum[r][s]);
        }
      }
    }
  }
  if (whole * kBlock == count) return;
    // The last block of a row: a lane takes no k past the end, since even + 0 could change the sign of a zero.
#pragma unroll
  for (int s = 0; s < S; ++s) {
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(weights[s] + first + whole * 256));
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      if (whole * kBlock + v * 16 + lane >= count) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float a = my_x[r * kChunk + whole * kBlock + v / 4 * 64 + v % 4];
        sum[r][s] = __fmaf_rn(a, weight_at<T>(raw, v), sum[r][s]);
      }
    }
  }
}

/// The rows of one item and where they go.
struct FloatItem {
  int count;              // rows
  const int32_t* routes;  // null: rows from `first` on
  int first;
  int64_t first_bias;      // of the expert
  const std::byte *a, *b;  // weights of the expert; b: up's
};

/// One tile of outputs for R rows. S: rows of weights of a half-warp at a time.
template <FloatType T, Mode M, int R, int S>
__device__ void float_tile(const FloatMatrixArgs& args, const FloatItem& item, int tile, float* x) {
  constexpr int kOutputs = M == Mode::gate_up ? S / 2 : S;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 15, half = tid >> 4;
  const int first_output = (tile * kFloatHalves + half) * kOutputs;
  const std::byte* weights[S];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    const int64_t at = int64_t{min(first_output + o, args.outputs - 1)} * args.row_bytes;
    if constexpr (M == Mode::gate_up) {
      weights[2 * o] = item.a + at;
      weights[2 * o + 1] = item.b + at;
    } else {
      weights[o] = item.a + at;
    }
  }
  const auto source_row = [&](int r) -> int64_t {
    if (item.routes == nullptr) return item.first + r;
    return M == Mode::gate_up ? item.routes[r] / args.top_k : item.routes[r];
  };
  float sum[R][S];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int s = 0; s < S; ++s) sum[r][s] = 0.0F;
  }
  for (int from = 0; from < args.k; from += kChunk) {
    const int count = min(kChunk, args.k - from);
    __syncthreads();
    // A thread moves values k, k + 16, k + 32 and k + 48 of a row, which stand side by side in shared memory.
    const int quads = (count + 63) / 64 * 16;
    for (int i = tid; i < quads * item.count; i += kFloatThreads) {
      const int r = i / quads, quad = i - r * quads;
      const int k = quad / 16 * 64 + quad % 16;
      const float* p = args.input.data + source_row(r) * args.input.stride + from + k;
      float4 v;
      v.x = k < count ? p[0] : 0.0F;
      v.y = k + 16 < count ? p[16] : 0.0F;
      v.z = k + 32 < count ? p[32] : 0.0F;
      v.w = k + 48 < count ? p[48] : 0.0F;
      *reinterpret_cast<float4*>(x + r * kChunk + quad * 4) = v;
    }
    __syncthreads();
    add_dots<T, R, S>(x, weights, from, count, lane, sum);
  }
  // Lane i mod 16 has output i.
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int output = first_output + o;
      if constexpr (M == Mode::gate_up) {
        const float gate = tree16_half(sum[r][2 * o]), up = tree16_half(sum[r][2 * o + 1]);
        if (lane == (r * kOutputs + o) % 16) sum[0][0] = gate, sum[0][1] = up;
      } else {
        const float y = tree16_half(sum[r][o]);
        if (lane != (r * kOutputs + o) % 16 || r >= item.count || output >= args.outputs) continue;
        const int64_t row = item.routes != nullptr ? item.routes[r] : item.first + r;
        args.out.data[row * args.out.stride + output] =
            args.bias != nullptr ? __fadd_rn(y, args.bias[item.first_bias + output]) : y;
      }
    }
  }
  if constexpr (M == Mode::gate_up) {
    static_assert(R * kOutputs <= 16);
    const int r = lane / kOutputs, output = first_output + lane % kOutputs;
    if (lane >= R * kOutputs || r >= item.count || output >= args.outputs) return;
    args.out.data[int64_t{item.routes[r]} * args.out.stride + output] =
        gated(args.act, args.pair_bias, item.first_bias + output, sum[0][0], sum[0][1]);
  }
}

/// S: see float_tile; few rows take one output a half-warp, so that there are blocks enough.
template <FloatType T, Mode M, int S>
__global__ void __launch_bounds__(kFloatThreads, 2) float_matrix_kernel(const __grid_constant__ FloatMatrixArgs args) {
  extern __shared__ __align__(128) float x_rows[];
  constexpr int kOutputs = (M == Mode::gate_up ? S / 2 : S) * kFloatHalves;
  const int tiles = (args.outputs + kOutputs - 1) / kOutputs;
  const int64_t expert_bytes = int64_t{args.outputs} * args.row_bytes;
  if constexpr (M == Mode::dense && S == 1) {  // this block's first weights, under the kernel before
    const int64_t begin = int64_t{blockIdx.x} * kOutputs * args.row_bytes;
    const int64_t end = min(begin + int64_t{kOutputs} * args.row_bytes, expert_bytes);
    for (int64_t at = begin + threadIdx.x * 128; at < end; at += kFloatThreads * 128)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(args.weights + at));
  }
  wait_and_pass_on();
  const int per_entry = M == Mode::dense ? 1 : args.cap / kFloatRows;
  const int rows = M == Mode::dense ? args.step.header[args.sampled ? kSampled : kRows] : 0;
  const int sets = M == Mode::dense ? (rows + kFloatRows - 1) / kFloatRows : *args.group.count * per_entry;
  for (int64_t i = blockIdx.x; i < int64_t{sets} * tiles; i += gridDim.x) {
    const int set = static_cast<int>(i / tiles), tile = static_cast<int>(i % tiles);
    FloatItem item{};
    if constexpr (M == Mode::dense) {
      item.first = set * kFloatRows;
      item.count = min(kFloatRows, rows - item.first);
      item.a = args.weights;
    } else {
      const int32_t* entry = args.group.entries + int64_t{set / per_entry} * (kEntryHeader + args.cap);
      const int skip = set % per_entry * kFloatRows;
      item.count = min(kFloatRows, entry[1] - skip);
      if (item.count <= 0) continue;
      item.routes = entry + kEntryHeader + skip;
      item.a = args.weights + entry[0] * expert_bytes;
      item.first_bias = int64_t{entry[0]} * args.outputs;
      if constexpr (M == Mode::gate_up) item.b = args.up_weights + entry[0] * expert_bytes;
    }
    if (S <= 2 && item.count == 1) {
      float_tile<T, M, 1, S>(args, item, tile, x_rows);
    } else if (item.count <= 2) {
      float_tile<T, M, 2, S>(args, item, tile, x_rows);
    } else if (item.count <= 4) {
      float_tile<T, M, 4, S>(args, item, tile, x_rows);
    } else {
      float_tile<T, M, 8, S>(args, item, tile, x_rows);
    }
  }
}

template <FloatType T>
void launch_float_matrix_type(Mode mode, bool few, const FloatMatrixArgs& args, int sms, cudaStream_t stream) {
  const auto start = [&](auto* kernel) {
    const int rows = args.step.max_rows < kFloatRows ? args.step.max_rows : kFloatRows;
    launch(kernel, sms * 2, kFloatThreads, sizeof(float) * static_cast<size_t>(rows * kChunk), stream, args);
  };
  switch (mode) {
    case Mode::dense:
      return few ? start(&float_matrix_kernel<T, Mode::dense, 1>) : start(&float_matrix_kernel<T, Mode::dense, 4>);
    case Mode::gate_up:
      return few ? start(&float_matrix_kernel<T, Mode::gate_up, 2>) : start(&float_matrix_kernel<T, Mode::gate_up, 4>);
    case Mode::down:
      return few ? start(&float_matrix_kernel<T, Mode::down, 1>) : start(&float_matrix_kernel<T, Mode::down, 4>);
  }
}

}  // namespace cohort::cuda
