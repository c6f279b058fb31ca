// A step of one row: all layers in one kernel that stays on the device, one block an SM.
//
// A launch per phase costs its start, a cold first load of weights and a wait for the last block, eight times a layer:
// more than the arithmetic. Here nothing is launched and nobody waits for a barrier of the grid: what a phase makes
// goes to device memory value by value, each in one word of 8 bytes with the number of its layer (Flagged), and a
// reader looks at the words that it needs until all carry that number. One buffer of each kind suffices: whoever
// writes a value of the next layer has, through what it read, waited for all who read the old one.
//
// Weights come through a ring in shared memory that a warp of its own fills, in the order of use and as far ahead as
// there is room: those of q, k, v and of the output layer arrive while the experts of the layer before compute. The
// same warp chooses the experts (every block does, from the same logits) and asks for their weights at once.
//
// K of every product is shared by the sixteen other warps, a warp a segment or two, which quantise the input's part
// that they need for themselves. Attention: a block has a head's split of 256 positions, as in attention_few.cu.
//
// What bounds it: the latency of seven such exchanges a layer, of chains of 128 fma (two norms and the router), and of
// the read of the experts' weights.
#pragma once

#include "kernels/cuda/flow_ring.cuh"

namespace cohort::cuda {
namespace flow {

/// A segment of a tile times the row, from `block` on: rows g and g + 8, good where at.t == 0.
template <Format FA, Format FB, int SB>
__device__ __forceinline__ void sum_segment(bool other, const std::byte* tile, int block, const ColumnPointers& x,
                                            Lane at, float (&out)[2]) {
  float acc[1][4];
  if (FA != FB && other) {
    segment_sum<FB, 1, SB>(tile, block, block, SB, x, 1, false, at, acc);
  } else {
    segment_sum<FA, 1, SB>(tile, block, block, SB, x, 1, false, at, acc);
  }
  out[0] = acc[0][0];
  out[1] = acc[0][2];
}
/// Sums of Count tiles by compute(i, sums), stored by store(i, sums) once all are there: no store stands between them.
/// Of long formats one tile after the other by a loop.
template <Format F, int Count, class Compute, class Store>
__device__ __forceinline__ void by_tiles(Compute&& compute, Store&& store) {
  float sums[Count][2];
  if constexpr (kLong<F>) {
#pragma unroll 1
    for (int i = 0; i < Count; ++i) {
      compute(i, sums[0]);
      store(i, sums[0]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) compute(i, sums[i]);
#pragma unroll
    for (int i = 0; i < Count; ++i) store(i, sums[i]);
  }
}
__device__ __forceinline__ void store_rows(float* to, const float (&value)[2], Lane at) {
  if (at.t != 0) return;
  to[at.g] = value[0];
  to[at.g + 8] = value[1];
}

/// The sixteen warps that compute.
template <Format FA, Format FB>
class Compute {
 public:
  __device__ Compute(const FlowArgs& args, std::byte* ring, Shared& sh, const Share& share, uint32_t epoch,
                     int position)
      : args_(args),
        ring_(ring),
        sh_(sh),
        share_(share),
        tid_(static_cast<int>(threadIdx.x)),
        warp_(tid_ >> 5),
        block_(static_cast<int>(blockIdx.x)),
        position_(position),
        flag_(epoch),
        at_(tid_ & 31) {}

  __device__ void run() {
    if (tid_ < 16 && share_.row_tile) sh_.own[tid_] = args_.input.data[block_ * kTileRows + tid_];
    for (int l = 0; l < args_.count; ++l, ++flag_) {
      barrier_wait(&sh_.layer_here[l & 1], static_cast<uint32_t>(l >> 1 & 1));
      const FlowLayer& layer = sh_.layers[l & 1];
#ifdef COHORT_STAMPS
      marked_ = l == args_.count / 2;
      if (marked_) stamp(args_.step, 0);
#endif
      mark(1);
      heads(layer, l == 0);
      attend(layer);
      output(layer);
      route(layer);
      // While the first weights of the experts are on their way.
      if (warp_ == kWarps - 1) weigh(layer.renormalise != 0);
      gate_up(layer.act);
      down(layer, l + 1 == args_.count);
    }
  }

 private:
  /// Of the layer in the middle.
  __device__ __forceinline__ void mark([[maybe_unused]] int place) const {
#ifdef COHORT_STAMPS
    if (marked_) stamp(args_.step, place);
#endif
  }
  /// The next entry of the ring plus i, when it is there.
  __device__ __forceinline__ const std::byte* entry(int i) const {
    const uint32_t n = next_ + static_cast<uint32_t>(i);
    barrier_wait(&sh_.full[n % kEntries], n / kEntries & 1);
    return ring_ + sh_.place[n % kEntries];
  }
  /// After sync: all are done with so many entries.
  __device__ __forceinline__ void release(int count) {
    next_ += static_cast<uint32_t>(count);
    if (tid_ == 0) give_back(sh_, next_);
  }

  /// This thread's values of a norm's weights, 32 apart.
  __device__ __forceinline__ void norm_weights(const float* from, float (&weight)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) weight[j] = __ldg(from + (warp_ * 4 + j) * 32 + at_.lane);
  }
  /// Makes x the norm of the row whose values (warp * 4 + j) * 32 + lane it has; one warp's part is quantised.
  __device__ __forceinline__ void norm(float (&x)[4], const float (&weight)[4], float eps) {
    const int first = warp_ * 128 + at_.lane;
#pragma unroll
    for (int j = 0; j < 4; ++j) sh_.x[packed(first + j * 32)] = x[j];
    sync();
    if (warp_ == 0) {
      const float factor = norm_factor_of<Shape::kHidden>(squares(sh_.x, at_.lane), eps);
      if (at_.lane == 0) sh_.factor = factor;
    }
    sync();
    const float factor = sh_.factor;
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = __fmul_rn(__fmul_rn(x[j], factor), weight[j]);
  }
  __device__ __forceinline__ void quantise_row(const float (&x)[4]) {
    const Quantised out{sh_.row.values, 0, Shape::kHiddenBlocks};
    quantise_blocks<4>(x, at_.lane, out, 0, warp_ * 4, 1, Shape::kHiddenBlocks);
    __syncwarp();
  }
  __device__ __forceinline__ void take_row(const Flagged* from, float (&x)[4]) const {
    uint32_t bits[4];
    take<4>([&](int j) { return from + warp_ * 128 + j * 32 + at_.lane; }, flag_, bits);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = __uint_as_float(bits[j]);
  }

  __device__ __forceinline__ void heads(const FlowLayer& layer, bool first) {
    float x[4], weight[4];
    norm_weights(layer.attention_norm, weight);
    if (first) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = args_.input.data[warp_ * 128 + j * 32 + at_.lane];
    } else {
      take_row(args_.x, x);
    }
    mark(2);
    norm(x, weight, layer.attention_eps);
    quantise_row(x);
    mark(3);
    const std::byte* tiles[kMaxTiles] = {};
    if constexpr (!kLong<FA>) {
#pragma unroll
      for (int i = 0; i < kMaxTiles; ++i) tiles[i] = entry(min(i, share_.tiles - 1));
    }
    by_tiles<FA, kMaxTiles>(
        [&](int i, float(&sums)[2]) {
          const int n = min(i, share_.tiles - 1), tile = share_.first_tile + n;
          const bool other = layer.dense[tile < layer.dense[0].tiles ? 0 : 1].other != 0;
          const std::byte* weights = kLong<FA> ? entry(n) : tiles[i];
          sum_segment<FA, FB, 4>(other, weights, warp_ * 4, sh_.row.columns(at_), at_, sums);
        },
        [&](int i, const float(&sums)[2]) { store_rows(sh_.partial[0][i][warp_], sums, at_); });
    sync();
    release(share_.tiles);
    if (tid_ < share_.tiles * 16) {
      const int tile = share_.first_tile + (tid_ >> 4);
      const bool second = tile >= layer.dense[0].tiles;
      const int to = layer.dense[second ? 1 : 0].first + (tile - (second ? layer.dense[0].tiles : 0)) * kTileRows;
      const float y = tree_of<kWarps>(&sh_.partial[0][tid_ >> 4][0][tid_ & 15], 16);
      put(args_.heads + to + (tid_ & 15), y, flag_);
    }
    mark(4);
  }

  /// q by warp 8; the new k by its other half, the new v by warp 9, where the new position is.
  __device__ __forceinline__ void new_heads(const FlowLayer& layer, int round, bool fresh) {
    constexpr int kGroup = Shape::kHeads / Shape::kKvHeads;
    const int kv_head = share_.head / kGroup, l16 = at_.lane & 15;
    const bool upper = at_.lane >= 16;
    const bool is_v = warp_ == 9, is_k = !is_v && upper && fresh;
    const int from = is_v   ? layer.v + kv_head * Shape::kHeadDim
                     : is_k ? layer.k + kv_head * Shape::kHeadDim
                            : layer.q + share_.head * Shape::kHeadDim;
    const float* norm_weight = is_v ? nullptr : is_k ? layer.k_norm : layer.q_norm;
    float weight[8], x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[i] = norm_weight != nullptr ? __ldg(norm_weight + l16 + i * 16) : 1.0F;
    uint32_t bits[8];
    take<8>([&](int i) { return args_.heads + from + l16 + i * 16; }, flag_, bits);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __uint_as_float(bits[i]);
    head_row(sh_.cosines, sh_.sines, !is_v, is_k ? layer.k_eps : layer.q_eps, weight, !is_v, l16, x);
    const int at = position_ % kSplit;
    const bool owner = share_.head % kGroup == 0;  // the first head of the group appends for all
    const int page_at = round * kSplitPages + at / kPageRows;
    const int64_t page = (int64_t{sh_.pages[page_at]} * Shape::kKvHeads + kv_head) * kHeadBytes;
    using Cache = Cached<CacheType::f16>;
    std::byte* keys = fresh && !is_v ? ring_ + (entry(0) - ring_) + at / kPageRows * kHeadBytes : nullptr;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = l16 + i * 16;
      if (is_v) {
        if (upper) continue;
        sh_.fresh_v[d] = Cache::rounded(x[i]);
        if (owner) Cache::store(layer.values + page, at % kPageRows * Shape::kHeadDim + d, x[i]);
      } else if (is_k) {
        const int key = d / 8 * 8 * kPageRows + at % kPageRows * 8 + d % 8;
        Cache::store(keys, key, x[i]);
        if (owner) Cache::store(layer.keys + page, key, x[i]);
      } else if (!upper) {
        sh_.q[d] = x[i];
      }
    }
  }

  __device__ __forceinline__ void attend(const FlowLayer& layer) {
    if (share_.rounds == 0) sync();  // the sums of q, k and v make room
#pragma unroll 1
    for (int round = 0; round < share_.rounds; ++round) attend_split(layer, round);
    if (warp_ != 4 || share_.head >= Shape::kHeads) return;
    const float y = merge_splits<Shape::kMaxSplits>(args_.partial + share_.head * Shape::kMaxSplits * kFlowPartial,
                                                    share_.rank * 32, position_, at_.lane, flag_);
    put_block(args_.attended + (share_.head * (Shape::kHeadDim / 32) + share_.rank) * kFlowBlock, y, at_.lane, flag_);
  }

  __device__ __forceinline__ void attend_split(const FlowLayer& layer, int round) {
    constexpr int kDims = Shape::kHeadDim;
    using Cache = Cached<CacheType::f16>;
    const int split = share_.rank + round * Shape::kSplitBlocks;
    const int end = visible(position_, split), at = position_ % kSplit;
    const bool fresh = position_ / kSplit == split;
    Flagged* mine = args_.partial + (share_.head * Shape::kMaxSplits + split) * kFlowPartial;
    if ((warp_ == 8 && (round == 0 || fresh)) || (warp_ == 9 && fresh)) new_heads(layer, round, fresh);
    sync();
    mark(5);
    float score = 0.0F;
    if (warp_ < kSplitPages && warp_ * kPageRows < end) {
      const std::byte* keys = entry(0) + warp_ * kHeadBytes + at_.lane * 16;
#pragma unroll 4
      for (int c = 0; c < kDims / 8; ++c) {
        float values[8], q[8];
        Cache::unpack(*reinterpret_cast<const uint4*>(keys + c * (kPageRows * 16)), values);
        load_heads<8>(sh_.q + c * 8, q);
#pragma unroll
        for (int e = 0; e < 8; ++e) score = __fmaf_rn(q[e], values[e], score);
      }
    }
    const bool seen = tid_ < end;
    score = __fmul_rn(score, args_.scale);
    if (warp_ < kSplitPages) {
      const int key = __reduce_max_sync(kFullMask, float_key(seen ? score : __int_as_float(0xff800000)));
      if (at_.lane == 0) sh_.keys[warp_] = key;
    }
    sync();
    release(1);
    const float maximum = key_float(__reduce_max_sync(kFullMask, sh_.keys[at_.lane & 7]));
    // An invisible position adds +0 to a sum that is never -0.
    if (tid_ < kSplit) sh_.p[tid_] = seen ? numerics::exp<Ops>(__fsub_rn(score, maximum)) : 0.0F;
    sync();
    // A thread a dimension of one of four segments.
    const int segment = tid_ >> 7, dim = tid_ & 127;
    const int from = segment * 64;
    int to = min(end, from + 64);
    const bool mine_fresh = fresh && at / 64 == segment;
    if (mine_fresh) --to;
    float o = 0.0F;
    const auto* values = reinterpret_cast<const __half*>(entry(0));
    int i = from;
#pragma unroll 1
    for (; i + 8 <= to; i += 8) {
      float v[8], p[8];
#pragma unroll
      for (int u = 0; u < 8; ++u) v[u] = __half2float(values[(i + u) * kDims + dim]);
      load_heads<8>(sh_.p + i, p);
#pragma unroll
      for (int u = 0; u < 8; ++u) o = __fmaf_rn(p[u], v[u], o);
    }
#pragma unroll 1
    for (; i < to; ++i) o = __fmaf_rn(sh_.p[i], __half2float(values[i * kDims + dim]), o);
    if (mine_fresh) o = __fmaf_rn(sh_.p[at], sh_.fresh_v[dim], o);
    sh_.exchange[segment][dim] = o;
    if (warp_ == 15) {  // l = sum16(p), both halves the same
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kSplit / 16; ++j) sum = __fadd_rn(sum, sh_.p[(at_.lane & 15) + j * 16]);
      sum = tree16(sum);
      if (at_.lane == 0) put(mine, maximum, flag_);
      if (at_.lane == 1) put(mine + 1, sum, flag_);
    }
    sync();
    mark(6);
    release(1);
    if (tid_ < kDims) {
      const float y = __fadd_rn(__fadd_rn(sh_.exchange[0][tid_], sh_.exchange[1][tid_]),
                                __fadd_rn(sh_.exchange[2][tid_], sh_.exchange[3][tid_]));
      put(mine + 2 + tid_, y, flag_);
    }
  }

  __device__ __forceinline__ void output(const FlowLayer& layer) {
    if (share_.row_tile) {
      constexpr int kBlocks = Shape::kAttentionBlocks / kWarps, kWords = kBlocks * kFlowBlock;
      const auto word = [&](int i) { return min(at_.lane + i * 32, kWords - 1); };
      uint32_t bits[3];
      take<3>([&](int i) { return args_.attended + warp_ * kWords + word(i); }, flag_, bits);
#pragma unroll
      for (int i = 0; i < 3; ++i)
        sh_.attended.put(warp_ * kBlocks + word(i) / kFlowBlock, word(i) % kFlowBlock, bits[i]);
      mark(7);
      __syncwarp();
      const std::byte* tile = entry(0);
      by_tiles<FA, 2>(
          [&](int segment, float(&sums)[2]) {
            sum_segment<FA, FB, 4>(layer.output.other != 0, tile, warp_ * kBlocks + segment * 4,
                                   sh_.attended.columns(at_), at_, sums);
          },
          [&](int segment, const float(&sums)[2]) {
            store_rows(&sh_.partial[0][0][0][0] + (warp_ * 2 + segment) * 16, sums, at_);
          });
    }
    sync();
    if (!share_.row_tile) return;
    release(1);
    if (warp_ != 0) return;
    const int output = at_.lane & 15;
    float y = tree_of<16>(&sh_.partial[0][0][0][0] + (at_.lane >> 4) * 256 + output, 16);
    const float upper = __shfl_xor_sync(kFullMask, y, 16);
    if (at_.lane >= 16) return;
    y = __fadd_rn(sh_.own[output], __fadd_rn(y, upper));
    sh_.own[output] = y;
    put(args_.middle + block_ * kTileRows + output, y, flag_);
    mark(8);
  }

  __device__ __forceinline__ void route(const FlowLayer& layer) {
    float x[4], weight[4];
    norm_weights(layer.expert_norm, weight);
    take_row(args_.middle, x);
    mark(9);
    norm(x, weight, layer.expert_eps);
#pragma unroll
    for (int j = 0; j < 4; ++j) sh_.x[packed(warp_ * 128 + j * 32 + at_.lane)] = x[j];
    sync();
    if (share_.row_tile && warp_ == 0) {
      const auto* w = reinterpret_cast<const float*>(entry(0));
      float sum = 0.0F;
      const float* const from[2] = {sh_.x, w};
      walk_row<2>(from, at_.lane, [&](const float4(&v)[2]) {
        sum = __fmaf_rn(v[0].x, v[1].x, sum);
        sum = __fmaf_rn(v[0].y, v[1].y, sum);
        sum = __fmaf_rn(v[0].z, v[1].z, sum);
        sum = __fmaf_rn(v[0].w, v[1].w, sum);
      });
      sum = tree16(sum);
      if (at_.lane == 0) put(args_.logits + block_, sum, flag_);
      mark(10);
    }
    quantise_row(x);
    if (share_.row_tile) {
      // Warp 0 alone reads the entry.
      if (tid_ < 32) __syncwarp();
      release(1);
    }
  }

  /// One warp. The filling warp knows the order, too, but asks for weights meanwhile.
  __device__ __forceinline__ void weigh(bool renormalise) {
    float logits[kLogits];
    take_logits(args_.logits, flag_, logits);
    const float weight = weight_of(logits, rank_experts(logits).expert, renormalise);
    if (at_.lane < Shape::kTopK) sh_.weights[at_.lane] = weight;
  }

  __device__ __forceinline__ void gate_up(Act act) {
    for (int i = 0; i < share_.items; ++i) {
      auto& partial = sh_.partial[i & 1];
#ifdef COHORT_STAMPS
      entry(0);
      if (i == 0) mark(11);
#endif
      by_tiles<FA, 4>(
          [&](int tile, float(&sums)[2]) {
            sum_segment<FA, FA, 4>(false, entry(tile), warp_ * 4, sh_.row.columns(at_), at_, sums);
          },
          [&](int tile, const float(&sums)[2]) { store_rows(partial[tile][warp_], sums, at_); });
      sync();
      release(4);
      if (warp_ != (i & 15)) continue;
      // Gate, up, gate, up tiles of 16.
      const int pair = at_.lane >> 4, output = at_.lane & 15;
      const float gate = tree_of<kWarps>(&partial[pair * 2][0][output], 16);
      const float up = tree_of<kWarps>(&partial[pair * 2 + 1][0][output], 16);
      const float active = act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate);
      put_block(args_.hidden + (share_.first_item + i) * kFlowBlock, __fmul_rn(active, up), at_.lane, flag_);
    }
  }

  __device__ __forceinline__ void down(const FlowLayer& layer, bool last) {
    const int slot = warp_ >> 1, half = warp_ & 1;
    mark(12);
    if (share_.row_tile) {
      constexpr int kBlocks = Shape::kInnerBlocks / 2, kWords = kBlocks * kFlowBlock;
      const auto word = [&](int i) { return min(at_.lane + i * 32, kWords - 1); };
      uint32_t bits[4];
      take<4>([&](int i) { return args_.hidden + (slot * 2 + half) * kWords + word(i); }, flag_, bits);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sh_.hidden[slot].put(half * kBlocks + word(i) / kFlowBlock, word(i) % kFlowBlock, bits[i]);
      mark(13);
      __syncwarp();
      const std::byte* tile = entry(slot);
      by_tiles<FA, 2>(
          [&](int segment, float(&sums)[2]) {
            sum_segment<FA, FB, 6>(layer.down.other != 0, tile, half * kBlocks + segment * 6,
                                   sh_.hidden[slot].columns(at_), at_, sums);
          },
          [&](int segment, const float(&sums)[2]) { store_rows(sh_.down[slot][half * 2 + segment], sums, at_); });
    }
    sync();
    if (!share_.row_tile) return;
    release(Shape::kTopK);
    if (tid_ >= 16) return;
    float y = 0.0F;
#pragma unroll
    for (int s = 0; s < Shape::kTopK; ++s) {
      const float d = tree_of<4>(&sh_.down[s][0][tid_], 16);
      y = s == 0 ? __fmul_rn(sh_.weights[0], d) : __fmaf_rn(sh_.weights[s], d, y);
    }
    y = __fadd_rn(sh_.own[tid_], y);
    sh_.own[tid_] = y;
    const int to = block_ * kTileRows + tid_;
    if (last) {
      args_.out.data[to] = y;
    } else {
      put(args_.x + to, y, flag_ + 1);
    }
  }

  const FlowArgs& args_;
  std::byte* ring_;
  Shared& sh_;
  const Share& share_;
  const int tid_, warp_, block_, position_;
  uint32_t flag_;  // of this layer
  uint32_t next_ = 0;
#ifdef COHORT_STAMPS
  bool marked_ = false;
#endif
  const Lane at_;
};

template <Format FA, Format FB>
__global__ void __launch_bounds__(kAllThreads, 1) flow_kernel(const __grid_constant__ FlowArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  Shared& sh = *reinterpret_cast<Shared*>(buffer + Shared::kRing);
  const int tid = static_cast<int>(threadIdx.x);
  const int position = args.step.positions[0];
  const Share share(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), position);
  if (tid == 0) {
    for (uint64_t& barrier : sh.full) barrier_init(&barrier, 1);
    sh.released = 0;
    for (uint64_t& barrier : sh.layer_here) barrier_init(&barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (tid < Shape::kHeadDim / 2) {
    sh.cosines[tid] = args.cosines[int64_t{position} * (Shape::kHeadDim / 2) + tid];
    sh.sines[tid] = args.sines[int64_t{position} * (Shape::kHeadDim / 2) + tid];
  }
  if (tid < share.rounds * kSplitPages) {
    const int page = page_of(share.rank, tid);
    if (page < pages_of(position + 1)) sh.pages[tid] = args.step.pages[args.step.page_begin[0] + page];
  }
  __syncthreads();
  const uint32_t epoch = *args.epoch;
  if (tid >= kThreads) {
    fill(args, buffer, sh, share, epoch, position);
  } else {
    Compute<FA, FB>(args, buffer, sh, share, epoch, position).run();
  }
  if (blockIdx.x == 0 && tid == 0) *args.distinct += args.count * Shape::kTopK;
}

template <Format FA, Format FB>
FlowKernel kernel_of() {
  return {&flow_kernel<FA, FB>, kTotal};
}

}  // namespace flow
}  // namespace cohort::cuda
