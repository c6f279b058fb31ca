// What happens to whole rows between the linear layers: embedding, the experts' weighted sum, residual, norm and
// quantisation in one pass; heads (norm, rope, cache append); the elementwise rest.
#include "kernels/cuda/heads.cuh"

namespace cohort::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kManyRowsPerSm = 4;  // blocks of rows_kernel<256>

__global__ void begin_kernel(const BeginArgs args) {
  wait_and_pass_on();
  // The host's memory is far: its header once, then all arrays without a dependence between them.
  __shared__ int32_t header[kHeaderWords];
  if (threadIdx.x < kHeaderWords) header[threadIdx.x] = args.host[threadIdx.x];
  __syncthreads();
  const Step& step = args.step;
  const int rows = header[kRows];
  auto copy = [&, at = int{kHeaderWords}](auto* target, int words) mutable {
    const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < words; i += static_cast<int>(gridDim.x * blockDim.x)) target[i] = args.host[at + i];
    at += words;
  };
  if (blockIdx.x == 0 && threadIdx.x < kHeaderWords) step.header[threadIdx.x] = header[threadIdx.x];
  copy(step.tokens, rows);
  copy(step.positions, rows);
  copy(step.page_begin, rows);
  copy(step.sampled_rows, header[kSampled]);
  copy(step.pages, header[kPages]);
  for (int w = 0; w < kMaxWindows; ++w) copy(step.units[w], header[kUnits + w] * int{kUnitWords});
  if (blockIdx.x == 0 && threadIdx.x == 0 && args.distinct != nullptr) *args.distinct = 0;
}

// Shared memory: one row. Bounds: latency at few rows (two passes over the row and a chain of width / 16 fma).
template <int Threads>
__global__ void __launch_bounds__(Threads, Threads == kRowThreads ? 1 : kManyRowsPerSm)
    rows_kernel(const __grid_constant__ RowArgs args) {
  extern __shared__ __align__(16) float row_values[];
  __shared__ float factor_shared;
  const int tid = static_cast<int>(threadIdx.x);
  stamp(args.step, 0);
  // The norm's weights of this thread's first values, before the wait.
  float4 ahead = make_float4(1.0F, 1.0F, 1.0F, 1.0F);
  if (args.norm_weight != nullptr && tid * 4 < args.width)
    ahead = *reinterpret_cast<const float4*>(args.norm_weight + tid * 4);
  stamp(args.step, 1);
  wait_and_pass_on();
  stamp(args.step, 2);
  const int rows = args.step.header[args.sampled ? kSampled : kRows];
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    __syncthreads();
    const int64_t source = args.gather ? args.step.sampled_rows[row] : row;
    const float* input = args.input.data != nullptr ? args.input.data + source * args.input.stride : nullptr;
    float scale = 1.0F;
    if (args.table != nullptr) {
      input = args.table + int64_t{args.step.tokens[row]} * args.width;
      scale = args.table_scale;
    }
    for (int i = tid * 4; i < args.width; i += Threads * 4) {
      float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (args.expert_output != nullptr) {
        const float* d = args.expert_output + source * args.top_k * args.width + i;
        const float* w = args.slot_weight + source * args.top_k;
        // Several slots' loads in flight at once.
        constexpr int kSlots = Threads == kRowThreads ? 8 : 4;
        for (int first = 0; first < args.top_k; first += kSlots) {
          float4 v[kSlots];
          float weight[kSlots];
#pragma unroll
          for (int u = 0; u < kSlots; ++u) {
            if (first + u < args.top_k) {
              v[u] = *reinterpret_cast<const float4*>(d + int64_t{first + u} * args.width);
              weight[u] = w[first + u];
            }
          }
#pragma unroll
          for (int u = 0; u < kSlots; ++u) {
            if (first + u == 0) {
              x = make_float4(__fmul_rn(weight[0], v[0].x), __fmul_rn(weight[0], v[0].y), __fmul_rn(weight[0], v[0].z),
                              __fmul_rn(weight[0], v[0].w));
            } else if (first + u < args.top_k) {
              x = make_float4(__fmaf_rn(weight[u], v[u].x, x.x), __fmaf_rn(weight[u], v[u].y, x.y),
                              __fmaf_rn(weight[u], v[u].z, x.z), __fmaf_rn(weight[u], v[u].w, x.w));
            }
          }
        }
      }
      if (input != nullptr) {
        float4 v = *reinterpret_cast<const float4*>(input + i);
        if (args.table != nullptr && scale != 1.0F) {
          v = make_float4(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale), __fmul_rn(v.z, scale), __fmul_rn(v.w, scale));
        }
        x = args.expert_output == nullptr
                ? v
                : make_float4(__fadd_rn(v.x, x.x), __fadd_rn(v.y, x.y), __fadd_rn(v.z, x.z), __fadd_rn(v.w, x.w));
      }
      if (args.addend.data != nullptr) {
        const float4 v = *reinterpret_cast<const float4*>(args.addend.data + source * args.addend.stride + i);
        x = make_float4(__fadd_rn(x.x, v.x), __fadd_rn(x.y, v.y), __fadd_rn(x.z, v.z), __fadd_rn(x.w, v.w));
      }
      *reinterpret_cast<float4*>(row_values + i) = x;
      if (args.sum_out.data != nullptr)
        *reinterpret_cast<float4*>(args.sum_out.data + int64_t{row} * args.sum_out.stride + i) = x;
    }
    if (!args.norm && args.quantised.data == nullptr) continue;
    __syncthreads();
    stamp(args.step, 3);
    float factor = 1.0F;
    if (args.norm) {
      if (tid < 32) {
        factor = norm_factor(squares16_shared(row_values, args.width, tid), args.width, args.eps);
        if (tid == 0) factor_shared = factor;
      }
      __syncthreads();
      factor = factor_shared;
    }
    stamp(args.step, 4);
    // A thread has four values at a time, so eight lanes a 32-block.
#pragma unroll 1
    for (int first = 0, n = 0; first < args.width; first += Threads * 4, ++n) {
      const int i = first + tid * 4;
      const bool inside = i < args.width;
      float4 y = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (inside) {
        y = *reinterpret_cast<const float4*>(row_values + i);
        if (args.norm) {
          y = make_float4(__fmul_rn(y.x, factor), __fmul_rn(y.y, factor), __fmul_rn(y.z, factor),
                          __fmul_rn(y.w, factor));
          if (args.norm_weight != nullptr) {
            const float4 w = n == 0 ? ahead : *reinterpret_cast<const float4*>(args.norm_weight + i);
            y = make_float4(__fmul_rn(y.x, w.x), __fmul_rn(y.y, w.y), __fmul_rn(y.z, w.z), __fmul_rn(y.w, w.w));
          }
          if (args.norm_out.data != nullptr)
            *reinterpret_cast<float4*>(args.norm_out.data + int64_t{row} * args.norm_out.stride + i) = y;
        }
      }
      if (args.quantised.data != nullptr) quantise_four(y, args.quantised, row, i, inside);
    }
    stamp(args.step, 5);
  }
}

__global__ void quantise_kernel(const __grid_constant__ QuantiseArgs args) {
  wait_and_pass_on();
  const int64_t rows = int64_t{args.step.header[args.sampled ? kSampled : kRows]} * args.each;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; i < rows * args.blocks; i += warps) {
    const int64_t row = i / args.blocks, b = i - row * args.blocks;
    const float x = args.input.data[row * args.input.stride + b * 32 + lane];
    quantise_block(x, lane, args.out, row, static_cast<int>(b));
  }
}

__global__ void elementwise_kernel(const __grid_constant__ ElementwiseArgs args) {
  wait_and_pass_on();
  const int64_t rows = args.step.header[args.sampled ? kSampled : kRows];
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (args.kind == Elementwise::group_norm) {
    // A warp per group; both half-warps sum the squares, then all lanes scale.
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int64_t groups = args.width / args.group;
    for (int64_t i = first / 32; i < rows * groups; i += threads / 32) {
      const int64_t row = i / groups, at = (i - row * groups) * args.group;
      const float* x = args.a.data + row * args.a.stride + at;
      float* y = args.out.data + row * args.out.stride + at;
      const float factor = norm_factor(squares16_shared(x, args.group, lane), args.group, args.eps);
      for (int k = lane; k < args.group; k += 32) {
        const float v = __fmul_rn(x[k], factor);
        y[k] = args.factors != nullptr ? __fmul_rn(v, args.factors[k]) : v;
      }
    }
    return;
  }
  if (args.kind == Elementwise::rope_half || args.kind == Elementwise::rope_adjacent) {
    const int64_t heads = args.width / args.group;
    const int half = args.group / 2;
    const bool adjacent = args.kind == Elementwise::rope_adjacent;
    for (int64_t i = first; i < rows * heads * half; i += threads) {
      const int64_t row = i / (heads * half);
      const int64_t head = i / half % heads;
      const int pair = static_cast<int>(i % half);
      const float* x = args.a.data + row * args.a.stride + head * args.group;
      float* y = args.out.data + row * args.out.stride + head * args.group;
      if (pair < args.pairs) {
        const int64_t at = int64_t{args.step.positions[row]} * args.pairs + pair;
        const float c = args.cosines[at], s = args.sines[at];
        const int i0 = adjacent ? 2 * pair : pair, i1 = adjacent ? 2 * pair + 1 : pair + args.rotary / 2;
        const float x0 = x[i0], x1 = x[i1];
        y[i0] = __fmaf_rn(x0, c, -__fmul_rn(x1, s));
        y[i1] = __fmaf_rn(x0, s, __fmul_rn(x1, c));
      } else {  // dimensions past the rotary ones
        const int rest = args.rotary + 2 * (pair - args.pairs);
        y[rest] = x[rest];
        y[rest + 1] = x[rest + 1];
      }
    }
    return;
  }
  for (int64_t i = first; i < rows * args.width; i += threads) {
    const int64_t row = i / args.width, column = i - row * args.width;
    const float a = args.a.data[row * args.a.stride + column];
    float y = 0.0F;
    switch (args.kind) {
      case Elementwise::add:
        y = __fadd_rn(a, args.b.data[row * args.b.stride + column]);
        break;
      case Elementwise::gate_silu:
        y = __fmul_rn(numerics::silu<Ops>(a), args.b.data[row * args.b.stride + column]);
        break;
      case Elementwise::gate_gelu:
        y = __fmul_rn(numerics::gelu_tanh<Ops>(a), args.b.data[row * args.b.stride + column]);
        break;
      case Elementwise::gate_clamped_swiglu:
        y = numerics::clamped_swiglu<Ops>(a, args.b.data[row * args.b.stride + column]);
        break;
      case Elementwise::scale_one:
        y = __fmul_rn(a, args.factors[0]);
        break;
      case Elementwise::scale_columns:
        y = __fmul_rn(a, args.factors[column]);
        break;
      case Elementwise::softcap:
        y = __fmul_rn(args.cap, numerics::tanh<Ops>(__fdiv_rn(a, args.cap)));
        break;
      default:
        break;
    }
    args.out.data[row * args.out.stride + column] = y;
  }
}

constexpr int kHeadWarps = 4;
constexpr int kMaxHeadDim = 512;

__device__ __forceinline__ void store_cached(std::byte* base, CacheType type, int64_t index, float x) {
  if (type == CacheType::f32) {
    reinterpret_cast<float*>(base)[index] = x;
  } else if (type == CacheType::f16) {
    reinterpret_cast<__half*>(base)[index] = __float2half_rn(x);
  } else {
    reinterpret_cast<__nv_bfloat16*>(base)[index] = __float2bfloat16_rn(x);
  }
}

/// A warp per (row, head): q heads, then k heads, then v heads.
__global__ void __launch_bounds__(kHeadWarps * 32) heads_kernel(const __grid_constant__ HeadsArgs args) {
  __shared__ float buffer[kHeadWarps][kMaxHeadDim];
  wait_and_pass_on();
  const int lane = static_cast<int>(threadIdx.x & 31), warp = static_cast<int>(threadIdx.x >> 5);
  float* x = buffer[warp];
  const int per_row = args.q.heads + args.k.heads + args.v.heads;
  const int64_t items = int64_t{args.step.header[kRows]} * per_row;
  const int chunk = args.cache == CacheType::f32 ? 4 : 8;
  const int dims = args.head_dim;
  const size_t page_half = size_t{32} * args.k.heads * dims * (args.cache == CacheType::f32 ? 4 : 2);
  for (int64_t item = int64_t{blockIdx.x} * kHeadWarps + warp; item < items; item += int64_t{gridDim.x} * kHeadWarps) {
    const int64_t row = item / per_row;
    int head = static_cast<int>(item - row * per_row);
    const int which = head < args.q.heads ? 0 : head < args.q.heads + args.k.heads ? 1 : 2;
    const HeadInput& in = which == 0 ? args.q : which == 1 ? args.k : args.v;
    head -= which == 0 ? 0 : which == 1 ? args.q.heads : args.q.heads + args.k.heads;
    const int position = args.step.positions[row];
    const int page = which == 0 ? 0 : args.step.pages[args.step.page_begin[row] + position / 32];
    __syncwarp();
    head_row(in, head, dims, static_cast<int>(row), position, lane, x);
    if (which == 0) {
      float* out = args.q_out + (row * args.q.heads + head) * dims;
      for (int i = lane; i < dims; i += 32) out[i] = x[i];
    } else {
      const int at = position % 32;
      std::byte* base = (which == 1 ? args.keys : args.values) + page * page_half;
      for (int i = lane; i < dims; i += 32) {
        const int64_t index = which == 1 ? (int64_t{head} * dims + i / chunk * chunk) * 32 + at * chunk + i % chunk
                                         : (int64_t{head} * 32 + at) * dims + i;
        store_cached(base, args.cache, index, x[i]);
      }
    }
  }
}

/// The same for heads of 128 dimensions, half a warp each, in registers.
__global__ void __launch_bounds__(kRowThreads, 2) half_warp_heads_kernel(const __grid_constant__ HeadsArgs args) {
  wait_and_pass_on();
  const int lane = static_cast<int>(threadIdx.x & 15);
  const int per_row = args.q.heads + args.k.heads + args.v.heads;
  const int items = args.step.header[kRows] * per_row;
  const int step = static_cast<int>(gridDim.x) * (kRowThreads / 16);
  const int chunk = args.cache == CacheType::f32 ? 4 : 8;
  const size_t page_half = size_t{32} * args.k.heads * kHalfWarpDims * (args.cache == CacheType::f32 ? 4 : 2);
  for (int item = static_cast<int>(blockIdx.x) * (kRowThreads / 16) + static_cast<int>(threadIdx.x >> 4); item < items;
       item += step) {
    const int row = item / per_row;
    int head = item - row * per_row;
    const int which = head < args.q.heads ? 0 : head < args.q.heads + args.k.heads ? 1 : 2;
    const HeadInput& in = which == 0 ? args.q : which == 1 ? args.k : args.v;
    head -= which == 0 ? 0 : which == 1 ? args.q.heads : args.q.heads + args.k.heads;
    const int position = args.step.positions[row];
    const int page = which == 0 ? 0 : args.step.pages[args.step.page_begin[row] + position / 32];
    float x[8];
    head_values(in, head, row, position, lane, x);
    if (which == 0) {
      float* out = args.q_out + (int64_t{row} * args.q.heads + head) * kHalfWarpDims + lane;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i * 16] = x[i];
      continue;
    }
    const int at = position % 32;
    std::byte* base = (which == 1 ? args.keys : args.values) + page * page_half;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = lane + i * 16;
      const int64_t index = which == 1
                                ? (int64_t{head} * kHalfWarpDims + d / chunk * chunk) * 32 + at * chunk + d % chunk
                                : (int64_t{head} * 32 + at) * kHalfWarpDims + d;
      store_cached(base, args.cache, index, x[i]);
    }
  }
}

__global__ void copy_page_kernel(std::byte* base, size_t page_bytes, int from, int to) {
  const auto* source = reinterpret_cast<const uint4*>(base + from * page_bytes);
  auto* target = reinterpret_cast<uint4*>(base + to * page_bytes);
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < page_bytes / 16; i += gridDim.x * blockDim.x)
    target[i] = source[i];
}

__global__ void __launch_bounds__(512) read_kernel(const uint4* data, size_t count, int32_t* out) {
  uint32_t all = 0xffffffffU;
  const size_t step = size_t{gridDim.x} * blockDim.x;
#pragma unroll 8
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = __ldcs(data + i);
    all &= v.x & v.y & v.z & v.w;
  }
  if (all == 0xffffffffU) *out = 1;
}

/// Orders floats as unsigned integers; NaN below everything.
__device__ __forceinline__ uint32_t order_key(float x) {
  if (x != x) return 0;
  if (x == 0.0F) x = 0.0F;  // -0 equals +0
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

constexpr int kArgmaxSlices = 16;

__global__ void __launch_bounds__(256) argmax_kernel(const __grid_constant__ ArgmaxArgs args) {
  __shared__ unsigned long long warps[8];
  wait_and_pass_on();
  const int sampled = args.step.header[kSampled];
  for (int item = static_cast<int>(blockIdx.x); item < sampled * kArgmaxSlices; item += static_cast<int>(gridDim.x)) {
    const int row = item / kArgmaxSlices, slice = item % kArgmaxSlices;
    const float* logits = args.logits + int64_t{row} * args.vocabulary;
    const int begin = static_cast<int>(int64_t{args.vocabulary} * slice / kArgmaxSlices);
    const int end = static_cast<int>(int64_t{args.vocabulary} * (slice + 1) / kArgmaxSlices);
    unsigned long long best = 0;
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += 256) {
      const unsigned long long key =
          static_cast<unsigned long long>(order_key(logits[i])) << 32 | (0xffffffffU - static_cast<uint32_t>(i));
      best = key > best ? key : best;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const unsigned long long other = __shfl_xor_sync(kFullMask, best, offset);
      best = other > best ? other : best;
    }
    __syncthreads();
    if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (unsigned long long other : warps) best = other > best ? other : best;
      atomicMax(&args.best[row], best);
      __threadfence();
      if (atomicAdd(&args.counters[row], 1) == kArgmaxSlices - 1) {
        __threadfence();
        const unsigned long long winner = atomicExch(&args.best[row], 0ULL);
        args.counters[row] = 0;
        args.out[row] = static_cast<int32_t>(0xffffffffU - static_cast<uint32_t>(winner));
      }
    }
  }
}

}  // namespace

namespace {
int at_most(int a, int b) {
  return a < b ? a : b;
}
}  // namespace

void launch_begin(const BeginArgs& args, cudaStream_t stream) {
  launch(&begin_kernel, 16, 256, 0, stream, args);
}
void launch_rows(const RowArgs& args, int sms, cudaStream_t stream) {
  const size_t bytes = static_cast<size_t>(args.width) * 4;
  if (args.step.max_rows > 128) {  // a warp's chain of fma leaves the others idle: more rows at once
    launch(&rows_kernel<256>, sms * kManyRowsPerSm, 256, bytes, stream, args);
  } else {
    launch(&rows_kernel<kRowThreads>, at_most(sms * 2, args.step.max_rows), kRowThreads, bytes, stream, args);
  }
}
void launch_quantise(const QuantiseArgs& args, int sms, cudaStream_t stream) {
  launch(&quantise_kernel, sms * 4, 256, 0, stream, args);
}
void launch_elementwise(const ElementwiseArgs& args, int sms, cudaStream_t stream) {
  launch(&elementwise_kernel, sms * 2, 256, 0, stream, args);
}
void launch_heads(const HeadsArgs& args, int sms, cudaStream_t stream) {
  if (args.cache == CacheType::q8_0) return launch_heads_q8(args, sms, stream);
  if (args.head_dim == kHalfWarpDims && half_warp_rope(args.q) && half_warp_rope(args.k) && half_warp_rope(args.v)) {
    constexpr int kHalves = kRowThreads / 16;
    launch(&half_warp_heads_kernel,
           at_most(sms * 4, (args.step.max_rows * (args.q.heads + 2 * args.k.heads) + kHalves - 1) / kHalves),
           kRowThreads, 0, stream, args);
    return;
  }
  launch(&heads_kernel, at_most(sms * 4, args.step.max_rows * (args.q.heads + 2 * args.k.heads) / kHeadWarps + 1),
         kHeadWarps * 32, 0, stream, args);
}
void launch_copy_page(std::byte* base, size_t page_bytes, int from, int to, cudaStream_t stream) {
  copy_page_kernel<<<32, 256, 0, stream>>>(base, page_bytes, from, to);
}
void launch_read(const std::byte* data, size_t bytes, int32_t* out, int sms, cudaStream_t stream) {
  read_kernel<<<static_cast<unsigned>(sms * 4), 512, 0, stream>>>(reinterpret_cast<const uint4*>(data), bytes / 16,
                                                                  out);
}
void launch_argmax(const ArgmaxArgs& args, int sms, cudaStream_t stream) {
  launch(&argmax_kernel, sms * 2, 256, 0, stream, args);
}

}  // namespace cohort::cuda
