// Attention of the kernel of all layers for several rows (flow_rows.cuh): a block has some heads of one split of a row.
// With two groups of columns it has those of two rows, each by a half of its warps (a team), which meet only at the
// end.
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
  using Base::kEach;
  using Base::kGroups;
  using Base::kQkv;
  using Base::mark;
  using Base::next_;
  using Base::position_;
  using Base::release;
  using Base::rows_;
  using Base::sh_;
  using Base::share_;
  using Base::tid_;
  using Base::warp_;
  using typename Base::Sizes;
  static constexpr int kTeam = Sizes::kTeam, kTeamWarps = Sizes::kTeamWarps;

  __device__ __forceinline__ int team() const { return kGroups == 1 ? 0 : tid_ / kTeam; }
  __device__ __forceinline__ int thread() const { return tid_ % kTeam; }  // of the team
  __device__ __forceinline__ int warp() const { return warp_ % kTeamWarps; }
  __device__ __forceinline__ void sync_team() const {
    if constexpr (kGroups == 1) {
      sync();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(3 + team()), "n"(kTeam) : "memory");
    }
  }
  __device__ __forceinline__ int end(int round) const { return share_.end(position_, team(), round); }
  __device__ __forceinline__ int rank() const { return share_.rank(team()); }
  __device__ __forceinline__ int split(int round) const { return rank() + round * Shape::kSplitBlocks; }
  __device__ __forceinline__ int row() const { return share_.row_of(team()); }
  /// Where the team's entries of the ring start.
  __device__ __forceinline__ int keys_at() const { return kGroups == 2 && team() == 1 ? sh_.team_entries[0] : 0; }
  __device__ __forceinline__ int values_at() const {
    return kGroups == 1 ? 0 : sh_.team_entries[0] + sh_.team_entries[kGroups - 1] + keys_at();
  }
  /// After sync_team: the team is done with its K (0) or V (1). Of two teams, entries of K, K, V, V come free as far as
  /// both are done with.
  __device__ __forceinline__ void release_half(int half, int end) {
    if constexpr (kGroups == 1) {
      release(entries_of(pages_of(end)));
    } else {
      if (thread() != 0) return;
      __threadfence_block();
      const int first = sh_.team_entries[0], second = sh_.team_entries[1];
      const uint32_t absent = (first == 0 ? 5U : 0U) | (second == 0 ? 10U : 0U);
      const uint32_t mine = 1U << (half * 2 + team());
      const uint32_t done = atomicOr(&sh_.attended, mine) | mine | absent;
      __threadfence_block();
      const int run = __ffs(static_cast<int>(~done)) - 1;
      const int count = (run >> 1) * (first + second) + ((run & 1) != 0 ? first : 0);
      atomicMax(&sh_.released, next_ + static_cast<uint32_t>(count));
    }
  }

  /// Half-warps side by side: q of the heads, then, where the new position is, the new k and v.
  __device__ __forceinline__ void new_heads(const FlowLayer& layer, int round) {
    constexpr int kGroup = Shape::kHeads / Shape::kKvHeads;
    const int kv_head = share_.first_head / kGroup, half = thread() >> 4, l16 = tid_ & 15;
    const bool is_k = half == kEach, is_v = half == kEach + 1;
    const int from = is_v   ? layer.v + kv_head * Shape::kHeadDim
                     : is_k ? layer.k + kv_head * Shape::kHeadDim
                            : layer.q + (share_.first_head + half) * Shape::kHeadDim;
    const float* norm_weight = is_k ? layer.k_norm : layer.q_norm;
    float weight[8], x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[i] = __ldg(norm_weight + l16 + i * 16);
    uint32_t bits[8];
    take<8>([&](int i) { return args_.rows.heads + row() * kQkv + from + l16 + i * 16; }, flag_, bits);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __uint_as_float(bits[i]);
    head_row(sh_.cosines[team()], sh_.sines[team()], !is_v, is_k ? layer.k_eps : layer.q_eps, weight, !is_v, l16, x);
    const int at = position_ % kSplit;
    const bool owner = share_.first_head % kGroup == 0;  // the first heads of the group append for all
    const int64_t page =
        (int64_t{sh_.pages[team()][round * kSplitPages + at / kPageRows]} * Shape::kKvHeads + kv_head) * kHeadBytes;
    using Cache = Cached<CacheType::f16>;
    std::byte* keys = half >= kEach
                          ? entry(keys_at() + at / kPageRows / kEntryPages) + at / kPageRows % kEntryPages * kHeadBytes
                          : nullptr;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = l16 + i * 16;
      if (is_v) {
        sh_.fresh_v[team()][d] = Cache::rounded(x[i]);
        if (owner) Cache::store(layer.values + page, at % kPageRows * Shape::kHeadDim + d, x[i]);
      } else if (is_k) {
        const int key = d / 8 * 8 * kPageRows + at % kPageRows * 8 + d % 8;
        Cache::store(keys, key, x[i]);
        if (owner) Cache::store(layer.keys + page, key, x[i]);
      } else {
        sh_.q(team())[half * Shape::kHeadDim + d] = x[i];
      }
    }
  }

  __device__ __forceinline__ void attend(const FlowLayer& layer) {
    if (end(0) > 0) attend_split(layer, 0);
    if constexpr (Sizes::kRounds > 1) {
      // Code of its own, so that the first round knows that it is the first.
#pragma unroll 1
      for (int round = 1; round < rounds_of(position_, rank()); ++round) attend_split(layer, round);
    }
    // Of two teams the first waits here, for what it would ask for slows the other. The output layer's sums go where
    // those of q, k and v were: all warps are done with them.
    if (kGroups == 2 || end(0) == 0) sync();
    if constexpr (kGroups == 2) next_ += static_cast<uint32_t>(2 * (sh_.team_entries[0] + sh_.team_entries[1]));
    if (position_ < 0 || warp() >= kEach) return;
    const int head = share_.first_head + warp();
    const float y = merge_splits<Sizes::kSplits>(
        args_.rows.partial + (row() * Shape::kHeads + head) * Sizes::kSplits * kFlowPartial, rank() * 32, position_,
        at_.lane, flag_);
    const int block = head * (Shape::kHeadDim / 32) + rank();
    put_block(args_.rows.attended + (row() * Shape::kAttentionBlocks + block) * 4, y, at_.lane, flag_);
  }
  __device__ __forceinline__ void attend_split(const FlowLayer& layer, int round) {
    const bool fresh = position_ / kSplit == split(round);
    if ((round == 0 && warp() < kEach / 2) || (warp() == kEach / 2 && fresh)) new_heads(layer, round);
    sync_team();
    mark(5);
    Flagged* mine = args_.rows.partial +
                    ((row() * Shape::kHeads + share_.first_head) * Sizes::kSplits + split(round)) * kFlowPartial;
    scores(end(round));
    values(mine, end(round), fresh);
    mark(6);
  }

  /// p of 256 positions, a lane some positions and heads. Loads from shared memory bound it, so each is used as often
  /// as latency allows.
  __device__ __forceinline__ void scores(int end) {
    constexpr int kScoreParts = Sizes::kScoreParts, kHeadParts = kTeamWarps / kScoreParts;
    constexpr int kMine = kEach / kHeadParts, kPages = kSplitPages / kScoreParts;
    using Cache = Cached<CacheType::f16>;
    const int pages = pages_of(end);
    const int part = warp() % kScoreParts, first = warp() / kScoreParts * kMine;
    float score[kPages][kMine];
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
#pragma unroll
      for (int h = 0; h < kMine; ++h) score[i][h] = 0.0F;
    }
    if (part * kPages < pages) {
      const int entry_of = part * kPages / kEntryPages, in_entry = part * kPages % kEntryPages;
      const std::byte* keys = entry(keys_at() + entry_of) + at_.lane * 16;
      int place[kPages];
#pragma unroll
      for (int i = 0; i < kPages; ++i) place[i] = min(in_entry + i, pages - 1 - entry_of * kEntryPages) * kHeadBytes;
      const float* q = sh_.q(team()) + first * Shape::kHeadDim;
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
        sh_.p(team())[position * kEach + first + h] = scaled;
        if (position < end) key = max(key, float_key(scaled));
      }
      key = __reduce_max_sync(kFullMask, key);
      if (at_.lane == 0) sh_.keys[team()][(first + h) * kScoreParts + part] = key;
    }
    sync_team();
    release_half(0, end);
    constexpr int kMineOf = kEach * kSplit / kTeam;
    const int position = thread() & (kSplit - 1), from = thread() / kSplit * kMineOf;
    float* p = sh_.p(team()) + position * kEach + from;
#pragma unroll
    for (int h = 0; h < kMineOf; ++h) {
      // An invisible position adds +0 to a sum that is never -0.
      p[h] = position < end ? numerics::exp<Ops>(__fsub_rn(p[h], maximum_of(from + h))) : 0.0F;
    }
    sync_team();
  }
  __device__ __forceinline__ float maximum_of(int head) const {
    constexpr int kCount = Sizes::kScoreParts;
    int keys[kCount];
    load_words(reinterpret_cast<const std::byte*>(sh_.keys[team()] + head * kCount), keys);
#pragma unroll
    for (int i = 1; i < kCount; ++i) keys[0] = max(keys[0], keys[i]);
    return key_float(keys[0]);
  }

  /// p times V: a warp has one of four segments and half of the heads, a lane four dimensions of each; with sixteen
  /// warps two of them.
  __device__ __forceinline__ void values(Flagged* mine, int end, bool fresh) {
    constexpr int kDims = Shape::kHeadDim, kHeadWords = Sizes::kSplits * kFlowPartial;
    constexpr int kMine = kEach / 2, kLaneDims = 32 / kTeamWarps, kAhead = 4;
    float* exchange = sh_.exchange(team());
    const float* p = sh_.p(team());
    const int summed = warp() - (kTeamWarps - kEach);
    if (summed >= 0) {  // l = sum16(p) of a head, both halves the same
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kSplit / 16; ++j) sum = __fadd_rn(sum, p[((at_.lane & 15) + j * 16) * kEach + summed]);
      sum = tree16(sum);
      if (at_.lane == 0) put(mine + summed * kHeadWords, maximum_of(summed), flag_);
      if (at_.lane == 1) put(mine + summed * kHeadWords + 1, sum, flag_);
    }
    const int segment = warp() & 3, head = (warp() >> 2 & 1) * kMine, at = position_ % kSplit;
    const int dim = (warp() >> 3) * (32 * kLaneDims) + at_.lane * kLaneDims;
    const int from = segment * 64;
    int to = min(end, from + 64);
    const bool mine_fresh = fresh && at / 64 == segment;
    if (mine_fresh) --to;
    float o[kMine][kLaneDims];
#pragma unroll
    for (int h = 0; h < kMine; ++h) {
#pragma unroll
      for (int d = 0; d < kLaneDims; ++d) o[h][d] = 0.0F;
    }
    const auto add = [&](int i, const float(&v)[kLaneDims]) {
      float with[kMine];
      load_heads<kMine>(p + i * kEach + head, with);
#pragma unroll
      for (int h = 0; h < kMine; ++h) {
#pragma unroll
        for (int d = 0; d < kLaneDims; ++d) o[h][d] = __fmaf_rn(with[h], v[d], o[h][d]);
      }
    };
    const std::byte* v = from >= end
                             ? nullptr  // nothing is read
                             : entry(values_at() + segment / 2) + (segment % 2 * 64 - from) * (kDims * 2) + dim * 2;
    const auto load = [&](int i, uint32_t(&raw)[kLaneDims / 2]) { load_words(v + i * (kDims * 2), raw); };
    const auto unpack = [](const uint32_t(&raw)[kLaneDims / 2], float(&to_floats)[kLaneDims]) {
#pragma unroll
      for (int w = 0; w < kLaneDims / 2; ++w) {
        const float2 pair = half_pair(raw[w]);
        to_floats[w * 2] = pair.x;
        to_floats[w * 2 + 1] = pair.y;
      }
    };
    float now[kLaneDims];
    int i = from;
#pragma unroll 1
    for (; i + kAhead <= to; i += kAhead) {
      uint32_t next[kAhead][kLaneDims / 2];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) load(i + u, next[u]);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        unpack(next[u], now);
        add(i + u, now);
      }
    }
#pragma unroll 1
    for (; i < to; ++i) {
      uint32_t next[kLaneDims / 2];
      load(i, next);
      unpack(next, now);
      add(i, now);
    }
    if (mine_fresh) {
      load_heads<kLaneDims>(sh_.fresh_v[team()] + dim, now);
      add(at, now);
    }
    if constexpr (kGroups == 2) sync_team();  // p makes room
#pragma unroll
    for (int h = 0; h < kMine; ++h) {
      float* place = exchange + (segment * kEach + head + h) * kDims + dim;
      if constexpr (kLaneDims == 4) {
        *reinterpret_cast<float4*>(place) = make_float4(o[h][0], o[h][1], o[h][2], o[h][3]);
      } else {
        *reinterpret_cast<float2*>(place) = make_float2(o[h][0], o[h][1]);
      }
    }
    sync_team();
    release_half(1, end);
#pragma unroll
    for (int n = thread(); n < kEach * kDims; n += kTeam) {
      const float* e = exchange + n;
      const float y =
          __fadd_rn(__fadd_rn(e[0], e[kEach * kDims]), __fadd_rn(e[2 * kEach * kDims], e[3 * kEach * kDims]));
      put(mine + n / kDims * kHeadWords + 2 + n % kDims, y, flag_);
    }
  }
};

}  // namespace flow
}  // namespace cohort::cuda
