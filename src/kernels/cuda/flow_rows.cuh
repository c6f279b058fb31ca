// A step of two to eight rows, each of another sequence: all layers in one kernel, as flow.cuh for one row.
//
// The rows are the columns of the int8 products, so weights are read once for all of them: an expert's tile is
// multiplied with every row and only those routed to it are kept, which costs nothing, for the columns are there. What
// is not a product is shared out: a row's norms, its part of the router and its heads belong to 128 / H blocks (H: most
// rows of the kernel), which publish quantised blocks in the order in which the products' lanes read them; a block has
// H experts of the router, and H heads of one split of attention.
//
// Every block chooses the experts of all rows, a warp a row. The experts of all rows are listed in rising order; items
// of (expert, 32 outputs) go round the blocks, so that the first experts are finished first and down, which takes them
// in the same order, waits only for the last.
//
// What bounds it: as flow.cuh, and from four rows on the read of the experts' weights.
#pragma once

#include "kernels/cuda/flow_rows_attention.cuh"

namespace cohort::cuda {
namespace flow {

/// The sixteen warps that compute.
template <Format FA, Format FB, int H>
class ComputeRows : public RowsAttention<H> {
 public:
  using Base = RowsAttention<H>;
  using Base::Base;

  __device__ void run() {
    if (share_.row_tile && tid_ < rows_ * kTileRows)
      sh_.own[tid_] =
          args_.input.data[int64_t{tid_ / kTileRows} * args_.input.stride + block_ * kTileRows + tid_ % kTileRows];
    for (int l = 0; l < args_.count; ++l, ++flag_) {
      barrier_wait(&sh_.layer_here[l & 1], static_cast<uint32_t>(l >> 1 & 1));
      const FlowLayer& layer = sh_.layers[l & 1];
      forget();
#ifdef COHORT_STAMPS
      marked_ = l == args_.count / 2;
      if (marked_) stamp(args_.step, 0);
#endif
      mark(1);
      if (share_.row >= 0) first_norm(layer, l == 0);
      heads(layer);
      attend(layer);
      output(layer);
      if (share_.row >= 0) route(layer);
      choose(layer.renormalise != 0);
      gate_up(layer.act);
      mark(12);
      if (share_.row_tile) down(layer, l + 1 == args_.count);
    }
  }

 private:
  using Base::args_;
  using Base::at_;
  using Base::attend;
  using Base::block_;
  using Base::column_;
  using Base::entry;
  using Base::flag_;
  using Base::forget;
  using Base::kColumn;
  using Base::kQkv;
  using Base::mark;
  using Base::next_;
  using Base::norm;
  using Base::release;
  using Base::rows_;
  using Base::sh_;
  using Base::share_;
  using Base::store_columns;
  using Base::take_row;
  using Base::tid_;
  using Base::warp_;
#ifdef COHORT_STAMPS
  using Base::marked_;
#endif

  static constexpr int kNormBlocks = Shape::kHiddenBlocks * H / kRoleBlocks;  // that a block quantises

  __device__ __forceinline__ void first_norm(const FlowLayer& layer, bool first) {
    float x[4], weight = 0.0F;
    const int block = share_.part * kNormBlocks + warp_;
    if (warp_ < kNormBlocks) weight = __ldg(layer.attention_norm + block * 32 + at_.lane);
    if (first) {
      const float* from = args_.input.data + int64_t{share_.row} * args_.input.stride;
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = from[(warp_ * 4 + j) * 32 + at_.lane];
    } else {
      take_row(args_.rows.x + share_.row * Shape::kHidden, x);
    }
    mark(2);
    const float factor = norm(x, layer.attention_eps);
    if (warp_ >= kNormBlocks) return;
    const float y = __fmul_rn(__fmul_rn(sh_.x()[packed(block * 32 + at_.lane)], factor), weight);
    put_block(args_.rows.normed + (share_.row * Shape::kHiddenBlocks + block) * 4, y, at_.lane, flag_);
  }

  __device__ __forceinline__ void heads(const FlowLayer& layer) {
    FlaggedQuad words[4];
    const FlaggedQuad* from = args_.rows.normed + (column_ * Shape::kHiddenBlocks + warp_ * 4) * 4 + at_.t;
    take<4>([&](int i) { return from + i * 4; }, flag_, words);
    __syncwarp();
    mark(3);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      if (i >= share_.tiles) break;
      const int tile = share_.first_tile + i;
      const bool other = layer.dense[tile < layer.dense[0].tiles ? 0 : 1].other != 0;
      float acc[4];
      segment_of<FA, FB, 4>(other, entry(i), warp_ * 4, words, at_, acc);
      store_columns(sh_.partial + (i * kWarps + warp_) * kColumn, acc);
    }
    sync();
    release(share_.tiles);
    const int tile_in = tid_ / (H * kTileRows), row = tid_ / kTileRows % H, output = tid_ % kTileRows;
    if (tile_in < share_.tiles && row < rows_) {
      const int tile = share_.first_tile + tile_in;
      const bool second = tile >= layer.dense[0].tiles;
      const int to = layer.dense[second ? 1 : 0].first + (tile - (second ? layer.dense[0].tiles : 0)) * kTileRows;
      const float y = tree_of<kWarps>(sh_.partial + tile_in * kWarps * kColumn + row * kColumnFloats + output, kColumn);
      put(args_.rows.heads + row * kQkv + to + output, y, flag_);
    }
    mark(4);
  }

  __device__ __forceinline__ void output(const FlowLayer& layer) {
    if (!share_.row_tile) return;
    constexpr int kBlocks = Shape::kAttentionBlocks / kWarps;
    FlaggedQuad words[kBlocks];
    const FlaggedQuad* from = args_.rows.attended + (column_ * Shape::kAttentionBlocks + warp_ * kBlocks) * 4 + at_.t;
    take<kBlocks>([&](int i) { return from + i * 4; }, flag_, words);
    mark(7);
    __syncwarp();
    const std::byte* tile = entry(0);
    float first[4], acc[4];
    segment_of<FA, FB, 4>(layer.output.other != 0, tile, warp_ * kBlocks, words, at_, first);
    segment_of<FA, FB, 4>(layer.output.other != 0, tile, warp_ * kBlocks + 4, words + 4, at_, acc);
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = __fadd_rn(first[i], acc[i]);
    store_columns(sh_.partial + warp_ * kColumn, acc);
    sync();
    release(1);
    if (tid_ < rows_ * kTileRows) {
      const int row = tid_ / kTileRows, in_tile = tid_ % kTileRows;
      const float y = __fadd_rn(sh_.own[tid_], tree_of<kWarps>(sh_.partial + row * kColumnFloats + in_tile, kColumn));
      sh_.own[tid_] = y;
      put(args_.rows.middle + row * Shape::kHidden + block_ * kTileRows + in_tile, y, flag_);
    }
    mark(8);
  }

  /// Of this block's row: logits of H experts and some quantised blocks.
  __device__ __forceinline__ void route(const FlowLayer& layer) {
    float x[4], weight[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) weight[j] = __ldg(layer.expert_norm + (warp_ * 4 + j) * 32 + at_.lane);
    take_row(args_.rows.middle + share_.row * Shape::kHidden, x);
    mark(9);
    const float factor = norm(x, layer.expert_eps);
    float* row = sh_.x();
#pragma unroll
    for (int j = 0; j < 4; ++j)
      row[packed((warp_ * 4 + j) * 32 + at_.lane)] = __fmul_rn(__fmul_rn(x[j], factor), weight[j]);
    sync();
    if (warp_ < H) {
      const auto* w = reinterpret_cast<const float*>(entry(0)) + warp_ * Shape::kHidden;
      float sum = 0.0F;
      const float* const from[2] = {row, w};
      walk_row<2>(from, at_.lane, [&](const float4(&v)[2]) {
        sum = __fmaf_rn(v[0].x, v[1].x, sum);
        sum = __fmaf_rn(v[0].y, v[1].y, sum);
        sum = __fmaf_rn(v[0].z, v[1].z, sum);
        sum = __fmaf_rn(v[0].w, v[1].w, sum);
      });
      sum = tree16(sum);
      if (at_.lane == 0) put(args_.rows.logits + share_.row * Shape::kExperts + share_.part * H + warp_, sum, flag_);
      mark(10);
    } else if (warp_ < H + kNormBlocks) {
      const int block = share_.part * kNormBlocks + warp_ - H;
      put_block(args_.rows.routed + (share_.row * Shape::kHiddenBlocks + block) * 4, row[packed(block * 32 + at_.lane)],
                at_.lane, flag_);
    }
    sync();
    release(1);
  }

  /// A warp a row chooses its experts; the others take the rows.
  __device__ __forceinline__ void choose(bool renormalise) {
    constexpr int kTop = Shape::kTopK;
    if (warp_ < kChoosers) {
      if (warp_ < rows_) {
        const Flagged* from = args_.rows.logits + warp_ * Shape::kExperts + at_.lane;
        uint32_t bits[4];
        take<4>([&](int i) { return from + i * 32; }, flag_, bits);
        __syncwarp();
        float logits[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) logits[i] = __uint_as_float(bits[i]);
        const Choice choice = choose_experts<4>(logits, Shape::kExperts, kTop, renormalise);
        const auto word_of = [&](int i) {
          return __reduce_or_sync(kFullMask,
                                  at_.lane < kTop && choice.expert / 32 == i ? 1U << choice.expert % 32 : 0U);
        };
        const uint4 mask = make_uint4(word_of(0), word_of(1), word_of(2), word_of(3));
        if (at_.lane == 0) sh_.masks[warp_] = mask;
        if (at_.lane < kTop) {
          sh_.chosen[warp_ * kTop + at_.lane] = choice.expert;
          sh_.weights[warp_ * kTop + at_.lane] = choice.weight;
        }
      }
      asm volatile("bar.arrive 2, %0;" ::"n"((kChoosers + 1) * 32) : "memory");
    } else {
      constexpr int kEach = H > 4 ? 4 : H;
      const int thread = tid_ - kChoosers * 32;
      const FlaggedQuad* from = args_.rows.routed + thread;
#pragma unroll 1
      for (int first = 0; first < rows_; first += kEach) {
        FlaggedQuad words[kEach];
        const auto row_of = [&](int i) { return min(first + i, rows_ - 1); };
        take<kEach>([&](int i) { return from + row_of(i) * (Shape::kHiddenBlocks * 4); }, flag_, words);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          std::byte* record = sh_.records + row_of(i) * kRecord;
          *reinterpret_cast<uint2*>(record + thread * 8) = make_uint2(words[i].first, words[i].second);
          if ((thread & 3) < 2)
            *reinterpret_cast<uint32_t*>(record + Shape::kHiddenBlocks * (32 + (thread & 3) * 4) + thread / 4 * 4) =
                words[i].more;
        }
      }
    }
    sync();
    if (warp_ < 4) list_experts();
    sync();
  }
  /// A thread an expert: its rows; a thread a route: its slot.
  __device__ __forceinline__ void list_experts() {
    ExpertSet all;
    uint32_t in = 0;
#pragma unroll
    for (int row = 0; row < H; ++row) {
      if (row >= rows_) break;
      const uint4 mask = sh_.masks[row];
      all.add(mask);
      const uint32_t word = warp_ == 0 ? mask.x : warp_ == 1 ? mask.y : warp_ == 2 ? mask.z : mask.w;
      in |= (word >> at_.lane & 1U) << row;
    }
    if (in != 0) sh_.rows[all.entry_of(tid_)] = in;
    if (tid_ < rows_ * Shape::kTopK) {
      sh_.slots[all.entry_of(sh_.chosen[tid_]) * kFlowRows + tid_ / Shape::kTopK] =
          static_cast<uint8_t>(tid_ % Shape::kTopK);
    }
    if (tid_ == 0) {
      sh_.entries = all.count();
      sh_.used = 0;
    }
  }

  /// A warp has a tile of (gate, up, gate, up) and a quarter of K.
  __device__ __forceinline__ void gate_up(Act act) {
    const int tile = warp_ & 3, part = warp_ >> 2, grid = static_cast<int>(gridDim.x);
    const int items = sh_.entries * Shape::kInnerBlocks;
#ifdef COHORT_STAMPS
    entry(tile);
    mark(11);
#endif
    const std::byte* values = sh_.records + column_ * kRecord + at_.t * 8;
    const std::byte* scales = sh_.records + Shape::kHiddenBlocks * 32;
    const ColumnPointers x{values, scales + min(at_.t * 2, rows_ - 1) * kRecord,
                           scales + min(at_.t * 2 + 1, rows_ - 1) * kRecord, 0, Shape::kHiddenBlocks * 4};
    int first_warp = 0;
    for (int item = block_, buffer = 0; item < items; item += grid, buffer ^= 1) {
      float acc[1][4];
      float* sums = sh_.partial + buffer * kWarps * kColumn;
      segments_tree_of<FA, 4, 4>(entry(tile), part * 16, part * 16, x, false, at_, acc);
      store_columns(sums + (tile * 4 + part) * kColumn, acc[0]);
      sync();
      release(4);
      const int expert = item / Shape::kInnerBlocks;
      uint32_t in = sh_.rows[expert];
      int ahead = (warp_ - first_warp) & (kWarps - 1);
      first_warp = (first_warp + 5) & (kWarps - 1);
      if (ahead >= __popc(in)) continue;
      for (; ahead > 0; --ahead) in &= in - 1;
      const int row = __ffs(static_cast<int>(in)) - 1;
      // Gate, up, gate, up tiles of 16.
      const float* place = sums + (at_.lane >> 4) * 8 * kColumn + row * kColumnFloats + (at_.lane & 15);
      const float gate = tree_of<4>(place, kColumn);
      const float up = tree_of<4>(place + 4 * kColumn, kColumn);
      const float active = act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate);
      put_block(args_.rows.activated + activated(expert, row, item % Shape::kInnerBlocks), __fmul_rn(active, up),
                at_.lane, flag_);
    }
  }
  __device__ __forceinline__ static int activated(int expert, int row, int block) {
    return ((expert * kFlowRows + row) * Shape::kInnerBlocks + block) * 4;
  }

  /// Down's ring entries come free in any order, but only a run from the first on can be used again.
  __device__ __forceinline__ void give_back_up_to(int expert) {
    __threadfence_block();
    const unsigned long long mine = 1ULL << expert;
    const unsigned long long used = atomicOr(&sh_.used, mine) | mine;
    __threadfence_block();
    const int run = ~used == 0 ? 64 : __ffsll(static_cast<long long>(~used)) - 1;
    atomicMax(&sh_.released, next_ + static_cast<uint32_t>(run));
  }
  /// More rows: a warp an expert, by pairs of its rows; words of the next are asked for before the last are used.
  __device__ __forceinline__ void down_by_pairs(const FlowLayer& layer) {
    constexpr int kSegment = Shape::kInnerBlocks / 4;
    const int entries = sh_.entries;
    const bool other = layer.down.other != 0;
    FlaggedQuad next[kSegment];
    int expert = warp_, first = 0, second = 0;  // rows of the next pair
    uint32_t in = expert < entries ? sh_.rows[expert] : 0U;
    const FlaggedQuad* from = nullptr;
    const auto look = [&] {
      first = __ffs(static_cast<int>(in)) - 1;
      in &= in - 1;
      second = in != 0 ? __ffs(static_cast<int>(in)) - 1 : first;
      in &= in - 1;
      from =
          args_.rows.activated + activated(expert, (at_.g & 1) != 0 ? second : first, (at_.g >> 1) * kSegment) + at_.t;
#pragma unroll
      for (int b = 0; b < kSegment; ++b) next[b] = get(from + b * 4);
    };
    if (in != 0) look();
    mark(13);
#pragma unroll 1
    while (expert < entries) {
      finish<kSegment>([&](int b) { return from + b * 4; }, flag_, next);
      __syncwarp();
      FlaggedQuad words[kSegment];
#pragma unroll
      for (int b = 0; b < kSegment; ++b) words[b] = next[b];
      const int here = expert, rows[2] = {first, second};
      const bool done = in == 0;
      if (done) {
        expert += kWarps;
        in = expert < entries ? sh_.rows[expert] : 0U;
      }
      if (expert < entries) look();
      float acc[4];
      diagonal_of<FA, FB, kSegment>(other, entry(here), 0, words, at_, acc);
      if (at_.t < 2) {
        const int row = at_.t == 0 ? rows[0] : rows[1];
        float* to = sh_.results[0][row * Shape::kTopK + sh_.slots[here * kFlowRows + row]];
        to[at_.g] = at_.t == 0 ? acc[0] : acc[1];
        to[at_.g + 8] = at_.t == 0 ? acc[2] : acc[3];
      }
      __syncwarp();
      if (done && at_.lane == 0) give_back_up_to(here);
    }
    sync();
    next_ += static_cast<uint32_t>(entries);
  }
  /// Two rows: two warps an expert, eight experts at a time; words of the next are asked for before the last are used.
  __device__ __forceinline__ void down_by_halves(const FlowLayer& layer) {
    constexpr int kAtOnce = kWarps / 2, kSegment = Shape::kInnerBlocks / 4;
    const int half = warp_ & 1, entries = sh_.entries;
    const bool other = layer.down.other != 0;
    FlaggedQuad lower[kSegment], upper[kSegment];
    const FlaggedQuad* from = nullptr;
    const auto look = [&](int expert) {
      const uint32_t in = sh_.rows[min(expert, entries - 1)];
      // Columns that are not there take one that is; their sums are not used.
      const int row = (in >> at_.g & 1U) != 0 ? at_.g : __ffs(static_cast<int>(in)) - 1;
      from = args_.rows.activated + activated(min(expert, entries - 1), row, half * 2 * kSegment) + at_.t;
#pragma unroll
      for (int i = 0; i < kSegment; ++i) lower[i] = get(from + i * 4);
    };
    look(warp_ >> 1);
    mark(13);
    for (int first = 0; first < entries; first += kAtOnce) {
      const int expert = first + (warp_ >> 1);
      if (expert < entries) {
        const FlaggedQuad* here = from;
#pragma unroll
        for (int i = 0; i < kSegment; ++i) upper[i] = get(here + (kSegment + i) * 4);
        finish<kSegment>([&](int i) { return here + i * 4; }, flag_, lower);
        __syncwarp();
        const std::byte* tile = entry(warp_ >> 1);
        float sums[4], acc[4];
        segment_of<FA, FB, kSegment>(other, tile, half * 2 * kSegment, lower, at_, sums);
        look(expert + kAtOnce);
        finish<kSegment>([&](int i) { return here + (kSegment + i) * 4; }, flag_, upper);
        __syncwarp();
        segment_of<FA, FB, kSegment>(other, tile, (half * 2 + 1) * kSegment, upper, at_, acc);
        const uint32_t in = sh_.rows[expert];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = at_.t * 2 + i;
          if ((in >> row & 1U) == 0) continue;
          float* to = sh_.results[half][row * Shape::kTopK + sh_.slots[expert * kFlowRows + row]];
          to[at_.g] = __fadd_rn(sums[i], acc[i]);
          to[at_.g + 8] = __fadd_rn(sums[i + 2], acc[i + 2]);
        }
      }
      sync();
      release(min(kAtOnce, entries - first));
    }
  }
  __device__ __forceinline__ void down(const FlowLayer& layer, bool last) {
    if constexpr (H == 2) {
      down_by_halves(layer);
    } else {
      down_by_pairs(layer);
    }
    if (tid_ >= rows_ * kTileRows) return;
    const int row = tid_ / kTileRows, in_tile = tid_ % kTileRows;
    float y = 0.0F;
#pragma unroll
    for (int s = 0; s < Shape::kTopK; ++s) {
      const int route = row * Shape::kTopK + s;
      float d = sh_.results[0][route][in_tile];
      if constexpr (H == 2) d = __fadd_rn(d, sh_.results[1][route][in_tile]);
      y = s == 0 ? __fmul_rn(sh_.weights[route], d) : __fmaf_rn(sh_.weights[route], d, y);
    }
    y = __fadd_rn(sh_.own[tid_], y);
    sh_.own[tid_] = y;
    const int to = block_ * kTileRows + in_tile;
    if (last) {
      args_.out.data[int64_t{row} * args_.out.stride + to] = y;
    } else {
      put(args_.rows.x + row * Shape::kHidden + to, y, flag_ + 1);
    }
  }
};

template <Format FA, Format FB, int H>
__global__ void __launch_bounds__(kAllThreads, 1) flow_rows_kernel(const __grid_constant__ FlowArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  using Place = RowsPlace<H>;
  Place& sh = *reinterpret_cast<Place*>(buffer + Place::kRing);
  const int tid = static_cast<int>(threadIdx.x), rows = args.step.header[kRows];
  const RowsShare<H> share(args.step, rows, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  if (tid == 0) {
    for (uint64_t& barrier : sh.full) barrier_init(&barrier, 1);
    sh.released = 0;
    for (uint64_t& barrier : sh.layer_here) barrier_init(&barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (tid < Shape::kHeadDim / 2) {
    sh.cosines[tid] = args.cosines[int64_t{share.position} * (Shape::kHeadDim / 2) + tid];
    sh.sines[tid] = args.sines[int64_t{share.position} * (Shape::kHeadDim / 2) + tid];
  }
  if (tid < kSplitPages && tid * kPageRows < share.end)
    sh.pages[tid] = args.step.pages[args.step.page_begin[share.row] + share.rank * kSplitPages + tid];
  __syncthreads();
  const uint32_t epoch = *args.epoch;
  if (tid >= kThreads) {
    fill_rows<H>(args, buffer, sh, share, rows);
  } else {
    ComputeRows<FA, FB, H>(args, buffer, sh, share, epoch, rows).run();
  }
}

/// A kernel and what a block of it takes.
template <Format FA, Format FB, int H>
FlowKernel rows_kernel_of() {
  return {&flow_rows_kernel<FA, FB, H>, 226 << 10};
}
template <Format FA, Format FB>
FlowKernel rows_kernel_of(FlowRows rows) {
  return rows == FlowRows::two    ? rows_kernel_of<FA, FB, 2>()
         : rows == FlowRows::four ? rows_kernel_of<FA, FB, 4>()
                                  : rows_kernel_of<FA, FB, 8>();
}

}  // namespace flow
}  // namespace cohort::cuda
