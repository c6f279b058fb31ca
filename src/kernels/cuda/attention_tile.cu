// Attention of many rows: up to 64 pairs of a row and a head (m below) that share a KV head, by a split of 256
// positions, in two matrix products whose operands lie as floats in shared memory, so that a thread loads 16 values for
// 64 fma (scores) or 12 for 32 (values).
//
// Scores: a warp has one page and all m; its lanes turn 16 dimensions of the page at a time into floats, of which a
// lane takes 8 m by 8 positions, so all scores of the split stay in registers until their maximum is known. Values: the
// block converts V page by page; a thread has 4 m by 8 dimensions.
//
// Of the lanes of a warp, neighbours read one operand at the same addresses and every second pair of lanes the other
// one: such reads of 16 bytes a lane take one pass over shared memory or two instead of four.
#include "kernels/cuda/attention_group.cuh"

namespace cohort::cuda {
namespace {

constexpr int kTileThreads = 256, kTileWarps = kTileThreads / 32;
constexpr int kTileM = 64;
constexpr int kTileGap = kTileM + 4;  // floats between positions of p: writes of a warp meet different banks
static_assert(kTileWarps == kSplitPages);

/// How it lies in shared memory (bytes). p takes the place of q and the pages of K; the sums of the lower two segments
/// take the place of the p that are done with.
struct TileLayout {
  static constexpr int kChunk = 16;                                    // dimensions of K converted at once
  static constexpr int kQ = 0;                                         // [128][64]
  static constexpr int kKeys = kQ + kDims * kTileM * 4;                // [warps][2][16][32]
  static constexpr int kP = 0;                                         // [256][kTileGap]
  static constexpr int kLower = 0;                                     // [8][threads][4]
  static constexpr int kValues = kP + kSplit * kTileGap * 4;           // [2][32][128]
  static constexpr int kMaxima = kValues + 2 * kPageRows * kDims * 4;  // [warps][64]
  static constexpr int kMaximum = kMaxima + kTileWarps * kTileM * 4;   // [64]
  static constexpr int kSums = kMaximum + kTileM * 4;                  // [64]
  static constexpr int kLast = kSums + kTileM * 4;                     // [16]
  static constexpr int kTotal = kLast + 16 * 4;
  static_assert(kKeys + kTileWarps * 2 * kChunk * kPageRows * 4 <= kValues);
  static_assert(kLower + 32 * kTileThreads * 4 <= 128 * kTileGap * 4);
};

/// Bits of a lane's number that choose its m (0, 2 and 4) and its positions or dimensions (1 and 3).
__device__ __forceinline__ int tile_m(int lane) {
  return (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4);
}
__device__ __forceinline__ int tile_n(int lane) {
  return (lane >> 1 & 1) | (lane >> 2 & 2);
}
constexpr int kTileLow = 2, kTileHigh = 8;

/// Scores of a warp's page before the scale: acc[m][position], four m from 4 * tile_m and from 32 + 4 * tile_m on, the
/// positions likewise four from 4 * tile_n and from 16 + 4 * tile_n on. keys: the page at this lane; staged: the warp's
/// place.
template <CacheType T>
__device__ __forceinline__ void tile_scores(const std::byte* keys, const float* q, float* staged, int lane,
                                            float (&acc)[8][8]) {
  constexpr int kChunk = TileLayout::kChunk;
  constexpr int kEight = kPageRows * 16;  // bytes of eight dimensions of a page
  const int mi = tile_m(lane), n0 = 4 * tile_n(lane);
#pragma unroll
  for (int i = 0; i < 64; ++i) acc[i / 8][i % 8] = 0.0F;
  uint4 raw[2];
  raw[0] = *reinterpret_cast<const uint4*>(keys);
  raw[1] = *reinterpret_cast<const uint4*>(keys + kEight);
  // One loop: with the chunks' around it the compiler gives the sums other registers in between.
#pragma unroll 1
  for (int d4 = 0; d4 < kDims / 4; ++d4) {
    if (d4 % (kChunk / 4) == 0) {
      float* k = staged + (d4 & 7) * (4 * kPageRows);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float values[8];
        Cached<T>::unpack(raw[half], values);
#pragma unroll
        for (int e = 0; e < 8; ++e) k[(half * 8 + e) * kPageRows + lane] = values[e];
      }
      if (d4 + kChunk / 4 < kDims / 4) {
        keys += 2 * kEight;
        raw[0] = *reinterpret_cast<const uint4*>(keys);
        raw[1] = *reinterpret_cast<const uint4*>(keys + kEight);
      }
      __syncwarp();
    }
    const float* q4 = q + d4 * (4 * kTileM) + (mi ^ (d4 & 7)) * 4;  // see copy_q
    const float* k4 = staged + (d4 & 7) * (4 * kPageRows) + n0;
#pragma unroll 2
    for (int d = 0; d < 4; ++d) {
      const float4 q0 = *reinterpret_cast<const float4*>(q4 + d * kTileM);
      const float4 q1 = *reinterpret_cast<const float4*>(q4 + d * kTileM + 32);
      const float4 k0 = *reinterpret_cast<const float4*>(k4 + d * kPageRows);
      const float4 k1 = *reinterpret_cast<const float4*>(k4 + d * kPageRows + 16);
      const float qs[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
      const float ks[8] = {k0.x, k0.y, k0.z, k0.w, k1.x, k1.y, k1.z, k1.w};
#pragma unroll
      for (int i = 0; i < 64; ++i) {  // to and fro
        const int row = i / 8, column = row % 2 == 0 ? i % 8 : 7 - i % 8;
        acc[row][column] = __fmaf_rn(qs[row], ks[column], acc[row][column]);
      }
    }
  }
}

/// q of an item as [dimension][m], its groups of four m exchanged by the dimension, so that neither writes nor reads
/// meet in a bank. An m that is not there repeats the last one.
__device__ __forceinline__ void copy_q(const AttentionArgs& args, const GroupItem& item, int shift, float* q) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int quad = lane & 7, in_four = lane >> 3;
  float4 x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int m = min((warp * 2 + i / 4) * 4 + in_four, item.rows * item.heads - 1);
    const int row = item.row + (m >> shift), head = item.first_head + (m & (item.heads - 1));
    x[i] =
        *reinterpret_cast<const float4*>(args.q + (int64_t{row} * args.heads + head) * kDims + i % 4 * 32 + quad * 4);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float* to = q + (i % 4 * 32 + quad * 4) * kTileM + ((warp * 2 + i / 4) ^ quad) * 4 + in_four;
    to[0] = x[i].x;
    to[kTileM] = x[i].y;
    to[2 * kTileM] = x[i].z;
    to[3 * kTileM] = x[i].w;
  }
}

/// o[m][dimension] += p * v for 4 m and 8 dimensions at one position.
__device__ __forceinline__ void tile_values(const float* p, const float* v, bool seen, float (&o)[4][8]) {
  const float4 w = *reinterpret_cast<const float4*>(p);
  const float4 a = *reinterpret_cast<const float4*>(v), b = *reinterpret_cast<const float4*>(v + 4);
  const float ws[4] = {w.x, w.y, w.z, w.w};
  const float vs[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  if (!seen) return;
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i / 8][i % 8] = __fmaf_rn(ws[i / 8], vs[i % 8], o[i / 8][i % 8]);
}

/// __syncthreads for branches that whole warps take.
__device__ __forceinline__ void block_barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}

/// An item as its two phases see it.
struct TileItem : GroupItem {
  const AttentionArgs& args;
  int shift;             // rows of m
  int from, to;          // positions that any row sees
  int all_from, all_to;  // that all rows see
  int first_page, last_page;
  __device__ TileItem(const AttentionArgs& all, int index) : GroupItem(all, index), args(all) {
    shift = heads == kMaxHeads ? 3 : 2;
    from = begin(args, 0);
    to = end(rows - 1);
    all_from = begin(args, rows - 1);
    all_to = end(0);
    first_page = from / kPageRows;
    last_page = (to - 1) / kPageRows;
  }
  /// Whether all rows see all of the page.
  __device__ bool whole(int page) const {
    return page * kPageRows >= all_from && page * kPageRows + kPageRows <= all_to;
  }
  __device__ const std::byte* page_at(const std::byte* base, int page) const {
    return base + (int64_t{unit[kUnitPages + page]} * args.kv_heads + kv_head) * kHeadBytes;
  }
};

// The two phases are functions of their own, so that neither's registers narrow the other's choice: their loops run at
// the rate at which the register banks give operands, and the compiler finds good places for them only where it has
// room. (In one function 60 to 75% of the multiply-adds had two operands in a bank.)

/// Scores and weights of an item: p, the maxima.
template <CacheType T>
__device__ __noinline__ void tile_weights(const AttentionArgs& args, std::byte* shared, int index) {
  using L = TileLayout;
  const TileItem item(args, index);
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int mi = tile_m(lane), ni = tile_n(lane);
  const int first = warp * kPageRows + 4 * ni;  // position of the lane's scores
  float* p = reinterpret_cast<float*>(shared + L::kP);
  float* maxima = reinterpret_cast<float*>(shared + L::kMaxima);
  float* maximum = reinterpret_cast<float*>(shared + L::kMaximum);
  copy_q(args, item, item.shift, reinterpret_cast<float*>(shared + L::kQ));
  __syncthreads();
  if (warp >= item.first_page && warp <= item.last_page) {
    float acc[8][8];
    tile_scores<T>(item.page_at(args.keys, warp) + lane * 16, reinterpret_cast<const float*>(shared + L::kQ),
                   reinterpret_cast<float*>(shared + L::kKeys) + warp * (2 * L::kChunk * kPageRows), lane, acc);
#pragma unroll
    for (int i = 0; i < 64; ++i) acc[i / 8][i % 8] = __fmul_rn(acc[i / 8][i % 8], args.scale);
    if (!item.whole(warp)) {
      // What is invisible becomes -inf, whose weight is 0. (Where the maximum is -inf the sum is NaN without it.)
#pragma unroll
      for (int f = 0; f < 2; ++f) {
        const int row = (f * 32 + 4 * mi) >> item.shift;
        const int begin = item.begin(args, row) - first, end = item.end(row) - first;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int at = j / 4 * 16 + j % 4;
          if (at >= begin && at < end) continue;
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[f * 4 + i][j] = __int_as_float(0xff800000);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float highest = __int_as_float(0xff800000);  // fmaxf passes NaN by, as float_key does
#pragma unroll
      for (int j = 0; j < 8; ++j) highest = fmaxf(highest, acc[i][j]);
      highest = fmaxf(highest, __shfl_xor_sync(kFullMask, highest, kTileLow));
      highest = fmaxf(highest, __shfl_xor_sync(kFullMask, highest, kTileHigh));
      if (ni == 0) maxima[warp * kTileM + i / 4 * 32 + 4 * mi + i % 4] = highest;
    }
    block_barrier();
#pragma unroll
    for (int f = 0; f < 2; ++f) {
      const int m = f * 32 + 4 * mi;
      float4 high = *reinterpret_cast<const float4*>(maxima + item.first_page * kTileM + m);
#pragma unroll 1
      for (int page = item.first_page + 1; page <= item.last_page; ++page) {
        const float4 other = *reinterpret_cast<const float4*>(maxima + page * kTileM + m);
        high =
            make_float4(fmaxf(high.x, other.x), fmaxf(high.y, other.y), fmaxf(high.z, other.z), fmaxf(high.w, other.w));
      }
      if (warp == item.first_page && ni == 0) *reinterpret_cast<float4*>(maximum + m) = high;
      const float highs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float e[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) e[i] = exp_below(__fsub_rn(acc[f * 4 + i][j], highs[i]));
        *reinterpret_cast<float4*>(p + (first + j / 4 * 16 + j % 4) * kTileGap + m) =
            make_float4(e[0], e[1], e[2], e[3]);
      }
    }
  } else {
    block_barrier();
  }
  __syncthreads();
}

/// The weights' sums and the values: an item's part of the output, in place or as partial results.
template <CacheType T>
__device__ __noinline__ void tile_outputs(const AttentionArgs& args, std::byte* shared, int index) {
  using L = TileLayout;
  const TileItem item(args, index);
  const int tid = static_cast<int>(threadIdx.x), lane = tid & 31, warp = tid >> 5;
  const int mi = tile_m(lane), ni = tile_n(lane);
  const float* p = reinterpret_cast<const float*>(shared + L::kP);
  const float* maximum = reinterpret_cast<const float*>(shared + L::kMaximum);
  float* sums = reinterpret_cast<float*>(shared + L::kSums);
  float* v_pages = reinterpret_cast<float*>(shared + L::kValues);
  float4* lower = reinterpret_cast<float4*>(shared + L::kLower) + tid;
  const auto load_values = [&](int page, uint2(&raw)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      raw[i] = reinterpret_cast<const uint2*>(item.page_at(args.values, page))[tid + i * kTileThreads];
  };
  uint2 raw[4];
  load_values(item.first_page, raw);
  {  // l = sum16(p): 16 lanes for four m
    const int m = (tid >> 4) * 4, l16 = tid & 15;
    float l[4] = {};
#pragma unroll 4
    for (int at = item.first_page * kPageRows + l16; at < (item.last_page + 1) * kPageRows; at += 16) {
      const float4 x = *reinterpret_cast<const float4*>(p + at * kTileGap + m);
      l[0] = __fadd_rn(l[0], x.x);
      l[1] = __fadd_rn(l[1], x.y);
      l[2] = __fadd_rn(l[2], x.z);
      l[3] = __fadd_rn(l[3], x.w);
    }
#pragma unroll
    for (float& x : l) x = tree16(x);
    if (l16 == 0) *reinterpret_cast<float4*>(sums + m) = make_float4(l[0], l[1], l[2], l[3]);
  }

  // Values. A warp has half of the m and a quarter of the dimensions.
  const int m = (warp & 1) * 32 + 4 * mi, row = m >> item.shift;
  const int dims_at = (warp >> 1) * 4 + ni;  // of eight
  const int begin = item.begin(args, row), end = item.end(row);
  // Sums of segment 0, then of segment 2: in local memory, out of the way of the loops' registers.
  volatile float even[32];
  float o[4][8];
  const bool upper = item.last_page >= kSplitPages / 2;
#pragma unroll 1
  for (int segment = 0; segment < (upper ? 4 : 2); ++segment) {
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i / 8][i % 8] = 0.0F;
#pragma unroll 1
    for (int page = max(segment * 2, item.first_page); page <= min(segment * 2 + 1, item.last_page); ++page) {
      float* v = v_pages + (page & 1) * (kPageRows * kDims);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 a = Cached<T>::pair(raw[i].x), b = Cached<T>::pair(raw[i].y);
        reinterpret_cast<float4*>(v)[tid + i * kTileThreads] = make_float4(a.x, a.y, b.x, b.y);
      }
      __syncthreads();
      if (page < item.last_page) load_values(page + 1, raw);
      v += dims_at * 8;
      const float* weights = p + page * kPageRows * kTileGap + m;
      if (item.whole(page)) {
#pragma unroll 4
        for (int i = 0; i < kPageRows; ++i) tile_values(weights + i * kTileGap, v + i * kDims, true, o);
      } else {
#pragma unroll 1
        for (int i = max(item.from - page * kPageRows, 0); i < min(item.to - page * kPageRows, kPageRows); ++i) {
          const int at = page * kPageRows + i;
          tile_values(weights + i * kTileGap, v + i * kDims, at >= begin && at < end, o);
        }
      }
    }
    if (segment % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 32; ++i) even[i] = o[i / 8][i % 8];
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i / 8][i % 8] = __fadd_rn(even[i], o[i / 8][i % 8]);
    }
    if (segment == 1 && upper) {
      __syncthreads();  // every warp is past the lower positions
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* in = &o[i / 2][i % 2 * 4];
        lower[i * kTileThreads] = make_float4(in[0], in[1], in[2], in[3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 x = upper ? lower[i * kTileThreads] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float* out = &o[i / 2][i % 2 * 4];
    out[0] = __fadd_rn(x.x, out[0]);
    out[1] = __fadd_rn(x.y, out[1]);
    out[2] = __fadd_rn(x.z, out[2]);
    out[3] = __fadd_rn(x.w, out[3]);
  }
  const Partials partials(args, item);
  const float4 high = *reinterpret_cast<const float4*>(maximum + m), l = *reinterpret_cast<const float4*>(sums + m);
  const float highs[4] = {high.x, high.y, high.z, high.w}, ls[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    write_split<kTileLow, kTileHigh>(args, item, partials, row, (m + i) & (item.heads - 1), dims_at, highs[i], ls[i],
                                     o[i], m + i < item.rows * item.heads);
  }
}

/// Two blocks an SM. Items differ in their positions and the longest come first: a block takes the next one when it has
/// time. As many are drawn as there are items; the last draw sets the counter back.
template <CacheType T>
__global__ void __launch_bounds__(kTileThreads, 2) attention_tile_kernel(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int next[2];
  const int tid = static_cast<int>(threadIdx.x);
  // Older than the kernel before this one; see wait_and_pass_on.
  const int items = args.step.header[kTileUnits + args.window_index] * args.kv_heads;
  wait_and_pass_on();
  int i = static_cast<int>(blockIdx.x);
  for (int turn = 0; i < items; turn ^= 1) {
    int drawn = 0;
    if (tid == 0) drawn = atomicAdd(args.next_item, 1);
    tile_weights<T>(args, shared, i);
    tile_outputs<T>(args, shared, i);
    const GroupItem item(args, i);
    const Partials partials(args, item);
    meet<kTileWarps>(args, item, partials, reinterpret_cast<int*>(shared + TileLayout::kLast));
    if (tid == 0) {
      if (drawn == items - 1) *args.next_item = 0;
      next[turn] = drawn + static_cast<int>(gridDim.x);
    }
    __syncthreads();
    i = next[turn];
  }
}

}  // namespace

int attention_group_rows(const AttentionArgs& args) {
  return kTileM / (args.heads / args.kv_heads);
}

void launch_attention_tile(const AttentionArgs& args, int sms, cudaStream_t stream) {
  const auto start = [&](auto* kernel) {
    launch(kernel, sms * 2, kTileThreads, static_cast<size_t>(TileLayout::kTotal), stream, args);
  };
  if (args.cache == CacheType::bf16) {
    start(&attention_tile_kernel<CacheType::bf16>);
  } else {
    start(&attention_tile_kernel<CacheType::f16>);
  }
}

}  // namespace cohort::cuda
