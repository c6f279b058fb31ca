// Attention, rule 7, for every row of a step: one block of eight warps per (row, split of 256 positions, up to eight
// query heads of one KV head). The same arithmetic for decode, prefill and window rows.
//
// A warp has one page of 32 positions, a lane one position: it sums the scores of all heads over the dimensions in
// order. K of a page comes as one bulk copy; when its warp has the scores, V follows into the same shared memory while
// the softmax runs. Values: two warps have a segment of 64 positions, a lane two dimensions. The last block of a (row,
// heads) merges the splits and quantises. Heads too large for shared memory are read from device memory in place.
//
// Decode (every sequence has one row): q's norm and rope, and those of the new K, happen here, and the new K and V are
// appended here; pages older than the step are fetched before the kernel before this one has finished.
//
// What bounds it: issue slots (per position and dimension a fourth of a shared-memory load beside the fma of each
// head) at many rows; latency at few, where heads are spread over more blocks instead.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/units.h"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = 8;  // pages of a split
constexpr int kMaxHeads = 8;
// 64 KB of K or V each at 128 dimensions: three blocks fit (15 instead of 21 us at 4 rows).
constexpr int kBlocksPerSm = 3;

struct Shared {
  std::byte* pages;   // [8] one head of a page each, K then V; null: read in place
  uint64_t* arrived;  // [8] a page's copies
  float* q;           // [heads][head_dim]
  float* p;           // [256][heads], where q was
  float* fresh;       // [2][head_dim] the new K and V
  float* exchange;    // [4][heads][128] segment sums; where the pages were if one pass over dimensions does
  int* keys;          // [heads][8] maxima in an order-preserving form
  float* sum;         // [heads]
};

/// Writes one value of a head's output; a warp has 32 neighbours.
__device__ __forceinline__ void write_output(const AttentionArgs& args, int row, int head, int dim, float o,
                                             bool inside) {
  if (args.out.data != nullptr && inside)
    args.out.data[int64_t{row} * args.out.stride + head * args.head_dim + dim] = o;
  if (args.quantised.data != nullptr && inside)  // whole blocks: the warp agrees
    quantise_block(o, static_cast<int>(threadIdx.x & 31), args.quantised, row, (head * args.head_dim + dim) / 32);
}

/// What a block works on.
struct Item {
  const int32_t* unit;
  int first_head, kv_head;
  int row, split, position;
  int begin, end;           // visible positions of the split
  int first_split, splits;  // of all that the row sees
  __device__ Item(const AttentionArgs& args, int index, int first) : first_head(first) {
    unit = args.step.units[args.window_index] + int64_t{index} * kUnitWords;
    kv_head = first_head / (args.heads / args.kv_heads);
    row = unit[kUnitRow];
    split = unit[kUnitSplit];
    position = unit[kUnitPosition];
    const int first_visible = args.window > 0 ? max(0, position + 1 - args.window) : 0;
    const int stop = position + 1 + unit_ahead(unit[kUnitRows]);
    begin = max(first_visible - split * kSplit, 0);
    end = min(stop - split * kSplit, kSplit);
    first_split = first_visible / kSplit;
    splits = (stop - 1) / kSplit - first_split + 1;
  }
};

template <CacheType T>
__device__ __forceinline__ void fetch_page(const AttentionArgs& args, const Shared& sh, const Item& item,
                                           const std::byte* base, int page) {
  constexpr int kBytes = T == CacheType::f32 ? 4 : 2;
  const auto head_bytes = static_cast<uint32_t>(32 * args.head_dim * kBytes);
  barrier_expect(&sh.arrived[page], head_bytes);
  bulk_copy(sh.pages + page * head_bytes,
            base + (int64_t{item.unit[kUnitPages + page]} * args.kv_heads + item.kv_head) * head_bytes, head_bytes,
            &sh.arrived[page]);
}

/// H heads from item.first_head on. fetched: K was asked for already.
template <int H, CacheType T, bool Staged>
__device__ void attend(const AttentionArgs& args, const Shared& sh, const Item& item, bool fetched) {
  constexpr int kChunk = Cached<T>::kChunk;
  constexpr int kBytes = T == CacheType::f32 ? 4 : 2;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int dims = args.head_dim;
  const int64_t head_values = int64_t{dims} * 32;  // of one KV head in one page
  const auto head_bytes = static_cast<int>(head_values * kBytes);
  stamp(args.step, 2);
  const int begin = item.begin, end = item.end;
  const bool has_page = warp * 32 < end && warp * 32 + 32 > begin;
  if (Staged && !fetched && has_page && lane == 0) fetch_page<T>(args, sh, item, args.keys, warp);

  // The new position is this split's last one.
  const bool fresh = args.fused && item.position / kSplit == item.split;
  const int at = item.position % kSplit;
  if (args.fused) {
    if (warp < H) head_row(args.new_q, item.first_head + warp, dims, item.row, item.position, lane, sh.q + warp * dims);
    if (fresh && warp == at / 32) {
      float* k = sh.fresh;
      float* v = sh.fresh + dims;
      head_row(args.new_k, item.kv_head, dims, item.row, item.position, lane, k);
      head_row(args.new_v, item.kv_head, dims, item.row, item.position, lane, v);
      // The first heads of the group append for all.
      const bool owner = item.first_head % (args.heads / args.kv_heads) == 0;
      const int64_t page = (int64_t{item.unit[kUnitPages + warp]} * args.kv_heads + item.kv_head) * head_values;
      barrier_wait(&sh.arrived[warp], 0);
      for (int i = lane; i < dims; i += 32) {
        const int key = i / kChunk * kChunk * 32 + at % 32 * kChunk + i % kChunk;
        const float x = k[i], y = v[i];
        Cached<T>::store(sh.pages + warp * head_bytes, key, x);
        if (owner) {
          Cached<T>::store(args.keys, page + key, x);
          Cached<T>::store(args.values, page + at % 32 * dims + i, y);
        }
        v[i] = Cached<T>::rounded(y);
      }
      __syncwarp();
    }
  } else {
    const float* q = args.q + (int64_t{item.row} * args.heads + item.first_head) * dims;
    for (int i = tid; i < H * dims; i += kThreads) sh.q[i] = q[i];
  }
  stamp(args.step, 3);
  __syncthreads();
  stamp(args.step, 4);

  float score[H];
#pragma unroll
  for (int h = 0; h < H; ++h) score[h] = 0.0F;
  if (has_page) {
    const std::byte* keys = sh.pages + warp * head_bytes;
    if (Staged) {
      barrier_wait(&sh.arrived[warp], 0);
    } else {
      keys = args.keys + (int64_t{item.unit[kUnitPages + warp]} * args.kv_heads + item.kv_head) * head_bytes;
    }
    keys += lane * kChunk * kBytes;
#pragma unroll 2
    for (int d = 0; d < dims; d += kChunk) {
      float k[kChunk];
      Cached<T>::unpack(*reinterpret_cast<const uint4*>(keys + d * 32 * kBytes), k);
#pragma unroll
      for (int h = 0; h < H; ++h) {
        float qs[kChunk];
        load_heads<kChunk>(sh.q + h * dims + d, qs);
#pragma unroll
        for (int e = 0; e < kChunk; ++e) score[h] = __fmaf_rn(qs[e], k[e], score[h]);
      }
    }
    if (Staged) {
      __syncwarp();
      if (lane == 0) {
        fence_async();
        fetch_page<T>(args, sh, item, args.values, warp);
      }
    }
  }
  stamp(args.step, 5);
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
  stamp(args.step, 6);
  if (warp < H) {  // l = sum16(p): a warp a head, both halves the same
    float sum = 0.0F;
#pragma unroll 4
    for (int i = lane & 15; i < end; i += 16) sum = __fadd_rn(sum, sh.p[i * H + warp]);
    sum = tree16(sum);
    if (lane == 0) sh.sum[warp] = sum;
  }

  const int group_units = item.splits;
  const bool single = group_units == 1;
  const int64_t split_stride = int64_t{args.heads} * (dims + kPartialHead);
  float* all = args.partial + (int64_t{item.unit[kUnitPartial]} * args.heads + item.first_head) * (dims + kPartialHead);
  float* partial = all + (item.split - item.first_split) * split_stride;
  const int segment = warp >> 1;
  const int from = max(begin, segment * 64);
  int to = min(end, segment * 64 + 64);
  if (Staged) {
    for (int page = segment * 2; page < segment * 2 + 2; ++page) {
      if (page * 32 < end && page * 32 + 32 > begin) barrier_wait(&sh.arrived[page], 1);
    }
  }
  stamp(args.step, 7);
  const bool mine_fresh = fresh && at / 64 == segment;
  if (mine_fresh) --to;
  for (int dim_base = 0; dim_base < dims; dim_base += 128) {
    const int dim = dim_base + (warp & 1) * 64 + lane * 2;
    float o[H][2];
#pragma unroll
    for (int h = 0; h < H; ++h) o[h][0] = o[h][1] = 0.0F;
    if (dim < dims) {
      const auto add = [&](int i, float2 v) {
        float p[H];
        load_heads<H>(sh.p + i * H, p);
#pragma unroll
        for (int h = 0; h < H; ++h) {
          o[h][0] = __fmaf_rn(p[h], v.x, o[h][0]);
          o[h][1] = __fmaf_rn(p[h], v.y, o[h][1]);
        }
      };
#pragma unroll 4
      for (int i = from; i < to; ++i) {
        if (Staged) {
          add(i, Cached<T>::load2(sh.pages, i * dims + dim));
        } else {
          const int64_t page = int64_t{item.unit[kUnitPages + (i >> 5)]} * args.kv_heads + item.kv_head;
          add(i, Cached<T>::load2(args.values + page * head_bytes, int64_t{i & 31} * dims + dim));
        }
      }
      if (mine_fresh) add(at, *reinterpret_cast<const float2*>(sh.fresh + dims + dim));
    }
    stamp(args.step, 8);
    __syncthreads();  // the exchange may lie where the pages are
    if (dim < dims) {
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
      if (single) {
        const float own = key_float(__reduce_max_sync(kFullMask, sh.keys[h * kWarps + (lane & 7)]));
        const float m = with_sink(args, item.first_head + h, own);
        const float w = numerics::exp<Ops>(__fsub_rn(own, m));
        const float inverse = __fdiv_rn(1.0F, add_sink(args, item.first_head + h, m, __fmul_rn(w, sh.sum[h])));
        write_output(args, item.row, item.first_head + h, d, __fmul_rn(__fmul_rn(w, y), inverse), inside);
      } else if (inside) {
        partial[h * (dims + kPartialHead) + kPartialHead + d] = y;
      }
    }
  }
  stamp(args.step, 9);
  if (single) return;
  if (warp < H) {
    const int key = __reduce_max_sync(kFullMask, sh.keys[warp * kWarps + (lane & 7)]);
    if (lane == 0) {
      partial[warp * (dims + kPartialHead)] = key_float(key);
      partial[warp * (dims + kPartialHead) + 1] = sh.sum[warp];
    }
  }
  // The last split's block merges.
  __shared__ int last;
  __syncthreads();
  if (tid == 0) {  // one thread's fence serves the block: the barrier is before it
    int32_t* counter = &args.counters[item.row * args.heads + item.first_head];
    __threadfence();
    last = atomicAdd(counter, 1) == group_units - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  stamp(args.step, 10);
  if (!last) return;
  if (warp >= H) return;
  // A warp a head. The weights of 32 splits at a time, a lane each; then every lane's dimensions. What a few splits
  // need is asked for at once, before the maximum is known.
  const float* head = all + warp * (dims + kPartialHead);
  constexpr int kAhead = 4;
  float ahead[kAhead][4];
  const auto value_of = [&](int s, int d) {
    return d < dims ? __ldcg(head + s * split_stride + kPartialHead + d) : 0.0F;
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
#pragma unroll
    for (int e = 0; e < 4; ++e) ahead[s][e] = value_of(min(s, group_units - 1), e * 32 + lane);
  }
  float2 mine = __ldcg(reinterpret_cast<const float2*>(head + min(lane, group_units - 1) * split_stride));
  float m = mine.x;
  for (int s = lane + 32; s < group_units; s += 32) m = fmaxf(m, __ldcg(head + s * split_stride));
  m = with_sink(args, item.first_head + warp, key_float(__reduce_max_sync(kFullMask, float_key(m))));
  for (int dim_base = 0; dim_base < dims; dim_base += 128) {
    float sum = 0.0F, o[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int first = 0; first < group_units; first += 32) {
      const int count = min(32, group_units - first);
      if (group_units > 32)
        mine = __ldcg(reinterpret_cast<const float2*>(head + (first + min(lane, count - 1)) * split_stride));
      const float my_w = numerics::exp<Ops>(__fsub_rn(mine.x, m));
      const auto add = [&](int s, const float(&v)[4]) {
        const float w = __shfl_sync(kFullMask, my_w, s), l = __shfl_sync(kFullMask, mine.y, s);
        const bool start = first + s == 0;
        sum = start ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
#pragma unroll
        for (int e = 0; e < 4; ++e) o[e] = start ? __fmul_rn(w, v[e]) : __fmaf_rn(w, v[e], o[e]);
      };
      int s = 0;
      if (first == 0 && dim_base == 0) {
#pragma unroll
        for (; s < kAhead; ++s) {
          if (s < count) add(s, ahead[s]);
        }
      }
#pragma unroll 1
      for (; s < count; ++s) {
        float v[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = value_of(first + s, dim_base + e * 32 + lane);
        add(s, v);
      }
    }
    const float inverse = __fdiv_rn(1.0F, add_sink(args, item.first_head + warp, m, sum));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int d = dim_base + e * 32 + lane;
      write_output(args, item.row, item.first_head + warp, d, __fmul_rn(o[e], inverse), d < dims);
    }
  }
  stamp(args.step, 11);
}

template <int H, CacheType T, bool Staged>
__device__ void attend_all(const AttentionArgs& args, const Shared& sh, int units) {
  const int head_sets = args.heads / H;
  const int items = units * head_sets;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  bool waited = false;
  for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) {
    const Item item(args, i / head_sets, i % head_sets * H);
    bool fetched = false;
    if (waited) {
      // A page's barrier has gone through two phases, so their parities start over. What was written here comes before
      // the copies.
      fence_async();
      __syncthreads();
    } else {
      if (Staged && args.fused && warp * 32 < item.end && warp * 32 + 32 > item.begin) {
        if ((threadIdx.x & 31) == 0) fetch_page<T>(args, sh, item, args.keys, warp);
        fetched = true;
      }
      stamp(args.step, 1);
      wait_and_pass_on();
      waited = true;
    }
    attend<H, T, Staged>(args, sh, item, fetched);
  }
  if (!waited) wait_and_pass_on();
}

/// Bytes of shared memory.
struct AttentionLayout {
  int pages, working, fresh, exchange, total;
  __host__ __device__ AttentionLayout(int head_dim, int value_bytes, bool staged) {
    pages = staged ? 8 * 32 * head_dim * value_bytes : 0;
    working = 4 * kMaxHeads * (head_dim > kSplit ? head_dim : kSplit);
    fresh = 4 * 2 * head_dim;
    const int needed = 4 * 4 * kMaxHeads * 128;
    exchange = head_dim > 128 || pages < needed ? needed : 0;
    total = pages + working + fresh + exchange + 4 * kMaxHeads * (kWarps + 1);
  }
};

template <CacheType T, bool Staged>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) attention_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  __shared__ uint64_t arrived[kWarps];
  stamp(args.step, 0);
  const AttentionLayout layout(args.head_dim, T == CacheType::f32 ? 4 : 2, Staged);
  Shared sh;
  sh.pages = buffer;
  sh.arrived = arrived;
  sh.q = sh.p = reinterpret_cast<float*>(buffer + layout.pages);
  sh.fresh = reinterpret_cast<float*>(buffer + layout.pages + layout.working);
  std::byte* rest = buffer + layout.pages + layout.working + layout.fresh;
  sh.exchange = layout.exchange > 0 ? reinterpret_cast<float*>(rest) : reinterpret_cast<float*>(buffer);
  sh.keys = reinterpret_cast<int*>(rest + layout.exchange);
  sh.sum = reinterpret_cast<float*>(sh.keys + kMaxHeads * kWarps);
  if (threadIdx.x < kWarps) {
    barrier_init(&arrived[threadIdx.x], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // The header and the units are older than the kernel before this one; see wait_and_pass_on.
  const int units = args.step.header[kUnits + args.window_index];
  const int group = args.heads / args.kv_heads;
  // As few heads a block as the grid takes in one round, so that no round is nearly empty; else as many as possible.
  const auto fits = [&](int heads) {
    return group % heads == 0 && units * (args.heads / heads) <= static_cast<int>(gridDim.x);
  };
  const int most = group % 8 == 0 ? 8 : group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
  const int heads = fits(1) ? 1 : fits(2) ? 2 : fits(4) ? 4 : most;
  if (heads == 8) {
    attend_all<8, T, Staged>(args, sh, units);
  } else if (heads == 4) {
    attend_all<4, T, Staged>(args, sh, units);
  } else if (heads == 2) {
    attend_all<2, T, Staged>(args, sh, units);
  } else {
    attend_all<1, T, Staged>(args, sh, units);
  }
}

template <CacheType T>
void launch_typed(const AttentionArgs& args, int sms, cudaStream_t stream) {
  constexpr int kBytes = T == CacheType::f32 ? 4 : 2;
  const AttentionLayout staged(args.head_dim, kBytes, true), in_place(args.head_dim, kBytes, false);
  const auto start = [&](auto* kernel, int bytes) {
    launch(kernel, sms * kBlocksPerSm, kThreads, static_cast<size_t>(bytes), stream, args);
  };
  if (staged.total > 220 << 10) return start(&attention_kernel<T, false>, in_place.total);
  start(&attention_kernel<T, true>, staged.total);
}

}  // namespace

bool attention_fuses(CacheType type, int head_dim) {
  if (type == CacheType::q8_0) return false;
  return AttentionLayout(head_dim, type == CacheType::f32 ? 4 : 2, true).total <= 220 << 10;
}

size_t page_half_bytes(CacheType type, int kv_heads, int head_dim) {
  if (type == CacheType::q8_0) return scaled_page_half_bytes(kv_heads, head_dim);
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
    case CacheType::q8_0:
      return launch_attention_q8(args, sms, stream);
  }
}

}  // namespace cohort::cuda
