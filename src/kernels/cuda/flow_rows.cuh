// A step of two to sixteen rows, each of another sequence: all layers in one
// kernel, as flow.cuh for one row.
//
// The rows are the columns of the int8 products, so weights are read once for
// all of them: an expert's tile is multiplied with every row and only those
// routed to it are kept, which costs nothing, for the columns are there. More
// than eight rows are two groups of columns of dense layers; an expert's
// columns are then its own rows alone. What is not a product is shared out: a
// row's norms, its part of the router and its heads belong to some of 128
// blocks, which publish quantised blocks in the order in which the products'
// lanes read them; of two groups a block serves two rows.
//
// Every block chooses the experts of all rows, a warp a row. The experts of all
// rows are listed in rising order; items of (expert, 32 outputs) go round the
// blocks, so that the first experts are finished first and down, which takes
// them in the same order, waits only for the last.
//
// What bounds it: as flow.cuh, and from four rows on the read of the experts'
// weights.
#pragma once

#include "kernels/cuda/flow_rows_experts.cuh"

namespace cohort::cuda {
namespace flow {

/// The sixteen warps that compute.
template <Format FA, Format FB, int H>
class ComputeRows : public RowsExperts<FA, FB, H> {
public:
  using Base = RowsExperts<FA, FB, H>;
  using Base::Base;

  __device__ void run() {
    if (share_.row_tile && tid_ < rows_ * kTileRows)
      sh_.own[tid_] =
          args_.input.data[int64_t{tid_ / kTileRows} * args_.input.stride +
                           block_ * kTileRows + tid_ % kTileRows];
    for (int l = 0; l < args_.count; ++l, ++flag_) {
      barrier_wait(&sh_.layer_here[l & 1], static_cast<uint32_t>(l >> 1 & 1));
      const FlowLayer &layer = sh_.layers[l & 1];
      forget();
#ifdef COHORT_STAMPS
      marked_ = l == args_.count / 2;
      if (marked_)
        stamp(args_.step, 0);
#endif
      mark(1);
      if (share_.row >= 0)
        first_norm(layer, l == 0);
      heads(layer);
      attend(layer);
      output(layer);
      if (share_.row >= 0)
        route(layer);
      choose(layer.renormalise != 0);
      gate_up(layer.act);
      mark(12);
      if (share_.row_tile)
        down(layer, l + 1 == args_.count);
    }
  }

private:
  using Base::args_;
  using Base::at_;
  using Base::attend;
  using Base::block_;
  using Base::choose;
  using Base::column;
  using Base::down;
  using Base::entry;
  using Base::flag_;
  using Base::forget;
  using Base::gate_up;
  using Base::kColumn;
  using Base::kEach;
  using Base::kGroups;
  using Base::kQkv;
  using Base::mark;
  using Base::norm;
  using Base::present;
  using Base::present_rows;
  using Base::release;
  using Base::row_of;
  using Base::rows_;
  using Base::sh_;
  using Base::share_;
  using Base::store_columns;
  using Base::take_rows;
  using Base::tid_;
  using Base::warp_;
#ifdef COHORT_STAMPS
  using Base::marked_;
#endif

  static constexpr int kNormBlocks =
      Shape::kHiddenBlocks * kEach /
      kRoleBlocks; // of a row that a block quantises

  __device__ __forceinline__ void first_norm(const FlowLayer &layer,
                                             bool first) {
    float x[kGroups][4], weight = 0.0F;
    const int mine = warp_ / kNormBlocks,
              block = share_.part * kNormBlocks + warp_ % kNormBlocks;
    const bool quantises = mine < present_rows();
    if (quantises)
      weight = __ldg(layer.attention_norm + block * 32 + at_.lane);
    if (first) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const float *from =
            args_.input.data + int64_t{row_of(i)} * args_.input.stride;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          x[i][j] = from[(warp_ * 4 + j) * 32 + at_.lane];
      }
    } else {
      take_rows(args_.rows.x, x);
    }
    mark(2);
    norm(x, layer.attention_eps);
    if (!quantises)
      return;
    const float y =
        __fmul_rn(__fmul_rn(sh_.x(mine)[packed(block * 32 + at_.lane)],
                            sh_.factors[mine]),
                  weight);
    put_block(args_.rows.normed +
                  (row_of(mine) * Shape::kHiddenBlocks + block) * 4,
              y, at_.lane, flag_);
  }

  __device__ __forceinline__ void heads(const FlowLayer &layer) {
    FlaggedQuad words[kGroups * 4];
    const FlaggedQuad *from = args_.rows.normed + warp_ * 16 + at_.t;
    take<kGroups * 4>(
        [&](int i) {
          return from + column(i / 4) * (Shape::kHiddenBlocks * 4) + i % 4 * 4;
        },
        flag_, words);
    __syncwarp();
    mark(3);
    float later[kGroups - 1 + (kGroups == 1)][kRowTiles][4];
    const auto multiply = [&](int i) {
      const int tile = share_.first_tile + i;
      const bool other =
          layer.dense[tile < layer.dense[0].tiles ? 0 : 1].other != 0;
      float acc[kGroups][4];
      segment_of<FA, FB, 4, kGroups>(other, entry(i), warp_ * 4, words, at_,
                                     acc);
      store_columns(sh_.sums(i) + warp_ * kColumn, acc[0]);
      if constexpr (kGroups == 2) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          later[0][i][j] = acc[1][j];
      }
    };
    if constexpr (kLong<FA>) {
#pragma unroll 1
      for (int i = 0; i < share_.tiles; ++i)
        multiply(i);
    } else {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (i >= share_.tiles)
          break;
        multiply(i);
      }
    }
    sync();
    release(share_.tiles);
    put_heads(layer, 0);
    if constexpr (kGroups == 2) {
      sync();
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (i < share_.tiles)
          store_columns(sh_.sums(i) + warp_ * kColumn, later[0][i]);
      }
      sync();
      put_heads(layer, 1);
    }
    mark(4);
  }
  /// Of a group of rows.
  __device__ __forceinline__ void put_heads(const FlowLayer &layer, int group) {
    const int tile_in = tid_ / (kEach * kTileRows),
              in_group = tid_ / kTileRows % kEach, output = tid_ % kTileRows;
    const int row = group * kEach + in_group;
    if (tile_in >= share_.tiles || row >= rows_)
      return;
    const int tile = share_.first_tile + tile_in;
    const bool second = tile >= layer.dense[0].tiles;
    const int to = layer.dense[second ? 1 : 0].first +
                   (tile - (second ? layer.dense[0].tiles : 0)) * kTileRows;
    const float y = tree_of<kWarps>(
        sh_.sums(tile_in) + in_group * kColumnFloats + output, kColumn);
    put(args_.rows.heads + row * kQkv + to + output, y, flag_);
  }

  __device__ __forceinline__ void output(const FlowLayer &layer) {
    if (!share_.row_tile)
      return;
    const bool other = layer.output.other != 0;
    constexpr int kBlocks = Shape::kAttentionBlocks / kWarps; // two segments
    static_assert(kBlocks == 8);
    const int block = warp_ * kBlocks;
    if constexpr (kGroups == 1) {
      FlaggedQuad words[kBlocks];
      const FlaggedQuad *from =
          args_.rows.attended +
          (column(0) * Shape::kAttentionBlocks + block) * 4 + at_.t;
      take<kBlocks>([&](int i) { return from + i * 4; }, flag_, words);
      mark(7);
      __syncwarp();
      const std::byte *tile = entry(0);
      float first[1][4], acc[1][4];
      if constexpr (kLong<FA>) {
        clear<1>(acc);
#pragma unroll 1
        for (int segment = 0; segment < 2; ++segment, move_up<4>(words)) {
          copy_to<1>(first, acc);
          segment_of<FA, FB, 4, 1>(other, tile, block + segment * 4, words, at_,
                                   acc);
        }
      } else {
        segment_of<FA, FB, 4, 1>(other, tile, block, words, at_, first);
        segment_of<FA, FB, 4, 1>(other, tile, block + 4, words + 4, at_, acc);
      }
      add_to<1>(acc, first);
      store_columns(sh_.partial + warp_ * kColumn, acc[0]);
    } else {
      // A segment of a group at a time; words of the next are asked for before
      // the last are used.
      FlaggedQuad words[4], next[4];
      const auto from = [&](int step, int i) {
        return args_.rows.attended +
               (column(step / 2) * Shape::kAttentionBlocks + block +
                step % 2 * 4 + i) *
                   4 +
               at_.t;
      };
      const auto ask = [&](int step) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          next[i] = get(from(step, i));
      };
      const std::byte *tile = nullptr;
      float first[1][4], acc[1][4];
      ask(0);
#pragma unroll
      for (int step = 0; step < kGroups * 2; ++step) {
        finish<4>([&](int i) { return from(step, i); }, flag_, next);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = next[i];
        if (step + 1 < kGroups * 2)
          ask(step + 1);
        if (step == 0) {
          mark(7);
          tile = entry(0);
        }
        segment_of<FA, FB, 4, 1>(other, tile, block + step % 2 * 4, words, at_,
                                 acc);
        if (step % 2 == 0) {
          copy_to<1>(first, acc);
        } else {
          add_to<1>(acc, first);
          store_columns(sh_.partial + (warp_ * kGroups + step / 2) * kColumn,
                        acc[0]);
        }
      }
    }
    sync();
    release(1);
    if (tid_ < rows_ * kTileRows) {
      const int row = tid_ / kTileRows, in_tile = tid_ % kTileRows;
      const float *sums = sh_.partial + row / kEach * kColumn +
                          row % kEach * kColumnFloats + in_tile;
      const float y =
          __fadd_rn(sh_.own[tid_], tree_of<kWarps>(sums, kGroups * kColumn));
      sh_.own[tid_] = y;
      put(args_.rows.middle + row * Shape::kHidden + block_ * kTileRows +
              in_tile,
          y, flag_);
    }
    mark(8);
  }

  /// Of this block's rows: logits of some experts and some quantised blocks.
  __device__ __forceinline__ void route(const FlowLayer &layer) {
    float x[kGroups][4], weight[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      weight[j] = __ldg(layer.expert_norm + (warp_ * 4 + j) * 32 + at_.lane);
    take_rows(args_.rows.middle, x);
    mark(9);
    norm(x, layer.expert_eps);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const float factor = sh_.factors[i];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sh_.x(i)[packed((warp_ * 4 + j) * 32 + at_.lane)] =
            __fmul_rn(__fmul_rn(x[i][j], factor), weight[j]);
    }
    sync();
    // Other blocks take these first.
    const int mine = warp_ / kEach,
              quantised = warp_ - (kGroups == 2 ? 8 : kEach);
    if (quantised >= 0 && quantised < kNormBlocks * present_rows()) {
      const int of = quantised / kNormBlocks,
                block = share_.part * kNormBlocks + quantised % kNormBlocks;
      put_block(args_.rows.routed +
                    (row_of(of) * Shape::kHiddenBlocks + block) * 4,
                sh_.x(of)[packed(block * 32 + at_.lane)], at_.lane, flag_);
    }
    if (mine < present_rows()) {
      const int expert = warp_ % kEach;
      const auto *w =
          reinterpret_cast<const float *>(entry(0)) + expert * Shape::kHidden;
      float sum = 0.0F;
      const float *const from[2] = {sh_.x(mine), w};
      walk_row<2>(from, at_.lane, [&](const float4(&v)[2]) {
        sum = __fmaf_rn(v[0].x, v[1].x, sum);
        sum = __fmaf_rn(v[0].y, v[1].y, sum);
        sum = __fmaf_rn(v[0].z, v[1].z, sum);
        sum = __fmaf_rn(v[0].w, v[1].w, sum);
      });
      sum = tree16(sum);
      if (at_.lane == 0)
        put(args_.rows.logits + row_of(mine) * Shape::kExperts +
                share_.part * kEach + expert,
            sum, flag_);
      mark(10);
    }
    sync();
    release(1);
  }
};

template <Format FA, Format FB, int H>
__global__ void __launch_bounds__(kAllThreads, 1)
    flow_rows_kernel(const __grid_constant__ FlowArgs args) {
  extern __shared__ __align__(128) std::byte buffer[];
  using Place = RowsPlace<H>;
  Place &sh = *reinterpret_cast<Place *>(buffer + Place::kRing);
  const int tid = static_cast<int>(threadIdx.x), rows = args.step.header[kRows];
  const RowsShare<H> share(rows, static_cast<int>(blockIdx.x),
                           static_cast<int>(gridDim.x));
  if (tid == 0) {
    for (uint64_t &barrier : sh.full)
      barrier_init(&barrier, 1);
    sh.released = sh.attended = 0;
    for (uint64_t &barrier : sh.layer_here)
      barrier_init(&barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#pragma unroll
  for (int team = 0; team < RowsSizes<H>::kGroups; ++team) {
    const int position = share.position(args.step, rows, team);
    if (tid < Shape::kHeadDim / 2 && position >= 0) {
      sh.cosines[team][tid] =
          args.cosines[int64_t{position} * (Shape::kHeadDim / 2) + tid];
      sh.sines[team][tid] =
          args.sines[int64_t{position} * (Shape::kHeadDim / 2) + tid];
    }
    if (tid < RowsSizes<H>::kRounds * kSplitPages) {
      const int page = page_of(share.rank(team), tid);
      if (page < pages_of(position + 1))
        sh.pages[team][tid] =
            args.step.pages[args.step.page_begin[share.row_of(team)] + page];
    }
    if (tid == 0) {
      sh.positions[team] = position;
      sh.team_entries[team] =
          entries_of(pages_of(share.end(position, team, 0)));
    }
  }
  __syncthreads();
  const uint32_t epoch = *args.epoch;
  if (tid >= kThreads) {
    fill_rows<H>(args, buffer, sh, share, rows);
  } else {
    ComputeRows<FA, FB, H>(args, buffer, sh, share, epoch, rows).run();
  }
}

/// A kernel and what a block of it takes.
template <Format FA, Format FB, int H> FlowKernel rows_kernel_of() {
  return {&flow_rows_kernel<FA, FB, H>, 226 << 10};
}
template <Format FA, Format FB> FlowKernel rows_kernel_of(FlowRows rows) {
  return rows == FlowRows::two     ? rows_kernel_of<FA, FB, 2>()
         : rows == FlowRows::four  ? rows_kernel_of<FA, FB, 4>()
         : rows == FlowRows::eight ? rows_kernel_of<FA, FB, 8>()
                                   : rows_kernel_of<FA, FB, 16>();
}

} // namespace flow
} // namespace cohort::cuda
