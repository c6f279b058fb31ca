// Attention of the kernel of all layers for several rows (flow_rows.cuh): a block has H heads of one split of a row.
//
// K and V come through the ring, the new ones from the words of q, k and v. What bounds it: loads from shared memory
// and, with few warps, their latency.
#pragma once

#include "kernels/cuda/flow_rows_thread.cuh"

namespace cohort::cuda {
namespace flow {

template <int H>
class RowsAttention : public RowsThread<H> {
 public:
  using Base = RowsThread<H>;
  using Base::Base;

 protected:
  using Base::args_;
  using Base::at_;
  using Base::entry;
  using Base::flag_;
  using Base::kQkv;
  using Base::mark;
  using Base::release;
  using Base::rows_;
  using Base::sh_;
  using Base::share_;
  using Base::tid_;
  using Base::warp_;

  /// Half-warps side by side: q of H heads, then, where the new position is, the new k and v.
  __device__ __forceinline__ void new_heads(const FlowLayer& layer) {
    constexpr int kGroup = Shape::kHeads / Shape::kKvHeads;
    const int kv_head = share_.first_head / kGroup, half = tid_ >> 4, l16 = tid_ & 15;
    const bool is_k = half == H, is_v = half == H + 1;
    const int from = is_v   ? layer.v + kv_head * Shape::kHeadDim
                     : is_k ? layer.k + kv_head * Shape::kHeadDim
                            : layer.q + (share_.first_head + half) * Shape::kHeadDim;
    const float* norm_weight = is_k ? layer.k_norm : layer.q_norm;
    float weight[8], x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[i] = __ldg(norm_weight + l16 + i * 16);
    uint32_t bits[8];
    take<8>([&](int i) { return args_.rows.heads + share_.row * kQkv + from + l16 + i * 16; }, flag_, bits);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __uint_as_float(bits[i]);
    head_row(sh_.cosines, sh_.sines, !is_v, is_k ? layer.k_eps : layer.q_eps, weight, !is_v, l16, x);
    const int at = share_.position % kSplit;
    const bool owner = share_.first_head % kGroup == 0;  // the first heads of the group append for all
    const int64_t page = (int64_t{sh_.pages[at / kPageRows]} * Shape::kKvHeads + kv_head) * kHeadBytes;
    using Cache = Cached<CacheType::f16>;
    std::byte* keys =
        half >= H ? entry(at / kPageRows / kEntryPages) + at / kPageRows % kEntryPages * kHeadBytes : nullptr;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = l16 + i * 16;
      if (is_v) {
        sh_.fresh_v[d] = Cache::rounded(x[i]);
        if (owner) Cache::store(layer.values + page, at % kPageRows * Shape::kHeadDim + d, x[i]);
      } else if (is_k) {
        const int key = d / 8 * 8 * kPageRows + at % kPageRows * 8 + d % 8;
        Cache::store(keys, key, x[i]);
        if (owner) Cache::store(layer.keys + page, key, x[i]);
      } else {
        sh_.q()[half * Shape::kHeadDim + d] = x[i];
      }
    }
  }

  __device__ __forceinline__ void attend(const FlowLayer& layer) {
    if (share_.end > 0) {
      const bool fresh = share_.position / kSplit == share_.rank;
      if (warp_ < H / 2 || (warp_ == H / 2 && fresh)) new_heads(layer);
      sync();
      mark(5);
      Flagged* mine =
          args_.rows.partial +
          ((share_.row * Shape::kHeads + share_.first_head) * Shape::kMaxSplits + share_.rank) * kFlowPartial;
      scores();
      values(mine, fresh);
      mark(6);
    }
    if (share_.row >= 0 && warp_ < H) merge(share_.first_head + warp_);
  }

  /// p of 256 positions. Eight warps compute scores, a lane of several positions and heads: loads from shared memory
  /// are what bounds it, so each is used as often as latency allows.
  __device__ __forceinline__ void scores() {
    constexpr int kScoreParts = RowsShared<H>::kScoreParts, kHeadParts = 8 / kScoreParts;
    constexpr int kMine = H / kHeadParts, kPages = kSplitPages / kScoreParts;
    using Cache = Cached<CacheType::f16>;
    const int pages = (share_.end + kPageRows - 1) / kPageRows;
    if (warp_ < kHeadParts * kScoreParts) {
      const int part = warp_ % kScoreParts, first = warp_ / kScoreParts * kMine;
      float score[kPages][kMine];
#pragma unroll
      for (int i = 0; i < kPages; ++i) {
#pragma unroll
        for (int h = 0; h < kMine; ++h) score[i][h] = 0.0F;
      }
      if (part * kPages < pages) {
        const int entry_of = part * kPages / kEntryPages, in_entry = part * kPages % kEntryPages;
        const std::byte* keys = entry(entry_of) + at_.lane * 16;
        int place[kPages];
#pragma unroll
        for (int i = 0; i < kPages; ++i) place[i] = min(in_entry + i, pages - 1 - entry_of * kEntryPages) * kHeadBytes;
        const float* q = sh_.q() + first * Shape::kHeadDim;
        uint4 next[kPages];
        const auto load = [&](int c) {
#pragma unroll
          for (int i = 0; i < kPages; ++i)
            next[i] = *reinterpret_cast<const uint4*>(keys + place[i] + c * (kPageRows * 16));
        };
        load(0);
#pragma unroll 1
        for (int c = 0; c < Shape::kHeadDim / 8; ++c) {
          float k[kPages][8];
#pragma unroll
          for (int i = 0; i < kPages; ++i) Cache::unpack(next[i], k[i]);
          if (c + 1 < Shape::kHeadDim / 8) load(c + 1);
#pragma unroll
          for (int h = 0; h < kMine; ++h) {
            float with[8];
            load_heads<8>(q + h * Shape::kHeadDim + c * 8, with);
#pragma unroll
            for (int e = 0; e < 8; ++e) {
#pragma unroll
              for (int i = 0; i < kPages; ++i) score[i][h] = __fmaf_rn(with[e], k[i][e], score[i][h]);
            }
          }
        }
      }
#pragma unroll
      for (int h = 0; h < kMine; ++h) {
        int key = float_key(__int_as_float(0xff800000));
#pragma unroll
        for (int i = 0; i < kPages; ++i) {
          const int position = (part * kPages + i) * kPageRows + at_.lane;
          const float scaled = __fmul_rn(score[i][h], args_.scale);
          sh_.p()[position * H + first + h] = scaled;
          if (position < share_.end) key = max(key, float_key(scaled));
        }
        key = __reduce_max_sync(kFullMask, key);
        if (at_.lane == 0) sh_.keys[(first + h) * kScoreParts + part] = key;
      }
    }
    sync();
    release((pages + kEntryPages - 1) / kEntryPages);  // K
    const int position = tid_ & (kSplit - 1), first = tid_ / kSplit * (H / 2);
    float* p = sh_.p() + position * H + first;
#pragma unroll
    for (int h = 0; h < H / 2; ++h) {
      // An invisible position adds +0 to a sum that is never -0.
      p[h] = position < share_.end ? numerics::exp<Ops>(__fsub_rn(p[h], maximum_of(first + h))) : 0.0F;
    }
    sync();
  }
  __device__ __forceinline__ float maximum_of(int head) const {
    constexpr int kCount = RowsShared<H>::kScoreParts;
    int key = sh_.keys[head * kCount];
#pragma unroll
    for (int i = 1; i < kCount; ++i) key = max(key, sh_.keys[head * kCount + i]);
    return key_float(key);
  }

  /// p times V: a warp has one of four segments and up to four heads, a lane four dimensions of each.
  __device__ __forceinline__ void values(Flagged* mine, bool fresh) {
    constexpr int kDims = Shape::kHeadDim, kHeadWords = Shape::kMaxSplits * kFlowPartial;
    constexpr int kEach = H / 2, kAhead = 4;
    float* exchange = sh_.exchange();
    const float* p = sh_.p();
    if (warp_ < 8) {
      const int segment = warp_ & 3, head = (warp_ >> 2) * kEach, dim = at_.lane * 4, at = share_.position % kSplit;
      const int from = segment * 64;
      int to = min(share_.end, from + 64);
      const bool mine_fresh = fresh && at / 64 == segment;
      if (mine_fresh) --to;
      float o[kEach][4];
#pragma unroll
      for (int h = 0; h < kEach; ++h) o[h][0] = o[h][1] = o[h][2] = o[h][3] = 0.0F;
      const auto add = [&](int i, const float4& v) {
        float with[kEach];
        load_heads<kEach>(p + i * H + head, with);
#pragma unroll
        for (int h = 0; h < kEach; ++h) {
          o[h][0] = __fmaf_rn(with[h], v.x, o[h][0]);
          o[h][1] = __fmaf_rn(with[h], v.y, o[h][1]);
          o[h][2] = __fmaf_rn(with[h], v.z, o[h][2]);
          o[h][3] = __fmaf_rn(with[h], v.w, o[h][3]);
        }
      };
      const std::byte* v = from >= share_.end ? nullptr  // nothing is read
                                              : entry(segment / 2) + (segment % 2 * 64 - from) * (kDims * 2) + dim * 2;
      const auto load = [&](int i) { return *reinterpret_cast<const uint2*>(v + i * (kDims * 2)); };
      const auto unpack = [](uint2 raw) {
        const float2 low = half_pair(raw.x), high = half_pair(raw.y);
        return make_float4(low.x, low.y, high.x, high.y);
      };
      int i = from;
#pragma unroll 1
      for (; i + kAhead <= to; i += kAhead) {
        uint2 next[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) next[u] = load(i + u);
#pragma unroll
        for (int u = 0; u < kAhead; ++u) add(i + u, unpack(next[u]));
      }
#pragma unroll 1
      for (; i < to; ++i) add(i, unpack(load(i)));
      if (mine_fresh) add(at, *reinterpret_cast<const float4*>(sh_.fresh_v + dim));
#pragma unroll
      for (int h = 0; h < kEach; ++h) {
        *reinterpret_cast<float4*>(exchange + (segment * H + head + h) * kDims + dim) =
            make_float4(o[h][0], o[h][1], o[h][2], o[h][3]);
      }
    } else if (warp_ >= kWarps - H) {  // l = sum16(p) of a head, both halves the same
      const int head = warp_ - (kWarps - H);
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kSplit / 16; ++j) sum = __fadd_rn(sum, p[((at_.lane & 15) + j * 16) * H + head]);
      sum = tree16(sum);
      if (at_.lane == 0) put(mine + head * kHeadWords, maximum_of(head), flag_);
      if (at_.lane == 1) put(mine + head * kHeadWords + 1, sum, flag_);
    }
    sync();
    release((share_.end + kPageRows * kEntryPages - 1) / (kPageRows * kEntryPages));  // V
#pragma unroll
    for (int n = tid_; n < H * kDims; n += kThreads) {
      const float* e = exchange + n;
      const float y = __fadd_rn(__fadd_rn(e[0], e[H * kDims]), __fadd_rn(e[2 * H * kDims], e[3 * H * kDims]));
      put(mine + n / kDims * kHeadWords + 2 + n % kDims, y, flag_);
    }
  }

  /// One warp: 32 dimensions of a head of this block's row over all splits, quantised.
  __device__ __forceinline__ void merge(int head_index) {
    constexpr int kSplits = Shape::kMaxSplits;
    const int last = share_.position / kSplit;
    const Flagged* head = args_.rows.partial + (share_.row * Shape::kHeads + head_index) * kSplits * kFlowPartial;
    const Flagged* own = head + min(at_.lane, last) * kFlowPartial;
    const Flagged* parts = head + 2 + share_.rank * 32 + at_.lane;
    uint32_t bits[2 + kSplits];
    take<2 + kSplits>([&](int i) { return i < 2 ? own + i : parts + min(i - 2, last) * kFlowPartial; }, flag_, bits);
    __syncwarp();
    const float m_own = __uint_as_float(bits[0]), l_own = __uint_as_float(bits[1]);
    const float m = key_float(__reduce_max_sync(kFullMask, float_key(m_own)));
    const float weight = numerics::exp<Ops>(__fsub_rn(m_own, m));
    float sum = 0.0F, o = 0.0F;
#pragma unroll
    for (int s = 0; s < kSplits; ++s) {
      const float w = __shfl_sync(kFullMask, weight, s), l = __shfl_sync(kFullMask, l_own, s);
      const float v = __uint_as_float(bits[2 + s]);
      if (s > last) continue;
      sum = s == 0 ? __fmul_rn(w, l) : __fmaf_rn(w, l, sum);
      o = s == 0 ? __fmul_rn(w, v) : __fmaf_rn(w, v, o);
    }
    const float y = __fmul_rn(o, __fdiv_rn(1.0F, sum));
    const int block = head_index * (Shape::kHeadDim / 32) + share_.rank;
    put_block(args_.rows.attended + (share_.row * Shape::kAttentionBlocks + block) * 4, y, at_.lane, flag_);
  }
};

}  // namespace flow
}  // namespace cohort::cuda
