// What the kernels of attention by groups (attention_group.cu) share: an item of work, a head's output, and how splits
// meet.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/exp_below.h"

namespace cohort::cuda {

inline constexpr int kDims = kHalfWarpDims;
inline constexpr int kQuad = 4;                           // heads that a warp has at once
inline constexpr int kMaxHeads = 8;                       // heads of a block
inline constexpr int kHeadBytes = kPageRows * kDims * 2;  // K or V of one head of one page

/// One KV head of a unit of attention, for all the query heads that share it.
struct GroupItem {
  const int32_t* unit;
  int first_head, kv_head, heads, quads;
  int row, rows, split, position;
  __device__ GroupItem(const AttentionArgs& args, int index) {
    heads = args.heads / args.kv_heads;
    quads = heads / kQuad;
    unit = args.step.units[args.window_index] + int64_t{index / args.kv_heads} * kUnitWords;
    kv_head = index % args.kv_heads;
    first_head = kv_head * heads;
    row = unit[kUnitRow];
    rows = unit[kUnitRows];
    split = unit[kUnitSplit];
    position = unit[kUnitPosition];
  }
  /// Visible positions of the split for row r.
  __device__ int begin(const AttentionArgs& args, int r) const {
    return args.window > 0 ? max(position + r + 1 - args.window - split * kSplit, 0) : 0;
  }
  __device__ int end(int r) const { return min(position + r + 1 - split * kSplit, kSplit); }
  __device__ bool has_page(const AttentionArgs& args, int page) const {
    return page * kPageRows < end(rows - 1) && page * kPageRows + kPageRows > begin(args, 0);
  }
};

/// Dimensions 8 * lane on of a head's output: a 32-block is four lanes, which differ in the bits Low and High of their
/// numbers in the warp. Whole warps, some of whose heads may be inactive.
template <int Low = 1, int High = 2>
__device__ __forceinline__ void write_output(const AttentionArgs& args, int row, int head, int lane,
                                             const float (&y)[8], bool active) {
  if (args.out.data != nullptr && active) {
    float4* out = reinterpret_cast<float4*>(args.out.data + int64_t{row} * args.out.stride + head * kDims + lane * 8);
    out[0] = make_float4(y[0], y[1], y[2], y[3]);
    out[1] = make_float4(y[4], y[5], y[6], y[7]);
  }
  if (args.quantised.data == nullptr) return;
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = max(amax, __float_as_uint(y[i]) & 0x7fffffffU);
  amax = max(amax, __shfl_xor_sync(kFullMask, amax, Low));
  amax = max(amax, __shfl_xor_sync(kFullMask, amax, High));
  const BlockScale scale = block_scale(amax);
  uint32_t words[2];
  int sum = 0;
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    words[w] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int v = quantise_value(y[w * 4 + i], scale);
      sum += v;
      words[w] |= static_cast<uint32_t>(v & 255) << (8 * i);
    }
  }
  const int in_block = lane & 3;
  if (in_block >= 2) sum *= 65536;
  sum += __shfl_xor_sync(kFullMask, sum, Low);
  sum += __shfl_xor_sync(kFullMask, sum, High);
  if (!active) return;
  std::byte* record = args.quantised.data + int64_t{row} * args.quantised.stride;
  const int block = (head * kDims) / 32 + (lane >> 2);
  // activation_slot of values 8i..8i+3 and 8i+4..8i+7.
  std::byte* values = record + block * 32 + (in_block & 1) * 16 + (in_block >> 1) * 4;
  *reinterpret_cast<uint32_t*>(values) = words[0];
  *reinterpret_cast<uint32_t*>(values + 8) = words[1];
  if (in_block == 0) {
    std::byte* scales = record + args.quantised.blocks * 32 + block * 4;
    *reinterpret_cast<float*>(scales) = scale.d;
    *reinterpret_cast<int32_t*>(scales + args.quantised.blocks * 4) = sum;
  }
}

/// The splits of a head meet; half a warp a head. all: the first split's result.
__device__ __forceinline__ void merge(const AttentionArgs& args, const float* all, int64_t split_stride, int splits,
                                      int row, int head, int lane, bool active) {
  const unsigned half = threadIdx.x & 16;
  constexpr int kAhead = 4;  // splits whose values are asked for before the maximum is known
  float4 ahead[kAhead][2];
  const auto values_of = [&](int s) {
    return reinterpret_cast<const float4*>(all + s * split_stride + kPartialHead + lane * 8);
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    const float4* values = values_of(min(s, splits - 1));
    ahead[s][0] = __ldcg(values);
    ahead[s][1] = __ldcg(values + 1);
  }
  float2 mine = __ldcg(reinterpret_cast<const float2*>(all + min(lane, splits - 1) * split_stride));  // maximum, sum
  float m = mine.x;
  for (int s = lane + 16; s < splits; s += 16) m = fmaxf(m, __ldcg(all + s * split_stride));
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) m = fmaxf(m, __shfl_xor_sync(kFullMask, m, offset));
  float sum = 0.0F, o[8] = {};
  const auto add = [&](int s, float w, float l, const float4& a, const float4& b) {
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
#pragma unroll
    for (int e = 0; e < 8; ++e) o[e] = s == 0 ? __fmul_rn(w, v[e]) : __fmaf_rn(w, v[e], o[e]);
  };
  for (int first = 0; first < splits; first += 16) {
    const int count = min(16, splits - first);
    if (first > 0) mine = __ldcg(reinterpret_cast<const float2*>(all + (first + min(lane, count - 1)) * split_stride));
    const float weight = exp_below(__fsub_rn(mine.x, m));
    int s = 0;
    if (first == 0) {
#pragma unroll
      for (; s < kAhead; ++s) {
        const float w = __shfl_sync(kFullMask, weight, half + s), l = __shfl_sync(kFullMask, mine.y, half + s);
        if (s < count) add(s, w, l, ahead[s][0], ahead[s][1]);
      }
    }
    for (; s < count; ++s) {
      const float w = __shfl_sync(kFullMask, weight, half + s), l = __shfl_sync(kFullMask, mine.y, half + s);
      const float4* values = values_of(first + s);
      add(first + s, w, l, __ldcg(values), __ldcg(values + 1));
    }
  }
  const float inverse = __fdiv_rn(1.0F, sum);
#pragma unroll
  for (int e = 0; e < 8; ++e) o[e] = __fmul_rn(o[e], inverse);
  write_output(args, row, head, lane, o, active);
}

/// Where the splits of an item's rows meet.
struct Partials {
  int first_split, splits;
  int64_t split_stride;
  float* first;  // of the first row's first head
  int64_t row_stride;
  __device__ Partials(const AttentionArgs& args, const GroupItem& item) {
    constexpr int64_t kHeadFloats = kDims + kPartialHead;
    first_split = args.window > 0 ? max(0, item.position + 1 - args.window) / kSplit : 0;
    splits = item.position / kSplit - first_split + 1;
    split_stride = args.heads * kHeadFloats;
    row_stride = splits * split_stride;
    first = args.partial + (int64_t{item.unit[kUnitPartial]} * args.heads + item.first_head) * kHeadFloats;
  }
  __device__ float* of(int row, int head) const {
    return first + row * row_stride + head * int64_t{kDims + kPartialHead};
  }
};

/// Dimensions 8 * lane on of one head of an item's split: the output itself, or its part of it. Low, High: as
/// write_output.
template <int Low = 1, int High = 2>
__device__ __forceinline__ void write_split(const AttentionArgs& args, const GroupItem& item, const Partials& partials,
                                            int row, int head, int lane, float maximum, float sum, float (&y)[8],
                                            bool active) {
  if (partials.splits == 1) {
    const float w = exp_below(__fsub_rn(maximum, maximum));
    const float inverse = __fdiv_rn(1.0F, __fmul_rn(w, sum));
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] = __fmul_rn(__fmul_rn(w, y[e]), inverse);
    write_output<Low, High>(args, item.row + row, item.first_head + head, lane, y, active);
  } else if (active) {
    float* out = partials.of(row, head) + (item.split - partials.first_split) * partials.split_stride;
    if (lane == 0) *reinterpret_cast<float2*>(out) = make_float2(maximum, sum);
    float4* values = reinterpret_cast<float4*>(out + kPartialHead + lane * 8);
    values[0] = make_float4(y[0], y[1], y[2], y[3]);
    values[1] = make_float4(y[4], y[5], y[6], y[7]);
  }
}

/// The block of a row's last split merges. last: [rows] words of shared memory.
template <int Warps>
__device__ __forceinline__ void meet(const AttentionArgs& args, const GroupItem& item, const Partials& partials,
                                     int* last_of) {
  if (partials.splits == 1) return;
  const int tid = static_cast<int>(threadIdx.x), l16 = tid & 15, half = tid >> 4;
  __syncthreads();
  if (tid < item.rows) {  // one thread's fence serves the block: the barrier is before it
    int32_t* counter = &args.counters[(item.row + tid) * args.heads + item.first_head];
    fence_device();
    const bool last = atomicAdd(counter, 1) == partials.splits - 1;
    if (last) *counter = 0;
    fence_device();
    last_of[tid] = last ? 1 : 0;
  }
  __syncthreads();
  for (int first = 0; first < item.rows * item.heads; first += 2 * Warps) {
    const int task = min(first + half, item.rows * item.heads - 1), row = task / item.heads, head = task % item.heads;
    const bool active = first + half < item.rows * item.heads && last_of[row] != 0;
    if (!__any_sync(kFullMask, active)) continue;
    merge(args, partials.of(row, head), partials.split_stride, partials.splits, item.row + row, item.first_head + head,
          l16, active);
  }
}

}  // namespace cohort::cuda
