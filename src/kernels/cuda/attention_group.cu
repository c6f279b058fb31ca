// Attention, rule 7, for heads of 128 dimensions in an f16 or bf16 cache: a block has one KV head of a split for all
// the query heads that share it, and for several rows of one sequence: attention_tile.cu where they are many, else
// here. (Everything else, and decode steps of few rows: attention.cu.)
//
// Scores: a warp has four or eight heads of a row and a lane several positions, so that a value of q that was loaded
// meets several of K. Values: half a warp has a segment of 64 positions, a lane eight dimensions of several heads. K
// and V of the split take turns in the same shared memory.
//
// Decode: a row a block, three blocks of four warps an SM (eight with half of the work each: 50 instead of 46 us at 64
// rows); norm and rope of q and of the new K happen here, half a warp a head, and the new K and V are appended here.
// Else up to four rows a block, two blocks of eight warps.
//
// What bounds decode: issue slots, of which the fma are half; at few rows latency.
#include "kernels/cuda/attention_group.cuh"

namespace cohort::cuda {
namespace {

constexpr unsigned kApart = 1500;  // nanoseconds between the starts of an SM's blocks

template <int Rows>
struct Shape {
  static constexpr int kWarps = Rows == 1 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kPerSm = Rows == 1 ? 3 : 2;
  // Of a warp in the scores. Decode: pages of its own, so that it can ask for their V when it is done.
  static constexpr int kPages = Rows == 1 ? 2 : 4;
  static constexpr int kScoreHeads = Rows == 1 ? kMaxHeads : kQuad;
  static constexpr int kP = kSplitPages * kHeadBytes;
  static constexpr int kQ = kP + (Rows == 1 ? 0 : Rows * kMaxHeads * kSplit * 4);  // a single row: where p is later
  static constexpr int kKeys = kQ + Rows * kMaxHeads * (Rows == 1 ? kSplit : kDims) * 4;
  static constexpr int kSums = kKeys + Rows * kMaxHeads * 4 * 4;
  static constexpr int kLast = kSums + Rows * kMaxHeads * 4;
  static constexpr int kTotal = kLast + Rows * 4;
};

struct Shared {
  std::byte* pages;   // [8][K or V of a page]
  uint64_t* arrived;  // [8]
  float* p;           // [rows][quads][256][4]
  float* q;           // [rows][heads][128]
  int* keys;          // [rows][quads][parts][4] maxima
  float* sum;         // [rows][heads]
  int* last;          // [rows]
};

template <int Warps>
__device__ __forceinline__ void fetch_pages(const AttentionArgs& args, const Shared& sh, const GroupItem& item,
                                            const std::byte* base, int warp) {
  constexpr int kEach = kSplitPages / Warps;
  for (int page = warp * kEach; page < warp * kEach + kEach; ++page) {
    if (!item.has_page(args, page)) continue;
    barrier_expect(&sh.arrived[page], kHeadBytes);
    bulk_copy(sh.pages + page * kHeadBytes,
              base + (int64_t{item.unit[kUnitPages + page]} * args.kv_heads + item.kv_head) * kHeadBytes, kHeadBytes,
              &sh.arrived[page]);
  }
}

/// Decode: K of an item, which is older than the step but for the new position.
template <int Warps>
__device__ __forceinline__ void fetch_keys(const AttentionArgs& args, const Shared& sh, const GroupItem& item) {
  if ((threadIdx.x & 31) != 0) return;
  fence_async();
  fetch_pages<Warps>(args, sh, item, args.keys, static_cast<int>(threadIdx.x >> 5));
}

/// Scores of NP pages, before the scale. keys: the first page, at this lane.
template <CacheType T, int NP, int H, int Pages, int Width>
__device__ __forceinline__ void scores(const std::byte* keys, const float* q, float (&acc)[Pages][Width]) {
#pragma unroll 2
  for (int d = 0; d < kDims; d += 8) {
    float k[NP][8];
#pragma unroll
    for (int p = 0; p < NP; ++p)
      Cached<T>::unpack(*reinterpret_cast<const uint4*>(keys + p * kHeadBytes + d * kPageRows * 2), k[p]);
#pragma unroll
    for (int h = 0; h < H; ++h) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float4 v = *reinterpret_cast<const float4*>(q + h * kDims + d + part * 4);
        const float qs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int p = 0; p < NP; ++p) acc[p][h] = __fmaf_rn(qs[e], k[p][part * 4 + e], acc[p][h]);
        }
      }
    }
  }
}

/// next: the block's next item, whose K is asked for when this one's pages are free (decode); -1: none.
template <CacheType T, int Rows>
__device__ void attend(const AttentionArgs& args, const Shared& sh, const GroupItem& item, int next) {
  using S = Shape<Rows>;
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int l16 = tid & 15, half = tid >> 4;  // half-warp
  const int heads = item.heads, quads = item.quads;
  constexpr int kPages = S::kPages, kScoreHeads = S::kScoreHeads;
  constexpr int kParts = kSplitPages / kPages;  // of the positions of a row
  if (Rows > 1 && lane == 0) fetch_pages<S::kWarps>(args, sh, item, args.keys, warp);

  if constexpr (Rows == 1) {
    // Norm and rope, half a warp a head; then the new K and V, if the new position is in this split.
    const bool fresh = item.position / kSplit == item.split;
    const int at = item.position % kSplit;
    for (int first = 0; first < heads + (fresh ? 2 : 0); first += 2 * S::kWarps) {
      const int task = first + half;
      if (first + (half & ~1) >= heads + (fresh ? 2 : 0)) break;  // of whole warps
      const bool is_q = task < heads, is_k = task == heads;
      const HeadInput& in = is_q ? args.new_q : is_k ? args.new_k : args.new_v;
      float x[8];
      head_values(in, is_q ? item.first_head + task : item.kv_head, item.row, item.position, l16, x);
      if (is_q) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sh.q[task * kDims + l16 + i * 16] = x[i];
      } else if (fresh && task < heads + 2) {
        const int page = at / kPageRows;
        const int64_t base = (int64_t{item.unit[kUnitPages + page]} * args.kv_heads + item.kv_head) * kHeadBytes;
        if (is_k) barrier_wait(&sh.arrived[page], 0);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int d = l16 + i * 16;
          if (is_k) {
            const int key = d / 8 * 8 * kPageRows + at % kPageRows * 8 + d % 8;
            Cached<T>::store(sh.pages + page * kHeadBytes, key, x[i]);
            Cached<T>::store(args.keys + base, key, x[i]);
          } else {
            Cached<T>::store(args.values + base, at % kPageRows * kDims + d, x[i]);
          }
        }
        fence_device();  // V's page is copied below
        asm volatile("fence.proxy.async;" ::: "memory");
      }
    }
  } else {
    for (int i = tid; i < item.rows * heads * (kDims / 4); i += S::kThreads) {
      const int r = i / (heads * (kDims / 4)), at = i - r * heads * (kDims / 4);
      reinterpret_cast<float4*>(sh.q)[i] =
          reinterpret_cast<const float4*>(args.q + (int64_t{item.row + r} * args.heads + item.first_head) * kDims)[at];
    }
  }
  __syncthreads();

  float score[kPages][kScoreHeads];
  const auto visible = [&](int r, int j) { return j >= item.begin(args, r) && j < item.end(r); };
  // The scores of one job, scaled, and their maxima; heads from `quad` on.
  const auto score_job = [&](int r, int quad, int part) {
#pragma unroll
    for (int i = 0; i < kPages * kScoreHeads; ++i) score[i / kScoreHeads][i % kScoreHeads] = 0.0F;
    const int page = part * kPages;
    const int pages = min((item.end(r) + kPageRows - 1) / kPageRows - page, kPages);
    for (int i = 0; i < pages; ++i) {
      if (item.has_page(args, page + i)) barrier_wait(&sh.arrived[page + i], 0);
    }
    // V comes into the L2 cache while the scores are computed; before, it would have delayed K.
    if (Rows == 1 && lane < pages && item.has_page(args, page + lane)) {
      bulk_prefetch(
          args.values + (int64_t{item.unit[kUnitPages + page + lane]} * args.kv_heads + item.kv_head) * kHeadBytes,
          kHeadBytes);
    }
    const std::byte* keys = sh.pages + page * kHeadBytes + lane * 16;
    const float* q = sh.q + (r * heads + quad * kQuad) * kDims;
    if constexpr (Rows == 1) {
      if (pages == 2) {
        heads == kMaxHeads ? scores<T, 2, kMaxHeads>(keys, q, score) : scores<T, 2, kQuad>(keys, q, score);
      } else if (pages == 1) {
        heads == kMaxHeads ? scores<T, 1, kMaxHeads>(keys, q, score) : scores<T, 1, kQuad>(keys, q, score);
      }
    } else {
      if (pages == 4) {
        scores<T, 4, kQuad>(keys, q, score);
      } else if (pages == 3) {
        scores<T, 3, kQuad>(keys, q, score);
      } else if (pages == 2) {
        scores<T, 2, kQuad>(keys, q, score);
      } else if (pages == 1) {
        scores<T, 1, kQuad>(keys, q, score);
      }
    }
#pragma unroll
    for (int h = 0; h < kScoreHeads; ++h) {
      if (h >= heads) break;
      int key = float_key(__int_as_float(0xff800000));
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
        score[p][h] = __fmul_rn(score[p][h], args.scale);
        if (p < pages && visible(r, (page + p) * kPageRows + lane)) key = max(key, float_key(score[p][h]));
      }
      key = __reduce_max_sync(kFullMask, key);
      if (lane == 0) sh.keys[((r * quads + quad + h / kQuad) * kParts + part) * kQuad + h % kQuad] = key;
    }
  };
  const auto maxima = [&](int r, int quad, float(&m)[kQuad]) {
    int4 key = reinterpret_cast<const int4*>(sh.keys)[(r * quads + quad) * kParts];
#pragma unroll
    for (int part = 1; part < kParts; ++part) {
      const int4 other = reinterpret_cast<const int4*>(sh.keys)[(r * quads + quad) * kParts + part];
      key = make_int4(max(key.x, other.x), max(key.y, other.y), max(key.z, other.z), max(key.w, other.w));
    }
    m[0] = key_float(key.x);
    m[1] = key_float(key.y);
    m[2] = key_float(key.z);
    m[3] = key_float(key.w);
  };
  const auto weights = [&](const float* s, const float(&m)[kQuad], bool seen) {
    // An invisible position adds +0 to a sum that is never -0.
    float e[kQuad];
#pragma unroll
    for (int h = 0; h < kQuad; ++h) e[h] = seen ? exp_below(__fsub_rn(s[h], m[h])) : 0.0F;
    return make_float4(e[0], e[1], e[2], e[3]);
  };
  float4* p_rows = reinterpret_cast<float4*>(sh.p);
  const auto fetch_values = [&] {
    if (lane == 0) {
      fence_async();
      fetch_pages<S::kWarps>(args, sh, item, args.values, warp);
    }
  };
  if constexpr (Rows == 1) {
    score_job(0, 0, warp);  // a job a warp; the scores stay in registers
    __syncwarp();
    fetch_values();
    __syncthreads();
#pragma unroll
    for (int quad = 0; quad < kMaxHeads / kQuad; ++quad) {
      if (quad >= quads) break;
      float m[kQuad];
      maxima(0, quad, m);
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
        const int j = (warp * kPages + p) * kPageRows + lane;
        p_rows[quad * kSplit + j] = weights(&score[p][quad * kQuad], m, visible(0, j));
      }
    }
  } else {
    for (int job = warp; job < item.rows * quads * 2; job += S::kWarps) {
      // A warp's second job is in the other half of the positions, of which less may be visible.
      const int r = job / (quads * 2), quad = job % quads, part = (job / quads + job / S::kWarps) & 1;
      score_job(r, quad, part);
#pragma unroll
      for (int p = 0; p < kPages; ++p)
        p_rows[(r * quads + quad) * kSplit + (part * 4 + p) * kPageRows + lane] =
            make_float4(score[p][0], score[p][1], score[p][2], score[p][3]);
    }
    __syncthreads();
    fetch_values();
    for (int i = 0; i < item.rows * quads; ++i) {
      const int r = i / quads;
      float m[kQuad];
      maxima(r, i % quads, m);
      static_assert(S::kThreads == kSplit);
      if (warp * 32 >= item.end(r)) continue;  // nobody reads those
      const float4 v = p_rows[i * kSplit + tid];
      const float s[kQuad] = {v.x, v.y, v.z, v.w};
      p_rows[i * kSplit + tid] = weights(s, m, visible(r, tid));
    }
  }
  __syncthreads();
  for (int first = 0; first < item.rows * heads; first += 2 * S::kWarps) {  // l = sum16(p): half a warp a head
    const int task = min(first + half, item.rows * heads - 1);
    const int r = task / heads, h = task % heads;
    const float* p = sh.p + (r * quads + h / kQuad) * kSplit * kQuad + h % kQuad;
    float sum = 0.0F;
#pragma unroll 4
    for (int i = l16; i < item.end(r); i += 16) sum = __fadd_rn(sum, p[i * kQuad]);
    sum = tree16(sum);
    if (l16 == 0) sh.sum[task] = sum;
  }
  __syncthreads();

  // Values. The upper two segments of a row's four heads wait where their p was. After the exchange half a warp has the
  // sum of two segments for two of the heads.
  constexpr int kMine = kQuad / 2;
  const int first_mine = (half & 1) * kMine;
  float y[kMine][8];  // dimensions 8 * l16 on
  int mine = -1;      // row and quad of the lower segments
  const int pairs = item.rows * quads;
  const auto upper_place = [&](int at, int head) { return p_rows + at * kSplit + 128 + (head * kDims + l16 * 8) / 4; };
  for (int job = warp; job < 2 * pairs; job += S::kWarps) {
    const bool upper = job < pairs;
    const int at = upper ? job : job - pairs, r = at / quads;
    const int segment = (upper ? 2 : 0) + (half & 1);
    for (int page = upper ? 4 : 0; page < (upper ? 8 : 4); ++page) {
      if (item.has_page(args, page)) barrier_wait(&sh.arrived[page], 1);
    }
    const int from = max(item.begin(args, r), segment * 64), to = min(item.end(r), segment * 64 + 64);
    float o[kQuad][8];
#pragma unroll
    for (int i = 0; i < kQuad * 8; ++i) o[i / 8][i % 8] = 0.0F;
    const std::byte* values = sh.pages + l16 * 16;
    const float4* p = p_rows + at * kSplit;
#pragma unroll 4
    for (int i = from; i < to; ++i) {
      float v[8];
      Cached<T>::unpack(*reinterpret_cast<const uint4*>(values + i * (kDims * 2)), v);
      const float4 weight = p[i];
      const float w[kQuad] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
      for (int h = 0; h < kQuad; ++h) {
#pragma unroll
        for (int e = 0; e < 8; ++e) o[h][e] = __fmaf_rn(w[h], v[e], o[h][e]);
      }
    }
    __syncwarp();
    const bool high = (half & 1) != 0;
#pragma unroll
    for (int h = 0; h < kMine; ++h) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float other = __shfl_xor_sync(kFullMask, high ? o[h][e] : o[h + kMine][e], 16);
        y[h][e] = __fadd_rn(high ? o[h + kMine][e] : o[h][e], other);
      }
    }
    if (!upper) {
      mine = at;
    } else {
#pragma unroll
      for (int h = 0; h < kMine; ++h) {
        float4* out = upper_place(at, first_mine + h);
        out[0] = make_float4(y[h][0], y[h][1], y[h][2], y[h][3]);
        out[1] = make_float4(y[h][4], y[h][5], y[h][6], y[h][7]);
      }
    }
  }
  __syncthreads();
  if (Rows == 1 && next >= 0) fetch_keys<S::kWarps>(args, sh, GroupItem(args, next));
  const Partials partials(args, item);
  if (mine >= 0) {
    const int r = mine / quads;
    float m[kQuad];
    maxima(r, mine % quads, m);
#pragma unroll
    for (int h = 0; h < kMine; ++h) {
      const int in_quad = first_mine + h;
      const float4* in = upper_place(mine, in_quad);
      const float4 a = in[0], b = in[1];
      const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) y[h][e] = __fadd_rn(y[h][e], v[e]);
      const int head = mine % quads * kQuad + in_quad;
      const float maximum = in_quad < 2 ? (in_quad == 0 ? m[0] : m[1]) : (in_quad == 2 ? m[2] : m[3]);
      write_split(args, item, partials, r, head, l16, maximum, sh.sum[r * heads + head], y[h], true);
    }
  }
  meet<S::kWarps>(args, item, partials, sh.last);
}

template <CacheType T, int Rows>
__global__ void __launch_bounds__(Shape<Rows>::kThreads, Shape<Rows>::kPerSm)
    attention_group_kernel(const __grid_constant__ AttentionArgs args) {
  using S = Shape<Rows>;
  extern __shared__ __align__(128) std::byte buffer[];
  __shared__ uint64_t arrived[kSplitPages];
  Shared sh;
  sh.pages = buffer;
  sh.arrived = arrived;
  sh.p = reinterpret_cast<float*>(buffer + S::kP);
  sh.q = reinterpret_cast<float*>(buffer + S::kQ);
  sh.keys = reinterpret_cast<int*>(buffer + S::kKeys);
  sh.sum = reinterpret_cast<float*>(buffer + S::kSums);
  sh.last = reinterpret_cast<int*>(buffer + S::kLast);
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < kSplitPages) {
    barrier_init(&arrived[tid], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  // The header and the units are older than the kernel before this one; see wait_and_pass_on.
  const int items = args.step.header[kUnits + args.window_index] * args.kv_heads;
  // Units of more rows, which come first, are launch_attention_tile's.
  int i = static_cast<int>(blockIdx.x);
  if (Rows > 1) i += args.step.header[kTileUnits + args.window_index] * args.kv_heads;
  const int step = static_cast<int>(gridDim.x);
  if (Rows == 1 && i < items) {
    // Blocks of an SM start one after the other, so that one computes while another's pages come, and what the first
    // ones need of the kernel before does not queue behind all pages.
    __nanosleep(static_cast<unsigned>(i / (step / S::kPerSm)) * kApart);
    fetch_keys<S::kWarps>(args, sh, GroupItem(args, i));
  }
  wait_and_pass_on();
  for (bool first = true; i < items; i += step, first = false) {
    if (!first) {
      // A page's barrier has gone through two phases, so their parities start over. What was written here comes before
      // the copies.
      fence_async();
      __syncthreads();
    }
    attend<T, Rows>(args, sh, GroupItem(args, i), i + step < items ? i + step : -1);
  }
}

template <CacheType T>
void launch_typed(const AttentionArgs& args, int sms, cudaStream_t stream) {
  const auto start = [&](auto* kernel, auto shape) {
    using S = decltype(shape);
    launch(kernel, sms * S::kPerSm, S::kThreads, static_cast<size_t>(S::kTotal), stream, args);
  };
  if (args.fused) {
    start(&attention_group_kernel<T, 1>, Shape<1>());
  } else {
    start(&attention_group_kernel<T, kFewRows>, Shape<kFewRows>());
  }
}

}  // namespace

bool attention_groups(const AttentionArgs& args) {
  const int group = args.heads / args.kv_heads;
  return args.head_dim == kDims && args.sinks == nullptr && (group == kQuad || group == kMaxHeads) &&
         half_warp_rope(args.new_q) && half_warp_rope(args.new_k) && half_warp_rope(args.new_v);
}

void launch_attention_group(const AttentionArgs& args, int sms, cudaStream_t stream) {
  if (args.cache == CacheType::bf16) {
    launch_typed<CacheType::bf16>(args, sms, stream);
  } else {
    launch_typed<CacheType::f16>(args, sms, stream);
  }
}

}  // namespace cohort::cuda
