// A q8_0 cache: heads (norm, rope, append) and attention, rule 7, on codes with an f16 scale for 32 dimensions of a
// position.
//
// A page of one KV head is, for K, the codes as [dims / 8][32 positions][8] and for V as [32 positions][dims]; behind
// either the scales as [groups of 32 dimensions][32 positions] (page_half_bytes).
//
// A block of eight warps has one (row, split of 256 positions, up to eight query heads of one KV head), for decode and
// prefill alike. Scores: a lane has one position and reads its codes in place, 256 adjacent bytes a warp; values: two
// warps have a segment of 64 positions, a lane two dimensions. The last block of a (row, heads) merges the splits.
// What bounds it: issue slots: a conversion and a multiplication beside each value's fma for every head of the block.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/units.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = 8;
constexpr int kMaxHeads = 8;
constexpr int kBlocksPerSm = 3;
constexpr int kHeadWarps = 4;
constexpr int kMaxHeadDim = 512;

__host__ __device__ constexpr int scale_groups_of(int dims) {
  return (dims + 31) / 32;
}
__host__ __device__ constexpr int64_t scaled_bytes(int dims) {
  return int64_t{32} * dims + scale_groups_of(dims) * 64;
}

/// A warp per (row, head): q heads, then k heads, then v heads.
__global__ void __launch_bounds__(kHeadWarps * 32) heads_q8_kernel(const __grid_constant__ HeadsArgs args) {
  __shared__ float buffer[kHeadWarps][kMaxHeadDim];
  wait_and_pass_on();
  const int lane = static_cast<int>(threadIdx.x & 31), warp = static_cast<int>(threadIdx.x >> 5);
  float* x = buffer[warp];
  const int per_row = args.q.heads + args.k.heads + args.v.heads;
  const int64_t items = int64_t{args.step.header[kRows]} * per_row;
  const int dims = args.head_dim;
  for (int64_t item = int64_t{blockIdx.x} * kHeadWarps + warp; item < items; item += int64_t{gridDim.x} * kHeadWarps) {
    const int64_t row = item / per_row;
    int head = static_cast<int>(item - row * per_row);
    const int which = head < args.q.heads ? 0 : head < args.q.heads + args.k.heads ? 1 : 2;
    const HeadInput& in = which == 0 ? args.q : which == 1 ? args.k : args.v;
    head -= which == 0 ? 0 : which == 1 ? args.q.heads : args.q.heads + args.k.heads;
    const int position = args.step.positions[row];
    __syncwarp();
    head_row(in, head, dims, static_cast<int>(row), position, lane, x);
    if (which == 0) {
      float* out = args.q_out + (row * args.q.heads + head) * dims;
      for (int i = lane; i < dims; i += 32) out[i] = x[i];
      continue;
    }
    const int64_t page = args.step.pages[args.step.page_begin[row] + position / 32];
    std::byte* base = (which == 1 ? args.keys : args.values) + (page * args.k.heads + head) * scaled_bytes(dims);
    const int at = position % 32;
    for (int i = lane; i - lane < dims; i += 32) {
      const float value = i < dims ? x[i] : 0.0F;
      const uint32_t amax = __reduce_max_sync(kFullMask, __float_as_uint(value) & 0x7fffffffU);
      const float largest = fminf(__fdiv_rn(__uint_as_float(amax), 127.0F), 65504.0F);
      const __half scale = amax >= 0x7f800000U ? __ushort_as_half(0x7e00) : __float2half_rn(largest);
      const float wide = __half2float(scale);
      const float code = rintf(__fmul_rn(value, wide > 0.0F ? __fdiv_rn(1.0F, wide) : 0.0F));
      if (i < dims) {
        const int64_t index = which == 1 ? int64_t{i / 8} * 256 + at * 8 + i % 8 : int64_t{at} * dims + i;
        base[index] = static_cast<std::byte>(static_cast<int8_t>(fminf(fmaxf(code, -127.0F), 127.0F)));
      }
      if (lane == 0) reinterpret_cast<__half*>(base + int64_t{32} * dims)[i / 32 * 32 + at] = scale;
    }
  }
}

struct Shared {
  union {  // q is needed up to the scores, the exchange after them
    float q[kMaxHeads * kMaxHeadDim];
    float exchange[4 * kMaxHeads * 128];
  };
  float p[kSplit * kMaxHeads];
  int keys[kMaxHeads * kWarps];
  float sum[kMaxHeads];
  int last;
};

__device__ __forceinline__ void write_output(const AttentionArgs& args, int row, int head, int dim, float o,
                                             bool inside) {
  if (args.out.data != nullptr && inside)
    args.out.data[int64_t{row} * args.out.stride + head * args.head_dim + dim] = o;
  if (args.quantised.data != nullptr && inside)  // whole blocks: the warp agrees
    quantise_block(o, static_cast<int>(threadIdx.x & 31), args.quantised, row, (head * args.head_dim + dim) / 32);
}

/// What the splits of a row and head give, in order of position; a warp a head.
__device__ __forceinline__ void merge(const AttentionArgs& args, const float* head, int64_t split_stride, int splits,
                                      int row, int head_index) {
  const int lane = static_cast<int>(threadIdx.x & 31), dims = args.head_dim;
  float m = __int_as_float(0xff800000);
  for (int s = lane; s < splits; s += 32) m = fmaxf(m, __ldcg(head + s * split_stride));
  m = with_sink(args, head_index, key_float(__reduce_max_sync(kFullMask, float_key(m))));
  for (int base = 0; base < dims; base += 32) {
    const int d = base + lane;
    float sum = 0.0F, o = 0.0F;
    for (int s = 0; s < splits; ++s) {
      const float* part = head + s * split_stride;
      const float w = numerics::exp<Ops>(__fsub_rn(__ldcg(part), m)), l = __ldcg(part + 1);
      const float v = d < dims ? __ldcg(part + kPartialHead + d) : 0.0F;
      sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
      o = s == 0 ? __fmul_rn(w, v) : __fmaf_rn(w, v, o);
    }
    const float inverse = __fdiv_rn(1.0F, add_sink(args, head_index, m, sum));
    write_output(args, row, head_index, d, __fmul_rn(o, inverse), d < dims);
  }
}

template <int H>
__device__ void attend(const AttentionArgs& args, Shared& sh, int index, int first_head) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int dims = args.head_dim, group = args.heads / args.kv_heads, kv_head = first_head / group;
  const int32_t* unit = args.step.units[args.window_index] + int64_t{index} * kUnitWords;
  const int row = unit[kUnitRow], split = unit[kUnitSplit], position = unit[kUnitPosition];
  const int first_visible = args.window > 0 ? max(0, position + 1 - args.window) : 0;
  const int stop = position + 1 + unit_ahead(unit[kUnitRows]);
  const int begin = max(first_visible - split * kSplit, 0), end = min(stop - split * kSplit, kSplit);
  const auto page_at = [&](const std::byte* base, int page) {
    return base + (int64_t{unit[kUnitPages + page]} * args.kv_heads + kv_head) * scaled_bytes(dims);
  };
  __syncthreads();
  const float* q = args.q + (int64_t{row} * args.heads + first_head) * dims;
  for (int i = tid; i < H * dims; i += kThreads) sh.q[i] = q[i];
  __syncthreads();

  float score[H];
#pragma unroll
  for (int h = 0; h < H; ++h) score[h] = 0.0F;
  if (warp * 32 < end && warp * 32 + 32 > begin) {
    const std::byte* page = page_at(args.keys, warp);
    const std::byte* codes = page + lane * 8;
    const auto* scales = reinterpret_cast<const __half*>(page + int64_t{32} * dims) + lane;
    float scale = 0.0F;
#pragma unroll 4
    for (int d = 0; d < dims; d += 8) {
      const uint2 raw = *reinterpret_cast<const uint2*>(codes + d * 32);
      if (d % 32 == 0) scale = __half2float(scales[d]);
      float k[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const uint32_t word = e < 4 ? raw.x : raw.y;
        k[e] = __fmul_rn(static_cast<float>(static_cast<int8_t>(word >> (e % 4 * 8))), scale);
      }
#pragma unroll
      for (int h = 0; h < H; ++h) {
        float qs[8];
        load_heads<8>(sh.q + h * dims + d, qs);
#pragma unroll
        for (int e = 0; e < 8; ++e) score[h] = __fmaf_rn(qs[e], k[e], score[h]);
      }
    }
  }
  const int j = tid;  // position in the split
  const bool visible = j >= begin && j < end;
#pragma unroll
  for (int h = 0; h < H; ++h) {
    score[h] = __fmul_rn(score[h], args.scale);
    const int key = __reduce_max_sync(kFullMask, float_key(visible ? score[h] : __int_as_float(0xff800000)));
    if (lane == 0) sh.keys[h * kWarps + warp] = key;
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < H; ++h) {
    const float maximum = key_float(__reduce_max_sync(kFullMask, sh.keys[h * kWarps + (lane & 7)]));
    // An invisible position adds +0 to a sum that is never -0.
    sh.p[j * H + h] = visible ? numerics::exp<Ops>(__fsub_rn(score[h], maximum)) : 0.0F;
  }
  __syncthreads();
  if (warp < H) {  // l = sum16(p): a warp a head, both halves the same
    float sum = 0.0F;
#pragma unroll 4
    for (int i = lane & 15; i < end; i += 16) sum = __fadd_rn(sum, sh.p[i * H + warp]);
    sum = tree16(sum);
    if (lane == 0) sh.sum[warp] = sum;
  }

  const int first_split = first_visible / kSplit, splits = (stop - 1) / kSplit - first_split + 1;
  const int64_t split_stride = int64_t{args.heads} * (dims + kPartialHead);
  float* all = args.partial + (int64_t{unit[kUnitPartial]} * args.heads + first_head) * (dims + kPartialHead);
  float* partial = all + (split - first_split) * split_stride;
  const int segment = warp >> 1;
  const int from = max(begin, segment * 64), to = min(end, segment * 64 + 64);
  for (int dim_base = 0; dim_base < dims; dim_base += 128) {
    const int dim = dim_base + (warp & 1) * 64 + lane * 2;
    float o[H][2];
#pragma unroll
    for (int h = 0; h < H; ++h) o[h][0] = o[h][1] = 0.0F;
    if (dim < dims) {
      for (int first = from; first < to; first = (first | 31) + 1) {  // by page
        const std::byte* page = page_at(args.values, first >> 5);
        const std::byte* codes = page + dim;
        const auto* scales = reinterpret_cast<const __half*>(page + int64_t{32} * dims) + dim / 32 * 32;
        const int last = min(to, (first | 31) + 1);
#pragma unroll 4
        for (int i = first; i < last; ++i) {
          const char2 code = *reinterpret_cast<const char2*>(codes + (i & 31) * dims);
          const float scale = __half2float(scales[i & 31]);
          const float x = __fmul_rn(static_cast<float>(code.x), scale);
          const float y = __fmul_rn(static_cast<float>(code.y), scale);
          float p[H];
          load_heads<H>(sh.p + i * H, p);
#pragma unroll
          for (int h = 0; h < H; ++h) {
            o[h][0] = __fmaf_rn(p[h], x, o[h][0]);
            o[h][1] = __fmaf_rn(p[h], y, o[h][1]);
          }
        }
      }
#pragma unroll
      for (int h = 0; h < H; ++h)
        *reinterpret_cast<float2*>(sh.exchange + (segment * H + h) * 128 + dim - dim_base) =
            make_float2(o[h][0], o[h][1]);
    }
    __syncthreads();
    for (int i = tid; i < H * 128; i += kThreads) {
      const int h = i >> 7, d = dim_base + (i & 127);
      const bool inside = d < dims;
      const float* e = sh.exchange + i;
      const float y = __fadd_rn(__fadd_rn(e[0], e[H * 128]), __fadd_rn(e[2 * H * 128], e[3 * H * 128]));
      if (splits == 1) {
        const float own = key_float(__reduce_max_sync(kFullMask, sh.keys[h * kWarps + (lane & 7)]));
        const float m = with_sink(args, first_head + h, own);
        const float w = numerics::exp<Ops>(__fsub_rn(own, m));
        const float inverse = __fdiv_rn(1.0F, add_sink(args, first_head + h, m, __fmul_rn(w, sh.sum[h])));
        write_output(args, row, first_head + h, d, __fmul_rn(__fmul_rn(w, y), inverse), inside);
      } else if (inside) {
        partial[h * (dims + kPartialHead) + kPartialHead + d] = y;
      }
    }
    __syncthreads();
  }
  if (splits == 1) return;
  if (warp < H) {
    const int key = __reduce_max_sync(kFullMask, sh.keys[warp * kWarps + (lane & 7)]);
    if (lane == 0) {
      partial[warp * (dims + kPartialHead)] = key_float(key);
      partial[warp * (dims + kPartialHead) + 1] = sh.sum[warp];
    }
  }
  __syncthreads();
  if (tid == 0) {  // one thread's fence serves the block: the barrier is before it
    int32_t* counter = &args.counters[row * args.heads + first_head];
    __threadfence();
    sh.last = atomicAdd(counter, 1) == splits - 1 ? 1 : 0;
    if (sh.last != 0) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  if (sh.last != 0 && warp < H)
    merge(args, all + warp * (dims + kPartialHead), split_stride, splits, row, first_head + warp);
}

template <int H>
__device__ void attend_all(const AttentionArgs& args, Shared& sh, int units) {
  const int sets = args.heads / H;
  for (int i = static_cast<int>(blockIdx.x); i < units * sets; i += static_cast<int>(gridDim.x))
    attend<H>(args, sh, i / sets, i % sets * H);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attention_q8_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(16) std::byte buffer[];
  Shared& sh = *reinterpret_cast<Shared*>(buffer);
  wait_and_pass_on();
  const int units = args.step.header[kUnits + args.window_index];
  const int group = args.heads / args.kv_heads;
  // As few heads a block as the grid takes in one round; see attention.cu.
  const auto fits = [&](int heads) {
    return group % heads == 0 && units * (args.heads / heads) <= static_cast<int>(gridDim.x);
  };
  const int most = group % 8 == 0 ? 8 : group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
  const int heads = fits(1) ? 1 : fits(2) ? 2 : fits(4) ? 4 : most;
  if (heads == 8) {
    attend_all<8>(args, sh, units);
  } else if (heads == 4) {
    attend_all<4>(args, sh, units);
  } else if (heads == 2) {
    attend_all<2>(args, sh, units);
  } else {
    attend_all<1>(args, sh, units);
  }
}

}  // namespace

size_t scaled_page_half_bytes(int kv_heads, int head_dim) {
  return static_cast<size_t>(kv_heads) * static_cast<size_t>(scaled_bytes(head_dim));
}

void launch_heads_q8(const HeadsArgs& args, int sms, cudaStream_t stream) {
  const int wanted = args.step.max_rows * (args.q.heads + 2 * args.k.heads) / kHeadWarps + 1;
  launch(&heads_q8_kernel, wanted < sms * 4 ? wanted : sms * 4, kHeadWarps * 32, 0, stream, args);
}

void launch_attention_q8(const AttentionArgs& args, int sms, cudaStream_t stream) {
  launch(&attention_q8_kernel, sms * kBlocksPerSm, kThreads, sizeof(Shared), stream, args);
}

}  // namespace cohort::cuda
