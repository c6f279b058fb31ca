// Attention, rule 7, of decode steps of one row and at most four splits (more rows were slower), for heads of 128
// dimensions in an f16 or bf16 cache without a window: made for latency. A cluster of four blocks has one row and up to
// eight heads of one KV head; a block takes a split. K goes straight into registers (a warp has a page, a lane a
// position) and V into shared memory before the kernel before this one has finished; norm and rope of q and of the new
// K happen in half-warps side by side. The blocks leave each split's result in their shared memory, and after one
// barrier of the cluster each block merges 32 dimensions of every head.
//
// What bounds it: latency of its phases (attention.cu: the new K and V one after the other cost 2.5 us, counters and
// results in device memory 3.5).
#include "kernels/cuda/attention.cuh"

namespace cohort::cuda {
namespace {

constexpr int kThreads = 256, kWarps = 8;
constexpr int kRanks = 4;  // blocks of a cluster
constexpr int kDims = kHalfWarpDims;
constexpr int kMaxHeads = 8;
constexpr int kHeadBytes = kPageRows * kDims * 2;  // K or V of one head of one page
constexpr int kPartial = kDims + kPartialHead;     // floats of a split's result for one head
// Results that a block keeps: of each of its splits, one a head.
constexpr int kSlots = 48;
static_assert(kDims / 32 == kRanks);

struct Shared {
  std::byte* values;   // [8][V of a page], then [4][heads][128] segment sums
  float* q;            // [heads][128]
  float* p;            // [256][heads]
  float* partial;      // [splits of this block][heads][kPartial]
  float* fresh;        // [128] the new V, rounded
  std::byte* fresh_k;  // [128] the new K as it is in the cache
  int* keys;           // [heads][8] maxima
  uint64_t* arrived;
};
constexpr int kQPlace = kSplitPages * kHeadBytes;
constexpr int kPPlace = kQPlace + kMaxHeads * kDims * 4;
constexpr int kPartialPlace = kPPlace + kSplit * kMaxHeads * 4;
constexpr int kFreshPlace = kPartialPlace + kSlots * kPartial * 4;
constexpr int kKeysPlace = kFreshPlace + kDims * 4 + kDims * 2;
constexpr int kTotal = kKeysPlace + kMaxHeads * kWarps * 4;

__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// A float of another block of the cluster.
__device__ __forceinline__ float load_from(const float* local, int rank) {
  uint32_t address;
  float x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

template <CacheType T, int H>
__device__ void attend(const AttentionArgs& args, const Shared& sh, int rows, int rank) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int l16 = tid & 15, half = tid >> 4;
  const int sets = args.heads / H, items = rows * sets, group = args.heads / args.kv_heads;
  const int clusters = static_cast<int>(gridDim.x) / kRanks;
  bool waited = false;
  uint32_t parity = 0;
  for (int item = static_cast<int>(blockIdx.x) / kRanks; item < items; item += clusters) {
    const int row = item / sets, first_head = item % sets * H, kv_head = first_head / group;
    const int position = args.step.positions[row];
    const int32_t* pages = args.step.pages + args.step.page_begin[row];
    const int splits = position / kSplit + 1;
    for (int split = rank; split < splits; split += kRanks) {
      const int end = min(position + 1 - split * kSplit, kSplit);
      const bool fresh = split == splits - 1;
      const int at = position % kSplit;
      const auto head_of = [&](int page) {
        return (int64_t{pages[split * kSplitPages + page]} * args.kv_heads + kv_head) * kHeadBytes;
      };
      uint4 k[kDims / 8];
      const bool has_page = warp * kPageRows < end;
      if (warp == 0) {
        const int count = (end + kPageRows - 1) / kPageRows;
        if (lane == 0) {
          fence_async();  // what was here was read, or written as sums
          barrier_expect(sh.arrived, static_cast<uint32_t>(count * kHeadBytes));
        }
        __syncwarp();
        if (lane < count) bulk_copy(sh.values + lane * kHeadBytes, args.values + head_of(lane), kHeadBytes, sh.arrived);
      }
      if (has_page) {
        const std::byte* from = args.keys + head_of(warp) + lane * 16;
#pragma unroll
        for (int c = 0; c < kDims / 8; ++c) k[c] = __ldcg(reinterpret_cast<const uint4*>(from + c * kPageRows * 16));
      }
      if (!waited) {
        stamp(args.step, 1);
        wait_and_pass_on();
        stamp(args.step, 2);
        waited = true;
      }
      // Of this item's first split: q. Of its last: the new K and V.
      const bool need_q = split == rank;
      if (half < H + 2 && (half < H ? need_q : fresh)) {
        const bool is_q = half < H, is_k = half == H;
        float x[8];
        head_values(is_q   ? args.new_q
                    : is_k ? args.new_k
                           : args.new_v,
                    is_q ? first_head + half : kv_head, row, position, l16, x);
        const int64_t page = is_q ? 0 : head_of(at / kPageRows);
        const bool owner = first_head % group == 0;  // the first heads of the group append for all
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int d = l16 + i * 16;
          if (is_q) {
            sh.q[half * kDims + d] = x[i];
          } else if (is_k) {
            Cached<T>::store(sh.fresh_k, d, x[i]);
            if (owner) Cached<T>::store(args.keys + page, d / 8 * 8 * kPageRows + at % kPageRows * 8 + d % 8, x[i]);
          } else {
            sh.fresh[d] = Cached<T>::rounded(x[i]);
            if (owner) Cached<T>::store(args.values + page, at % kPageRows * kDims + d, x[i]);
          }
        }
      }
      stamp(args.step, 3);
      __syncthreads();

      float score[H];
#pragma unroll
      for (int h = 0; h < H; ++h) score[h] = 0.0F;
      if (has_page) {
        if (fresh && tid == at) {
#pragma unroll
          for (int c = 0; c < kDims / 8; ++c) k[c] = reinterpret_cast<const uint4*>(sh.fresh_k)[c];
        }
#pragma unroll
        for (int c = 0; c < kDims / 8; ++c) {
          float values[8];
          Cached<T>::unpack(k[c], values);
#pragma unroll
          for (int h = 0; h < H; ++h) {
            float q[8];
            load_heads<8>(sh.q + h * kDims + c * 8, q);
#pragma unroll
            for (int e = 0; e < 8; ++e) score[h] = __fmaf_rn(q[e], values[e], score[h]);
          }
        }
      }
      const bool visible = tid < end;
#pragma unroll
      for (int h = 0; h < H; ++h) {
        score[h] = __fmul_rn(score[h], args.scale);
        const int key = __reduce_max_sync(kFullMask, float_key(visible ? score[h] : __int_as_float(0xff800000)));
        if (lane == 0) sh.keys[h * kWarps + warp] = key;
      }
      stamp(args.step, 4);
      __syncthreads();
      float maximum[H];
#pragma unroll
      for (int h = 0; h < H; ++h) {
        const int4* keys = reinterpret_cast<const int4*>(sh.keys + h * kWarps);
        const int4 a = keys[0], b = keys[1];
        maximum[h] = key_float(max(max(max(a.x, a.y), max(a.z, a.w)), max(max(b.x, b.y), max(b.z, b.w))));
        // An invisible position adds +0 to a sum that is never -0.
        sh.p[tid * H + h] = visible ? numerics::exp<Ops>(__fsub_rn(score[h], maximum[h])) : 0.0F;
      }
      __syncthreads();
      stamp(args.step, 5);
      float* partial = sh.partial + split / kRanks * H * kPartial;
      if (warp < H) {  // l = sum16(p): a warp a head, both halves the same
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < kSplit / 16; ++i) sum = __fadd_rn(sum, sh.p[(l16 + i * 16) * H + warp]);
        sum = tree16(sum);
        float mine = 0.0F;
#pragma unroll
        for (int h = 0; h < H; ++h) mine = warp == h ? maximum[h] : mine;
        if (lane == 0) *reinterpret_cast<float2*>(partial + warp * kPartial) = make_float2(mine, sum);
      }

      // Values: two warps a segment of 64 positions, a lane two dimensions.
      const int segment = warp >> 1, dim = (warp & 1) * 64 + lane * 2;
      const int from = segment * 64;
      int to = min(end, from + 64);
      const bool mine_fresh = fresh && at / 64 == segment;
      if (mine_fresh) --to;
      float o[H][2];
#pragma unroll
      for (int h = 0; h < H; ++h) o[h][0] = o[h][1] = 0.0F;
      const auto add = [&](int i, float2 v) {
        float p[H];
        load_heads<H>(sh.p + i * H, p);
#pragma unroll
        for (int h = 0; h < H; ++h) {
          o[h][0] = __fmaf_rn(p[h], v.x, o[h][0]);
          o[h][1] = __fmaf_rn(p[h], v.y, o[h][1]);
        }
      };
      barrier_wait(sh.arrived, parity);
      parity ^= 1;
      stamp(args.step, 6);
      constexpr int kAhead = H > 4 ? 4 : 8;
      int i = from;
      for (; i + kAhead <= to; i += kAhead) {
        float2 v[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) v[u] = Cached<T>::load2(sh.values, (i + u) * kDims + dim);
#pragma unroll
        for (int u = 0; u < kAhead; ++u) add(i + u, v[u]);
      }
#pragma unroll 1
      for (; i < to; ++i) add(i, Cached<T>::load2(sh.values, i * kDims + dim));
      if (mine_fresh) add(at, *reinterpret_cast<const float2*>(sh.fresh + dim));
      __syncthreads();
      stamp(args.step, 7);
      float* exchange = reinterpret_cast<float*>(sh.values);
#pragma unroll
      for (int h = 0; h < H; ++h)
        *reinterpret_cast<float2*>(exchange + (segment * H + h) * kDims + dim) = make_float2(o[h][0], o[h][1]);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < (H * kDims + kThreads - 1) / kThreads; ++j) {
        const int n = tid + j * kThreads;
        if (n >= H * kDims) break;
        const float* e = exchange + n;
        partial[(n >> 7) * kPartial + kPartialHead + (n & 127)] =
            __fadd_rn(__fadd_rn(e[0], e[H * kDims]), __fadd_rn(e[2 * H * kDims], e[3 * H * kDims]));
      }
      if (split + kRanks < splits) __syncthreads();
    }
    if (!waited) {
      wait_and_pass_on();
      waited = true;
    }
    stamp(args.step, 8);
    cluster_barrier();
    stamp(args.step, 9);
    if (warp < H) {
      // A warp a head, a lane a dimension of this block's 32; before that a lane a split.
      const float* mine = sh.partial + warp * kPartial;
      constexpr int kStride = H * kPartial;
      const int last = splits - 1, own = min(lane, last);
      constexpr int kAhead = 4;
      float ahead[kAhead];
      const auto value_of = [&](int s) {
        return load_from(mine + s / kRanks * kStride + kPartialHead + rank * 32 + lane, s % kRanks);
      };
      const float m_own = load_from(mine + own / kRanks * kStride, own % kRanks);
      const float l_own = load_from(mine + own / kRanks * kStride + 1, own % kRanks);
#pragma unroll
      for (int s = 0; s < kAhead; ++s) ahead[s] = value_of(min(s, last));
      const float m = key_float(__reduce_max_sync(kFullMask, float_key(m_own)));
      const float weight = numerics::exp<Ops>(__fsub_rn(m_own, m));
      float sum = 0.0F, o = 0.0F;
      const auto merge = [&](int s, float v) {
        const float w = __shfl_sync(kFullMask, weight, s), l = __shfl_sync(kFullMask, l_own, s);
        sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
        o = s == 0 ? __fmul_rn(w, v) : __fmaf_rn(w, v, o);
      };
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (s < splits) merge(s, ahead[s]);
      }
#pragma unroll 1
      for (int s = kAhead; s < splits; ++s) merge(s, value_of(s));
      const float y = __fmul_rn(o, __fdiv_rn(1.0F, sum));
      const int head = first_head + warp, dim = head * kDims + rank * 32;
      if (args.out.data != nullptr) args.out.data[int64_t{row} * args.out.stride + dim + lane] = y;
      if (args.quantised.data != nullptr) quantise_block(y, lane, args.quantised, row, dim / 32);
    }
    stamp(args.step, 10);
    cluster_barrier();  // nobody leaves or goes on while others read here
  }
  if (!waited) wait_and_pass_on();
}

template <CacheType T>
__global__ void __launch_bounds__(kThreads, 2) attention_few_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  __shared__ uint64_t arrived;
  stamp(args.step, 0);
  Shared sh;
  sh.values = buffer;
  sh.q = reinterpret_cast<float*>(buffer + kQPlace);
  sh.p = reinterpret_cast<float*>(buffer + kPPlace);
  sh.partial = reinterpret_cast<float*>(buffer + kPartialPlace);
  sh.fresh = reinterpret_cast<float*>(buffer + kFreshPlace);
  sh.fresh_k = buffer + kFreshPlace + kDims * 4;
  sh.keys = reinterpret_cast<int*>(buffer + kKeysPlace);
  sh.arrived = &arrived;
  if (threadIdx.x == 0) {
    barrier_init(&arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // The header and the step's tables are older than the kernel before this one; see wait_and_pass_on.
  const int rows = args.step.header[kRows], rank = static_cast<int>(blockIdx.x) % kRanks;
  const int group = args.heads / args.kv_heads, clusters = static_cast<int>(gridDim.x) / kRanks;
  // As few heads a cluster as the grid takes in one round.
  const auto fits = [&](int heads) { return group % heads == 0 && rows * (args.heads / heads) <= clusters; };
  if (fits(1) || group % 2 != 0) {
    attend<T, 1>(args, sh, rows, rank);
  } else if (fits(2) || group % 4 != 0) {
    attend<T, 2>(args, sh, rows, rank);
  } else if (fits(4) || group % 8 != 0) {
    attend<T, 4>(args, sh, rows, rank);
  } else {
    attend<T, 8>(args, sh, rows, rank);
  }
}

}  // namespace

bool attention_few_fits(const AttentionArgs& args) {
  return args.cache != CacheType::f32 && args.head_dim == kDims && args.window == 0 && args.sinks == nullptr &&
         half_warp_rope(args.new_q) && half_warp_rope(args.new_k) && half_warp_rope(args.new_v);
}

void launch_attention_few(const AttentionArgs& args, int sms, cudaStream_t stream) {
  const int grid = sms / kRanks * kRanks;
  const auto start = [&](auto* kernel) {
    launch_clusters(kernel, grid, kThreads, static_cast<size_t>(kTotal), kRanks, stream, args);
  };
  if (args.cache == CacheType::bf16) {
    start(&attention_few_kernel<CacheType::bf16>);
  } else {
    start(&attention_few_kernel<CacheType::f16>);
  }
}

}  // namespace cohort::cuda
