// Attention, rule 7, for every row of a step: one block of four warps per (row, split of 256 positions, KV head, up to
// eight of its query heads). The same arithmetic for decode, prefill and window rows.
//
// A warp has one half of the positions (four pages) and one half of the heads. K of a half's pages comes as four bulk
// copies; when both warps have their scores, V follows into the same shared memory while the softmax runs. Scores: a
// lane owns four positions and sums over the dimensions in order for all its heads at once. Values: a warp sums two
// segments of 64 positions, a lane four dimensions. So each K and V value that is read serves up to four heads. The
// last block of a (row, heads) merges the splits and quantises. Heads too large for shared memory are read from device
// memory in place.
//
// What bounds it: shared-memory broadcasts (q and p), then the copies; latency at few rows, where heads are spread over
// more blocks instead.
#include "kernels/cuda/device.cuh"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSplit = 256;
constexpr int kMaxHeads = 8;
constexpr int kBlocksPerSm = 3;  // 64 KB of K or V each at 128 dimensions

template <CacheType T>
struct Cached;
template <>
struct Cached<CacheType::f32> {
  static constexpr int kChunk = 4;
  __device__ static void unpack(uint4 raw, float* out) {
    out[0] = __uint_as_float(raw.x);
    out[1] = __uint_as_float(raw.y);
    out[2] = __uint_as_float(raw.z);
    out[3] = __uint_as_float(raw.w);
  }
  __device__ static float4 load4(const std::byte* base, int64_t index) {
    return *reinterpret_cast<const float4*>(base + index * 4);
  }
};
template <>
struct Cached<CacheType::f16> {
  static constexpr int kChunk = 8;
  __device__ static float2 pair(uint32_t bits) { return __half22float2(*reinterpret_cast<const __half2*>(&bits)); }
  __device__ static void unpack(uint4 raw, float* out) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = pair(words[i]);
      out[2 * i] = v.x;
      out[2 * i + 1] = v.y;
    }
  }
  __device__ static float4 load4(const std::byte* base, int64_t index) {
    const uint2 raw = *reinterpret_cast<const uint2*>(base + index * 2);
    const float2 a = pair(raw.x), b = pair(raw.y);
    return make_float4(a.x, a.y, b.x, b.y);
  }
};
template <>
struct Cached<CacheType::bf16> {
  static constexpr int kChunk = 8;
  __device__ static void unpack(uint4 raw, float* out) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
  }
  __device__ static float4 load4(const std::byte* base, int64_t index) {
    const uint2 raw = *reinterpret_cast<const uint2*>(base + index * 2);
    return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000U), __uint_as_float(raw.y << 16),
                       __uint_as_float(raw.y & 0xffff0000U));
  }
};

struct Shared {
  std::byte* pages;   // [8] one head of a page each, K then V; null: read in place
  uint64_t* arrived;  // [2] a half's copies
  float* q;           // [head_dim][heads]
  float* p;           // [256][heads], where q was
  float* exchange;    // [heads][128] the second half's half of the output; where p was if one pass over dimensions does
  float* maximum;     // [2][heads]
  float* sum;         // [heads]
  float* maxima;      // [heads]
};

/// Writes head outputs: f32 rows and their quantised blocks. `o` holds dimensions 4 * lane + 128 * group.
__device__ __forceinline__ void write_output(const AttentionArgs& args, int64_t row, int head, int dim,
                                             const float (&o)[4], bool inside) {
  if (args.out.data != nullptr && inside) {
    *reinterpret_cast<float4*>(args.out.data + row * args.out.stride + head * args.head_dim + dim) =
        make_float4(o[0], o[1], o[2], o[3]);
  }
  if (args.quantised.data == nullptr) return;
  // A 32-block is 8 lanes of 4 dimensions.
  const int lane = static_cast<int>(threadIdx.x & 31);
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) amax = max(amax, __float_as_uint(o[i]) & 0x7fffffffU);
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) amax = max(amax, __shfl_xor_sync(kFullMask, amax, offset));
  const BlockScale scale = block_scale(amax);
  uint32_t word = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int q = quantise_value(o[i], scale);
    word |= (static_cast<uint32_t>(q) & 255U) << (8 * i);
    sum += q;
  }
  const int in_block = lane & 7;
  int packed = in_block < 4 ? sum : sum * 65536;
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) packed += __shfl_xor_sync(kFullMask, packed, offset);
  if (!inside) return;
  std::byte* record = args.quantised.data + row * args.quantised.stride;
  const int block = (head * args.head_dim + dim) / 32;
  *reinterpret_cast<uint32_t*>(record + block * 32 + activation_slot(in_block * 4)) = word;
  if (in_block == 0) {
    std::byte* scales = record + args.quantised.blocks * 32 + block * 4;
    *reinterpret_cast<float*>(scales) = scale.d;
    *reinterpret_cast<int32_t*>(scales + args.quantised.blocks * 4) = packed;
  }
}

/// H adjacent floats, 4 * H bytes aligned.
template <int H>
__device__ __forceinline__ void load_heads(const float* p, float (&out)[H]) {
  if constexpr (H >= 4) {
#pragma unroll
    for (int h = 0; h < H; h += 4) {
      const float4 v = *reinterpret_cast<const float4*>(p + h);
      out[h] = v.x;
      out[h + 1] = v.y;
      out[h + 2] = v.z;
      out[h + 3] = v.w;
    }
  } else if constexpr (H == 2) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    out[0] = v.x;
    out[1] = v.y;
  } else {
    out[0] = p[0];
  }
}

/// H heads of each of Sets warps' head sets: H * Sets heads from first_head on.
template <int H, int Sets, CacheType T, bool Staged>
__device__ void attend(const AttentionArgs& args, const Shared& sh, int unit, int first_head) {
  constexpr int kChunk = Cached<T>::kChunk;
  constexpr int kAll = H * Sets;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31;
  const int half = tid >> 5 & 1, set = tid >> 6, my_heads = set * H;
  const bool working = set < Sets;
  const uint32_t packed_unit = args.step.units[args.window_index][unit];
  const int row = static_cast<int>(packed_unit >> 16), split = static_cast<int>(packed_unit & 0xffffU);
  const int position = args.step.positions[row];
  const int first_visible = args.window > 0 ? max(0, position + 1 - args.window) : 0;
  const int first_split = first_visible / kSplit, splits = position / kSplit - first_split + 1;
  const int begin = max(first_visible - split * kSplit, 0);  // inside the split
  const int end = min(position + 1 - split * kSplit, kSplit);
  const int group = args.heads / args.kv_heads, kv_head = first_head / group;
  const int dims = args.head_dim;
  const int64_t head_values = int64_t{dims} * 32;  // of one KV head in one page
  constexpr int kBytes = T == CacheType::f32 ? 4 : 2;
  const int64_t page_bytes = head_values * args.kv_heads * kBytes;
  const int32_t* pages = args.step.pages + args.step.page_begin[row] + split * (kSplit / 32);

  // This half's pages that have a visible position.
  const int first_page = max(begin / 32, half * 4), page_end = min((end + 31) / 32, half * 4 + 4);
  const auto head_bytes = static_cast<uint32_t>(head_values * kBytes);
  const auto fetch = [&](const std::byte* base) {
    if (!Staged || set != 0 || first_page >= page_end) return;
    if (lane == 0) barrier_expect(&sh.arrived[half], head_bytes * static_cast<uint32_t>(page_end - first_page));
    __syncwarp();
    const int slot = half * 4 + lane;
    if (lane < 4 && slot >= first_page && slot < page_end) {
      bulk_copy(sh.pages + slot * head_bytes, base + pages[slot] * page_bytes + kv_head * int64_t{head_bytes},
                head_bytes, &sh.arrived[half]);
    }
  };
  const auto arrive = [&](uint32_t parity) {
    if (Staged && first_page < page_end) barrier_wait(&sh.arrived[half], parity);
  };
  fetch(args.keys);

  const float* q = args.q + (int64_t{row} * args.heads + first_head) * dims;
  for (int h = 0; h < kAll; ++h) {
    for (int d = tid; d < dims; d += kThreads) sh.q[d * kAll + h] = q[h * dims + d];
  }
  __syncthreads();

  // Scores of positions half * 128 + i * 32 + lane.
  float score[4][H];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int h = 0; h < H; ++h) score[i][h] = 0.0F;
  }
  if (working && first_page < page_end) {
    const std::byte* keys[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int slot = half * 4 + i;
      // Pages without a visible position: another's memory is read, and the scores are not used.
      const int page = min(max(slot, begin / 32), (end - 1) / 32);
      keys[i] = Staged ? sh.pages + slot * head_bytes + lane * kChunk * kBytes
                       : args.keys + pages[page] * page_bytes + (kv_head * head_values + lane * kChunk) * kBytes;
    }
    arrive(0);
#pragma unroll 2
    for (int d = 0; d < dims; d += kChunk) {
      float k[4][kChunk];
#pragma unroll
      for (int i = 0; i < 4; ++i) Cached<T>::unpack(*reinterpret_cast<const uint4*>(keys[i] + d * 32 * kBytes), k[i]);
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        float qs[H];
        load_heads<H>(sh.q + (d + e) * kAll + my_heads, qs);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int h = 0; h < H; ++h) score[i][h] = __fmaf_rn(qs[h], k[i][e], score[i][h]);
        }
      }
    }
  }
  // Both warps of a half are done with its K.
  if (Staged && Sets == 2) asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
  if (Staged && Sets == 1) __syncwarp();
  fetch(args.values);
  float maximum[H];
#pragma unroll
  for (int h = 0; h < H; ++h) maximum[h] = __int_as_float(0xff800000);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = half * 128 + i * 32 + lane;
    const bool visible = j >= begin && j < end;
#pragma unroll
    for (int h = 0; h < H; ++h) {
      score[i][h] = __fmul_rn(score[i][h], args.scale);
      if (visible) maximum[h] = fmaxf(maximum[h], score[i][h]);
    }
  }
#pragma unroll
  for (int h = 0; h < H; ++h) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(kFullMask, maximum[h], offset));
    if (working && lane == 0) sh.maximum[half * kAll + my_heads + h] = maximum[h];
  }
  __syncthreads();
  if (working) {
#pragma unroll
    for (int h = 0; h < H; ++h) {
      maximum[h] = fmaxf(sh.maximum[my_heads + h], sh.maximum[kAll + my_heads + h]);
      if (half == 0 && lane == 0) sh.maxima[my_heads + h] = maximum[h];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = half * 128 + i * 32 + lane;
      const bool visible = j >= begin && j < end;
#pragma unroll
      for (int h = 0; h < H; ++h) {
        // An invisible position adds +0 to a sum that is never -0.
        sh.p[j * kAll + my_heads + h] = visible ? numerics::exp<Ops>(__fsub_rn(score[i][h], maximum[h])) : 0.0F;
      }
    }
  }
  __syncthreads();
  {  // l = sum16(p): a half-warp per head.
    const int h = tid >> 4;
    float sum = 0.0F;
    if (h < kAll) {
#pragma unroll 4
      for (int j = tid & 15; j < end; j += 16) sum = __fadd_rn(sum, sh.p[j * kAll + h]);
    }
    sum = tree16(sum);
    if (h < kAll && (tid & 15) == 0) sh.sum[h] = sum;
  }

  arrive(1);
  // o: half w takes segments 2w and 2w + 1, their sum is the first level of the tree.
  const bool single = splits == 1;
  float* partial = args.partial + (int64_t{unit} * args.heads + first_head) * (dims + 2);
  for (int dim_base = 0; dim_base < dims; dim_base += 128) {
    const int dim = dim_base + lane * 4;
    const bool inside = dim < dims;
    float o[H][4], first[H][4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int h = 0; h < H; ++h) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (s == 1) first[h][i] = o[h][i];
          o[h][i] = 0.0F;
        }
      }
      const int segment = (half * 2 + s) * 64;
      const int from = max(begin, segment), to = min(end, segment + 64);
      if (inside && working) {
#pragma unroll 4
        for (int j = from; j < to; ++j) {
          const float4 v = Staged ? Cached<T>::load4(sh.pages, j * dims + dim)
                                  : Cached<T>::load4(args.values + pages[j >> 5] * page_bytes,
                                                     kv_head * head_values + int64_t{j & 31} * dims + dim);
          float p[H];
          load_heads<H>(sh.p + j * kAll + my_heads, p);
#pragma unroll
          for (int h = 0; h < H; ++h) {
            o[h][0] = __fmaf_rn(p[h], v.x, o[h][0]);
            o[h][1] = __fmaf_rn(p[h], v.y, o[h][1]);
            o[h][2] = __fmaf_rn(p[h], v.z, o[h][2]);
            o[h][3] = __fmaf_rn(p[h], v.w, o[h][3]);
          }
        }
      }
    }
#pragma unroll
    for (int h = 0; h < H; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[h][i] = __fadd_rn(first[h][i], o[h][i]);
    }
    // The second half hands its half over.
    __syncthreads();
    if (half == 1 && inside && working) {
#pragma unroll
      for (int h = 0; h < H; ++h)
        *reinterpret_cast<float4*>(sh.exchange + (my_heads + h) * 128 + lane * 4) =
            make_float4(o[h][0], o[h][1], o[h][2], o[h][3]);
    }
    __syncthreads();
    if (half == 0 && working) {
#pragma unroll
      for (int h = 0; h < H; ++h) {
        if (inside) {
          const float4 other = *reinterpret_cast<const float4*>(sh.exchange + (my_heads + h) * 128 + lane * 4);
          o[h][0] = __fadd_rn(o[h][0], other.x);
          o[h][1] = __fadd_rn(o[h][1], other.y);
          o[h][2] = __fadd_rn(o[h][2], other.z);
          o[h][3] = __fadd_rn(o[h][3], other.w);
        }
        if (single) {
          const float w = numerics::exp<Ops>(__fsub_rn(sh.maxima[my_heads + h], sh.maxima[my_heads + h]));
          const float inverse = __fdiv_rn(1.0F, __fmul_rn(w, sh.sum[my_heads + h]));
#pragma unroll
          for (int i = 0; i < 4; ++i) o[h][i] = __fmul_rn(__fmul_rn(w, o[h][i]), inverse);
          write_output(args, row, first_head + my_heads + h, dim, o[h], inside);
        } else if (inside) {
          float* place = partial + (my_heads + h) * (dims + 2) + 2 + dim;
#pragma unroll
          for (int i = 0; i < 4; ++i) place[i] = o[h][i];
        }
      }
    }
  }
  if (single) return;
  if (tid < kAll) {
    partial[tid * (dims + 2)] = sh.maxima[tid];
    partial[tid * (dims + 2) + 1] = sh.sum[tid];
  }
  // The last split's block merges.
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (tid == 0) last = atomicAdd(&args.counters[row * args.heads + first_head], 1) == splits - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (tid == 0) args.counters[row * args.heads + first_head] = 0;
  const int64_t split_stride = int64_t{args.heads} * (dims + 2);
  const float* all = args.partial + (int64_t{unit - (split - first_split)} * args.heads + first_head) * (dims + 2);
  for (int i = tid >> 5; i < kAll * ((dims + 127) / 128); i += kThreads / 32) {
    const int h = i % kAll, dim = i / kAll * 128 + lane * 4;
    const bool inside = dim < dims;
    const float* head = all + h * (dims + 2);
    float m = __int_as_float(0xff800000);
    for (int s = 0; s < splits; ++s) m = fmaxf(m, __ldcg(head + s * split_stride));
    float sum = 0.0F, o[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int s = 0; s < splits; ++s) {
      const float* at = head + s * split_stride;
      const float w = numerics::exp<Ops>(__fsub_rn(__ldcg(at), m));
      const float l = __ldcg(at + 1);
      sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float v = inside ? __ldcg(at + 2 + dim + e) : 0.0F;
        o[e] = s == 0 ? __fmul_rn(w, v) : __fmaf_rn(w, v, o[e]);
      }
    }
    const float inverse = __fdiv_rn(1.0F, sum);
#pragma unroll
    for (int e = 0; e < 4; ++e) o[e] = __fmul_rn(o[e], inverse);
    write_output(args, row, first_head + h, dim, o, inside);
  }
}

template <int H, int Sets, CacheType T, bool Staged>
__device__ void attend_all(const AttentionArgs& args, const Shared& sh, int units) {
  const int head_sets = args.heads / (H * Sets);
  const int64_t items = int64_t{units} * head_sets;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    __syncthreads();
    attend<H, Sets, T, Staged>(args, sh, static_cast<int>(item / head_sets),
                               static_cast<int>(item % head_sets) * H * Sets);
  }
}

/// Bytes of shared memory.
struct AttentionLayout {
  int pages, working, exchange, total;
  __host__ __device__ AttentionLayout(int head_dim, int value_bytes, bool staged) {
    pages = staged ? 8 * 32 * head_dim * value_bytes : 0;
    working = 4 * kMaxHeads * (head_dim > kSplit ? head_dim : kSplit);
    exchange = head_dim > 128 ? 4 * kMaxHeads * 128 : 0;
    total = pages + working + exchange + 4 * 4 * kMaxHeads;
  }
};

template <CacheType T, bool Staged>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) attention_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  __shared__ uint64_t arrived[2];
  const AttentionLayout layout(args.head_dim, T == CacheType::f32 ? 4 : 2, Staged);
  Shared sh;
  sh.pages = buffer;
  sh.arrived = arrived;
  sh.q = sh.p = reinterpret_cast<float*>(buffer + layout.pages);
  sh.exchange = layout.exchange > 0 ? reinterpret_cast<float*>(buffer + layout.pages + layout.working) : sh.p;
  sh.maximum = reinterpret_cast<float*>(buffer + layout.pages + layout.working + layout.exchange);
  sh.sum = sh.maximum + 2 * kMaxHeads;
  sh.maxima = sh.sum + kMaxHeads;
  if (threadIdx.x == 0) {
    barrier_init(&arrived[0], 1);
    barrier_init(&arrived[1], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  wait_and_pass_on();
  const int units = args.step.header[kUnits + args.window_index];
  const int group = args.heads / args.kv_heads;
  // As many heads a block as still give every SM a block.
  const int wanted = static_cast<int>(gridDim.x) / kBlocksPerSm;
  const auto enough = [&](int heads) { return group % heads == 0 && units * (args.heads / heads) >= wanted; };
  if (enough(8)) {
    attend_all<4, 2, T, Staged>(args, sh, units);
  } else if (enough(4)) {
    attend_all<2, 2, T, Staged>(args, sh, units);
  } else if (enough(2)) {
    attend_all<1, 2, T, Staged>(args, sh, units);
  } else {
    attend_all<1, 1, T, Staged>(args, sh, units);
  }
}

template <CacheType T>
void launch_typed(const AttentionArgs& args, int sms, cudaStream_t stream) {
  constexpr int kBytes = T == CacheType::f32 ? 4 : 2;
  const AttentionLayout staged(args.head_dim, kBytes, true), in_place(args.head_dim, kBytes, false);
  const int grid = sms * kBlocksPerSm;
  if (staged.total <= 220 << 10) {
    launch("attention", &attention_kernel<T, true>, grid, kThreads, static_cast<size_t>(staged.total), stream, args);
  } else {
    launch("attention", &attention_kernel<T, false>, grid, kThreads, static_cast<size_t>(in_place.total), stream, args);
  }
}

}  // namespace

size_t page_half_bytes(CacheType type, int kv_heads, int head_dim) {
  return size_t{32} * static_cast<size_t>(kv_heads * head_dim) * (type == CacheType::f32 ? 4 : 2);
}

void launch_attention(const AttentionArgs& args, int sms, cudaStream_t stream) {
  switch (args.cache) {
    case CacheType::f32:
      return launch_typed<CacheType::f32>(args, sms, stream);
    case CacheType::f16:
      return launch_typed<CacheType::f16>(args, sms, stream);
    case CacheType::bf16:
      return launch_typed<CacheType::bf16>(args, sms, stream);
  }
}

}  // namespace cohort::cuda
