// Float linear layers (dot16). Weights are packed as [outputs][K / 64][16 lanes][4], so that a lane reads four of its
// values at once. dot16 is a chain of K / 16 fma in each of 16 lanes, so what bounds few rows is that chain's latency;
// more rows, shared memory: a thread holds two rows by one or two outputs. (Many rows: float_tiles.cu.)
#include "kernels/cuda/dot16.cuh"

namespace cohort::cuda {
namespace {

constexpr int kDotThreads = 256;
constexpr int kDotRows = 8;  // of a block at once; a thread has two

/// A block keeps 4 * PerThread outputs while rows go by when there are blocks enough, else it walks over all pairs.
template <int PerThread>
__global__ void __launch_bounds__(kDotThreads, 1) float_linear_kernel(const __grid_constant__ FloatLinearArgs args) {
  extern __shared__ __align__(128) float buffer[];
  __shared__ uint64_t rows_here, weights_here;
  constexpr int kOutputs = 4 * PerThread;
  const int k = args.k;
  float* x = buffer;
  float* w = buffer + kDotRows * (k + kRowGap);
  // A thread's rows are kDotRows / 2 apart, so that the two half-warps of a warp have neighbours.
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 15, my_row = tid >> 4 & 3, out_group = tid >> 6;
  const int groups = (args.outputs + kOutputs - 1) / kOutputs;
  if (tid == 0) {
    barrier_init(&rows_here, 1);
    barrier_init(&weights_here, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const auto fetch_weights = [&](int group) {
    const int count = min(kOutputs, args.outputs - group * kOutputs);
    if (tid == 0) barrier_expect(&weights_here, static_cast<uint32_t>(count * k * 4));
    __syncwarp();
    if (tid < count) {
      bulk_copy(w + tid * k, args.weights + (int64_t{group} * kOutputs + tid) * k, static_cast<uint32_t>(k * 4),
                &weights_here);
    }
  };
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const bool keeps = grid >= groups;
  int held = keeps ? block % groups : -1;
  uint32_t rows_parity = 0, weights_parity = 0;
  if (keeps && tid < 32) fetch_weights(held);
  wait_and_pass_on();
  if (keeps) {
    barrier_wait(&weights_here, weights_parity);
    weights_parity ^= 1;
  }
  const int rows = args.step.header[args.sampled ? kSampled : kRows];
  const int sets = (rows + kDotRows - 1) / kDotRows;
  const int step = keeps ? grid / groups * groups : grid;
  if (block >= step) return;
  for (int64_t item = block; item < int64_t{sets} * groups; item += step) {
    const int set = static_cast<int>(item / groups), group = static_cast<int>(item % groups);
    const int count = min(kDotRows, rows - set * kDotRows);
    __syncthreads();
    if (tid < 32) {
      copy_rows(x, args.input, int64_t{set} * kDotRows, count, k, &rows_here);
      if (group != held) fetch_weights(group);
    }
    if (group != held) {
      held = group;
      barrier_wait(&weights_here, weights_parity);
      weights_parity ^= 1;
    }
    barrier_wait(&rows_here, rows_parity);
    rows_parity ^= 1;
    if (my_row >= count) continue;
    float sum[2][PerThread];
#pragma unroll
    for (int i = 0; i < 2 * PerThread; ++i) sum[i / PerThread][i % PerThread] = 0.0F;
    const float* x0 = x + my_row * (k + kRowGap) + lane;
    const float* x1 = x0 + kDotRows / 2 * (k + kRowGap);  // of a row that may not be there: its sums are not used
    const float* w0 = w + out_group * PerThread * k + lane * 4;
#pragma unroll 8
    for (int i = 0; i < k; i += 64) {
      float4 weight[PerThread];
#pragma unroll
      for (int o = 0; o < PerThread; ++o) weight[o] = *reinterpret_cast<const float4*>(w0 + o * k + i);
      const auto step_of = [&](int j, auto&& part) {
        const float a = x0[i + j * 16], b = x1[i + j * 16];
#pragma unroll
        for (int o = 0; o < PerThread; ++o) {
          sum[0][o] = __fmaf_rn(a, part(weight[o]), sum[0][o]);
          sum[1][o] = __fmaf_rn(b, part(weight[o]), sum[1][o]);
        }
      };
      step_of(0, [](const float4& v) { return v.x; });
      step_of(1, [](const float4& v) { return v.y; });
      step_of(2, [](const float4& v) { return v.z; });
      step_of(3, [](const float4& v) { return v.w; });
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int o = 0; o < PerThread; ++o) {
        const float y = tree16_half(sum[r][o]);
        const int output = group * kOutputs + out_group * PerThread + o;
        const int row = my_row + r * (kDotRows / 2);
        if (lane != 0 || row >= count || output >= args.outputs) continue;
        args.out.data[(int64_t{set} * kDotRows + row) * args.out.stride + output] =
            args.bias != nullptr ? __fadd_rn(y, args.bias[output]) : y;
      }
    }
  }
}

template <int PerThread>
bool start_float_linear(const FloatLinearArgs& args, int sms, cudaStream_t stream) {
  const size_t bytes = sizeof(float) * (static_cast<size_t>(args.k) * (kDotRows + 4 * PerThread) + kDotRows * kRowGap);
  if (bytes > 226 << 10) return false;
  const int groups = (args.outputs + 4 * PerThread - 1) / (4 * PerThread);
  const int64_t blocks = int64_t{groups} * ((args.step.max_rows + kDotRows - 1) / kDotRows);
  launch(&float_linear_kernel<PerThread>, static_cast<int>(blocks < sms ? blocks : sms), kDotThreads, bytes, stream,
         args);
  return true;
}

}  // namespace

void launch_float_linear(const FloatLinearArgs& args, int sms, cudaStream_t stream) {
  // Fewer rows: outputs over more blocks.
  if (args.step.max_rows > 128) return launch_float_tiles(args, sms, stream);
  if (args.step.max_rows > kDotRows && start_float_linear<2>(args, sms, stream)) return;
  start_float_linear<1>(args, sms, stream);
}

}  // namespace cohort::cuda
