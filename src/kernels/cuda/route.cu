// Router and float linear layers (dot16), softmax, top k, and the grouping of a step's routes by expert.
//
// Weights are packed as [outputs][K / 64][16 lanes][4], so that a lane reads four of its values at once; the rows of a
// block lie in shared memory in the same order. A block owns a slice of 8 outputs (they stay in shared memory) and
// takes 4 rows at a time; the last slice of a row to finish selects its experts, and the last row to finish groups.
#include "kernels/cuda/device.cuh"

namespace cohort::cuda {
namespace {

constexpr int kOutputs = 8;  // of a slice
constexpr int kRowsAtOnce = 4;
constexpr int kThreads = 128;                          // 16 lanes for each output
constexpr int kRouteThreads = kThreads * kRowsAtOnce;  // of the router: each row has its own

/// Place of value k in a packed row.
__device__ __forceinline__ int packed_place(int k) {
  return k / 64 * 64 + k % 16 * 4 + k / 16 % 4;
}

/// Dot products of R packed rows with this thread's output; all 16 lanes of an output get the sums.
template <int R>
__device__ __forceinline__ void dot_rows(const float* x, int x_stride, const float4* w, int k, int lane,
                                         float (&out)[kRowsAtOnce]) {
#pragma unroll
  for (int r = 0; r < R; ++r) out[r] = 0.0F;
#pragma unroll 4
  for (int i = 0; i < k / 64; ++i) {
    const float4 weight = w[i * 16 + lane];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float4 v = *reinterpret_cast<const float4*>(x + r * x_stride + i * 64 + lane * 4);
      out[r] = __fmaf_rn(v.x, weight.x, out[r]);
      out[r] = __fmaf_rn(v.y, weight.y, out[r]);
      out[r] = __fmaf_rn(v.z, weight.z, out[r]);
      out[r] = __fmaf_rn(v.w, weight.w, out[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) out[r] = tree16(out[r]);
}

/// The same for `rows` (at least one) rows: alone, a row costs a fourth.
__device__ __forceinline__ void dot_rows(const float* x, int x_stride, const float4* w, int k, int lane, int rows,
                                         float (&out)[kRowsAtOnce]) {
  if (rows == 1) {
    dot_rows<1>(x, x_stride, w, k, lane, out);
  } else {
    dot_rows<kRowsAtOnce>(x, x_stride, w, k, lane, out);
  }
}

template <int Threads>
__device__ __forceinline__ void load_weights(const float* weights, int outputs, int k, int slice, float* shared) {
  const int count = min(kOutputs, outputs - slice * kOutputs) * k / 4;
  const float* source = weights + int64_t{slice} * kOutputs * k;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) copy_async<16>(shared + i * 4, source + i * 4);
  copy_commit();
}

__global__ void __launch_bounds__(kThreads) float_linear_kernel(const __grid_constant__ FloatLinearArgs args) {
  extern __shared__ __align__(16) float buffer[];
  float* x = buffer;
  float* w = buffer + kRowsAtOnce * args.k;
  const int tid = static_cast<int>(threadIdx.x);
  const int slices = (args.outputs + kOutputs - 1) / kOutputs;
  const bool persistent = static_cast<int>(gridDim.x) >= slices;
  int held = -1;
  if (persistent) {
    held = static_cast<int>(blockIdx.x) % slices;
    load_weights<kThreads>(args.weights, args.outputs, args.k, held, w);
  }
  let_next_start();
  wait_for_previous();
  const int rows = args.step.header[args.sampled ? kSampled : kRows];
  const int sets = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  // A block keeps its slice while rows go by when there are blocks enough, else it walks over all pairs.
  int64_t item = blockIdx.x, step = gridDim.x;
  if (persistent) step = gridDim.x / slices * slices;
  if (persistent && item >= step) return;
  for (; item < int64_t{sets} * slices; item += step) {
    const int set = static_cast<int>(item / slices), slice = static_cast<int>(item % slices);
    __syncthreads();
    if (slice != held) {
      held = slice;
      load_weights<kThreads>(args.weights, args.outputs, args.k, slice, w);
    }
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int row = min(set * kRowsAtOnce + r, rows - 1);
      for (int i = tid; i < args.k; i += kThreads)
        x[r * args.k + packed_place(i)] = args.input.data[int64_t{row} * args.input.stride + i];
    }
    copy_wait<0>();
    __syncthreads();
    const int output = slice * kOutputs + (tid >> 4);
    float y[kRowsAtOnce];
    dot_rows(x, args.k, reinterpret_cast<const float4*>(w + (tid >> 4) * args.k), args.k, tid & 15,
             rows - set * kRowsAtOnce, y);
    if ((tid & 15) != 0 || output >= args.outputs) continue;
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int row = set * kRowsAtOnce + r;
      if (row >= rows) break;
      args.out.data[int64_t{row} * args.out.stride + output] =
          args.bias != nullptr ? __fadd_rn(y[r], args.bias[output]) : y[r];
    }
  }
}

/// Softmax over a row's logits and its top k, by one warp; K = experts / 32, rounded up. p: scratch for the experts.
template <int K>
__device__ void select_experts(const RouteArgs& args, int row, float* p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const float* logits = args.logits + int64_t{row} * args.experts;
  float x[K];
  float maximum = __int_as_float(0xff800000);
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const int e = lane + i * 32;
    x[i] = e < args.experts ? __ldcg(logits + e) : __int_as_float(0xff800000);
    maximum = fmaxf(maximum, x[i]);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(kFullMask, maximum, offset));
#pragma unroll
  for (int i = 0; i < K; ++i) {
    x[i] = numerics::exp<Ops>(__fsub_rn(x[i], maximum));
    if (lane + i * 32 < args.experts) p[lane + i * 32] = x[i];
  }
  __syncwarp();
  float sum = 0.0F;
  for (int e = lane & 15; e < args.experts; e += 16) sum = __fadd_rn(sum, p[e]);
  const float inverse = __fdiv_rn(1.0F, tree16(sum));
  // Keys: numbers (never negative) keep their order, NaN comes after them, what is chosen or absent is 0.
  unsigned key[K];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    x[i] = __fmul_rn(x[i], inverse);
    key[i] = lane + i * 32 >= args.experts ? 0U : x[i] != x[i] ? 1U : __float_as_uint(x[i]) + 2U;
  }
  float weight = 0.0F;
  int expert = 0;
  for (int slot = 0; slot < args.top_k; ++slot) {
    unsigned best = key[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < K; ++i) {
      if (key[i] > best) {
        best = key[i];
        at = i;
      }
    }
    const unsigned highest = __reduce_max_sync(kFullMask, best);
    const unsigned chosen =
        __reduce_min_sync(kFullMask, best == highest ? static_cast<unsigned>(at * 32 + lane) : 0xffffffffU);
    if (lane == slot) {
      expert = static_cast<int>(chosen);
      weight = highest == 1U ? __uint_as_float(0x7fc00000U) : __uint_as_float(highest - 2U);
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      if (chosen == static_cast<unsigned>(i * 32 + lane)) key[i] = 0U;
    }
  }
  // sum16 over the slots in order: lane j adds slots j and j + 16.
  const float upper = __shfl_xor_sync(kFullMask, weight, 16);
  const float total = tree16(lane < 16 ? __fadd_rn(weight, upper) : __fadd_rn(upper, weight));
  if (lane < args.top_k) {
    float w = args.renormalise ? __fdiv_rn(weight, total) : weight;
    if (args.expert_scale != nullptr) w = __fmul_rn(w, args.expert_scale[expert]);
    const int64_t at = int64_t{row} * args.top_k + lane;
    args.group.slot_expert[at] = expert;
    args.group.slot_weight[at] = w;
  }
}

/// Sorts the step's routes by expert and cuts them into entries. counts: [experts * 2 + 2] ints of shared memory.
__device__ void group_routes(const RouteArgs& args, int rows, int* counts) {
  const int tid = static_cast<int>(threadIdx.x);
  const int routes = rows * args.top_k;
  int* next = counts + args.experts;
  for (int e = tid; e < args.experts; e += kRouteThreads) counts[e] = 0;
  __syncthreads();
  for (int i = tid; i < routes; i += kRouteThreads) atomicAdd(&counts[__ldcg(args.group.slot_expert + i)], 1);
  __syncthreads();
  if (tid < 32) {
    // Prefix sums of routes, entries and touched experts, 32 experts at a time.
    int begin = 0, entries = 0, touched = 0;
    for (int first = 0; first < args.experts; first += 32) {
      const int e = first + tid;
      const int n = e < args.experts ? counts[e] : 0;
      const int pieces = (n + args.cap - 1) / args.cap;
      int sum = n, piece_sum = pieces;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int a = __shfl_up_sync(kFullMask, sum, offset), b = __shfl_up_sync(kFullMask, piece_sum, offset);
        if (tid >= offset) {
          sum += a;
          piece_sum += b;
        }
      }
      if (e < args.experts) {
        next[e] = begin + sum - n;
        for (int i = 0; i < pieces; ++i) {
          const int entry = entries + piece_sum - pieces + i;
          args.group.expert[entry] = e;
          args.group.begin[entry] = begin + sum - n + i * args.cap;
          args.group.size[entry] = min(args.cap, n - i * args.cap);
        }
      }
      begin += __shfl_sync(kFullMask, sum, 31);
      entries += __shfl_sync(kFullMask, piece_sum, 31);
      touched += __popc(__ballot_sync(kFullMask, n > 0));
    }
    if (tid == 0) {
      *args.group.count = entries;
      *args.group.distinct += touched;
    }
  }
  __syncthreads();
  // The order inside an entry is free: each route is computed on its own.
  for (int i = tid; i < routes; i += kRouteThreads) {
    const int e = __ldcg(args.group.slot_expert + i);
    args.group.routes[atomicAdd(&next[e], 1)] = i;
  }
}

__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(16) float buffer[];
  __shared__ int last;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31;
  const int mine = tid / kThreads, in_row = tid % kThreads;  // the row this thread works on, and its place there
  float* x = buffer;                                         // [4][k], later scratch for selection and grouping
  float* w = buffer + kRowsAtOnce * args.k;                  // [8][k]
  float* norm_weight = w + kOutputs * args.k;                // [k], when there is a norm
  const int slices = args.weights != nullptr ? (args.experts + kOutputs - 1) / kOutputs : 1;
  const int slice = static_cast<int>(blockIdx.x) % slices;
  let_next_start();
  if (args.weights != nullptr) {
    if (args.norm_weight != nullptr) {
      for (int i = tid * 4; i < args.k; i += kRouteThreads * 4) copy_async<16>(norm_weight + i, args.norm_weight + i);
    }
    load_weights<kRouteThreads>(args.weights, args.experts, args.k, slice, w);
  }
  wait_for_previous();
  const int rows = args.step.header[kRows];
  const int sets = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  const int set_step = static_cast<int>(gridDim.x) / slices;
  int first_set = static_cast<int>(blockIdx.x) / slices;
  if (first_set >= set_step) first_set = sets;  // a remainder block has no row
  for (int set = first_set; set < sets; set += set_step) {
    const int row = set * kRowsAtOnce + mine;
    const bool active = row < rows;
    if (args.weights != nullptr) {
      __syncthreads();
      float* my_x = x + mine * args.k;
      if (active) {
        const float* source = args.input.data + int64_t{row} * args.input.stride;
        // Four loads of 16 bytes in flight.
        for (int first = in_row * 4; first < args.k; first += kThreads * 16) {
          float4 v[4];
#pragma unroll
          for (int u = 0; u < 4; ++u) {
            const int i = first + u * kThreads * 4;
            if (i < args.k) v[u] = *reinterpret_cast<const float4*>(source + i);
          }
#pragma unroll
          for (int u = 0; u < 4; ++u) {
            const int i = first + u * kThreads * 4;
            if (i >= args.k) continue;
            float* place = my_x + packed_place(i);
            place[0] = v[u].x;
            place[4] = v[u].y;
            place[8] = v[u].z;
            place[12] = v[u].w;
          }
        }
      }
      copy_wait<0>();  // the weights are here as well
      __syncthreads();
      if (args.norm) {
        if (active) {
          // Every warp of the row sums all squares itself, lane j of each half-warp its values in order.
          float sum = 0.0F;
          const float* lane_x = my_x + (lane & 15) * 4;
#pragma unroll 8
          for (int i = 0; i < args.k / 64; ++i) {
            const float4 v = *reinterpret_cast<const float4*>(lane_x + i * 64);
            sum = __fmaf_rn(v.x, v.x, sum);
            sum = __fmaf_rn(v.y, v.y, sum);
            sum = __fmaf_rn(v.z, v.z, sum);
            sum = __fmaf_rn(v.w, v.w, sum);
          }
          const float factor = norm_factor(tree16(sum), args.k, args.eps);
          __syncwarp();
          asm volatile("bar.sync %0, %1;" ::"r"(mine + 1), "n"(kThreads) : "memory");
          // The slices share the work of writing the row out: 32 values are one warp's.
          int writer = in_row >> 5;
          while (writer >= slices) writer -= slices;
          for (int i = in_row; i < args.k; i += kThreads) {
            float* place = my_x + packed_place(i);
            float y = __fmul_rn(*place, factor);
            if (args.norm_weight != nullptr) y = __fmul_rn(y, norm_weight[i]);
            *place = y;
            if (writer == slice) {
              if (args.norm_out.data != nullptr) args.norm_out.data[int64_t{row} * args.norm_out.stride + i] = y;
              if (args.quantised.values != nullptr) {
                const int64_t at = int64_t{row} * (args.k / 32) + (i >> 5);
                quantise_block(y, lane, args.quantised.values + at * 32, args.quantised.scales + at,
                               args.quantised.sums + at);
              }
            }
            writer += kThreads / 32;
            while (writer >= slices) writer -= slices;
          }
          asm volatile("bar.sync %0, %1;" ::"r"(mine + 1), "n"(kThreads) : "memory");
        }
      }
      if (active) {
        float y[kRowsAtOnce];
        const int output = in_row >> 4;
        dot_rows<1>(my_x, args.k, reinterpret_cast<const float4*>(w + output * args.k), args.k, tid & 15, y);
        const int expert = slice * kOutputs + output;
        if ((tid & 15) == 0 && expert < args.experts) args.logits[int64_t{row} * args.experts + expert] = y[0];
      }
      __threadfence();
      __syncthreads();
      if (tid == 0) last = atomicAdd(&args.group.row_counter[1 + set], 1) == slices - 1;
      __syncthreads();
      if (!last) continue;
      __threadfence();
      if (tid == 0) args.group.row_counter[1 + set] = 0;
    } else {
      __syncthreads();
    }
    const int warp = tid >> 5;
    if (warp < kRowsAtOnce && set * kRowsAtOnce + warp < rows) {
      if (args.experts <= 128) {
        select_experts<4>(args, set * kRowsAtOnce + warp, x + warp * args.experts);
      } else {
        select_experts<kMaxExperts / 32>(args, set * kRowsAtOnce + warp, x + warp * args.experts);
      }
    }
    __threadfence();
    __syncthreads();
    if (sets > 1) {
      if (tid == 0) last = atomicAdd(&args.group.row_counter[0], 1) == sets - 1;
      __syncthreads();
      if (!last) continue;
      __threadfence();
      if (tid == 0) args.group.row_counter[0] = 0;
    }
    group_routes(args, rows, reinterpret_cast<int*>(x));
  }
}

}  // namespace

void launch_float_linear(const FloatLinearArgs& args, int sms, cudaStream_t stream) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(args.k) * (kRowsAtOnce + kOutputs);
  const int per_sm = bytes * 2 <= 220 << 10 ? 2 : 1;
  const int slices = (args.outputs + kOutputs - 1) / kOutputs;
  const int64_t blocks = int64_t{slices} * ((args.step.max_rows + kRowsAtOnce - 1) / kRowsAtOnce);
  const int grid = static_cast<int>(blocks < sms * per_sm ? blocks : sms * per_sm);
  launch("a float linear layer", &float_linear_kernel, grid, kThreads, bytes, stream, args);
}

void launch_route(const RouteArgs& args, int sms, cudaStream_t stream) {
  size_t bytes =
      sizeof(float) * static_cast<size_t>(args.weights != nullptr ? args.k : 0) * (kRowsAtOnce + kOutputs + 1);
  const size_t scratch = sizeof(float) * static_cast<size_t>(args.experts) * kRowsAtOnce;
  if (bytes < scratch) bytes = scratch;
  const int per_sm = bytes * 2 <= 220 << 10 ? 2 : 1;
  const int slices = args.weights != nullptr ? (args.experts + kOutputs - 1) / kOutputs : 1;
  const int wanted = slices * ((args.step.max_rows + kRowsAtOnce - 1) / kRowsAtOnce);
  int grid = wanted < sms * per_sm ? wanted : sms * per_sm;
  if (grid < slices) grid = slices;
  launch("routing", &route_kernel, grid, kRouteThreads, bytes, stream, args);
}

}  // namespace cohort::cuda
