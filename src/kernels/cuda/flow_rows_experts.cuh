// The experts of the kernel of all layers for several rows (flow_rows.cuh): the choice, gate and up, down.
#pragma once

#include "kernels/cuda/flow_rows_attention.cuh"

namespace cohort::cuda {
namespace flow {

template <Format FA, Format FB, int H>
class RowsExperts : public RowsAttention<H> {
 public:
  using Base = RowsAttention<H>;
  using Base::Base;

 protected:
  using Base::args_;
  using Base::at_;
  using Base::block_;
  using Base::column;
  using Base::entry;
  using Base::flag_;
  using Base::kColumn;
  using Base::kEach;
  using Base::kGroups;
  using Base::mark;
  using Base::next_;
  using Base::release;
  using Base::rows_;
  using Base::sh_;
  using Base::store_columns;
  using Base::tid_;
  using Base::warp_;
  using typename Base::Sizes;

  /// A warp a row chooses its experts. Of one group the other warps take the rows meanwhile, of two groups all do
  /// before: they come before the logits.
  __device__ __forceinline__ void choose(bool renormalise) {
    if constexpr (kGroups == 2) {
      take_records();
      choose_row(renormalise);
    } else if (warp_ < Sizes::kChoosers) {
      choose_row(renormalise);
    } else {
      take_records();
    }
    sync();
    if (warp_ < 4) list_experts();
    sync();
  }
  __device__ __forceinline__ void choose_row(bool renormalise) {
    constexpr int kTop = Shape::kTopK;
    constexpr bool kByProbability = kGroups == 2;
    float logits[kLogits], weight = 0.0F;
    Ranking ranking;
    if (warp_ < rows_) {
      take_logits(args_.rows.logits + warp_ * Shape::kExperts, flag_, logits);
      if constexpr (kByProbability) {
        const Choice choice = choose_experts<kLogits>(logits, Shape::kExperts, kTop, renormalise);
        ranking = {choice.expert, mask_of(choice.expert)};
        weight = choice.weight;
      } else {
        ranking = rank_experts(logits);
      }
      if (at_.lane == 0) sh_.masks[warp_] = ranking.mask;
    } else if (kGroups == 2 && at_.lane == 0) {
      sh_.masks[warp_] = make_uint4(0, 0, 0, 0);
    }
    asm volatile("bar.arrive 2, %0;" ::"n"((Sizes::kChoosers + 1) * 32) : "memory");
    if (warp_ >= rows_) return;
    if constexpr (!kByProbability) weight = weight_of(logits, ranking.expert, renormalise);
    if (at_.lane < kTop) {
      sh_.chosen[warp_ * kTop + at_.lane] = ranking.expert;
      sh_.weights[warp_ * kTop + at_.lane] = weight;
    }
  }
  __device__ __forceinline__ const FlaggedQuad* routed(int row, int word) const {
    return args_.rows.routed + row * (Shape::kHiddenBlocks * 4) + word;
  }
  /// Word `word` of a row of the experts' input.
  __device__ __forceinline__ void put_record(int row, int word, const FlaggedQuad& quad) {
    std::byte* record = sh_.records() + row * kRecord;
    *reinterpret_cast<uint2*>(record + word * 8) = make_uint2(quad.first, quad.second);
    if ((word & 3) < 2)
      *reinterpret_cast<uint32_t*>(record + Shape::kHiddenBlocks * (32 + (word & 3) * 4) + word / 4 * 4) = quad.more;
  }
  /// The experts' input, by threads of eight warps or by two such halves, some rows at a time.
  __device__ __forceinline__ void take_records() {
    constexpr int kAtOnce = kEach < 4 ? kEach : 4;
    const int thread = tid_ % 256;
#pragma unroll 1
    for (int first = kGroups == 2 ? tid_ / 256 * kAtOnce : 0; first < rows_; first += kGroups * kAtOnce) {
      FlaggedQuad words[kAtOnce];
      const auto row_of = [&](int i) { return min(first + i, rows_ - 1); };
      take<kAtOnce>([&](int i) { return routed(row_of(i), thread); }, flag_, words);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) put_record(row_of(i), thread, words[i]);
    }
  }
  /// A thread an expert: its rows; a thread a route: its slot.
  __device__ __forceinline__ void list_experts() {
    ExpertSet all;
    uint32_t in = 0;
#pragma unroll
    for (int row = 0; row < H; ++row) {
      if (kGroups == 1 && row >= rows_) break;
      const uint4 mask = sh_.masks[row];
      all.add(mask);
      const uint32_t word = warp_ == 0 ? mask.x : warp_ == 1 ? mask.y : warp_ == 2 ? mask.z : mask.w;
      in |= (word >> at_.lane & 1U) << row;
    }
    if (in != 0) {
      const int entry = all.entry_of(tid_);
      sh_.rows[entry] = in;
      if constexpr (kGroups == 2) {
        for (int column = 0; in != 0; in &= in - 1, ++column)
          sh_.columns[entry * H + column] = static_cast<uint8_t>(__ffs(static_cast<int>(in)) - 1);
      }
    }
    if (tid_ < rows_ * Shape::kTopK) {
      sh_.slots[all.entry_of(sh_.chosen[tid_]) * H + tid_ / Shape::kTopK] = static_cast<uint8_t>(tid_ % Shape::kTopK);
    }
    if (tid_ == 0) {
      sh_.entries = all.count();
      for (unsigned long long& used : sh_.used) used = 0;
      sh_.attended = 0;
    }
  }

  /// A warp has a tile of (gate, up, gate, up) and a quarter of K. Of one group the columns are all rows, of two groups
  /// the expert's rows, eight at a time: few experts have more.
  __device__ __forceinline__ void gate_up(Act act) {
    const int tile = warp_ & 3, part = warp_ >> 2, grid = static_cast<int>(gridDim.x);
    const int items = sh_.entries * Shape::kInnerBlocks;
#ifdef COHORT_STAMPS
    entry(tile);
    mark(11);
#endif
    const std::byte* values = sh_.records() + at_.t * 8;
    const std::byte* scales = sh_.records() + Shape::kHiddenBlocks * 32;
    ColumnPointers x{values + column(0) * kRecord, scales + min(at_.t * 2, rows_ - 1) * kRecord,
                     scales + min(at_.t * 2 + 1, rows_ - 1) * kRecord, 0, Shape::kHiddenBlocks * 4};
    int first_warp = 0;
    float* sums = sh_.partial;
    for (int item = block_; item < items; item += grid) {
      const int expert = item / Shape::kInnerBlocks;
      const uint32_t in = sh_.rows[expert];
      const int count = __popc(in);
#pragma unroll 1
      for (int first = 0; first < count; first += kEach) {
        const uint8_t* columns = sh_.columns + expert * H + first;
        if constexpr (kGroups == 2) {
          const int last = count - first - 1;
          x.values = values + columns[min(at_.g, last)] * kRecord;
          x.scales0 = scales + columns[min(at_.t * 2, last)] * kRecord;
          x.scales1 = scales + columns[min(at_.t * 2 + 1, last)] * kRecord;
        }
        float acc[1][4];
        two_pairs_tree_of<FA, 4>(entry(tile), part * 16, x, at_, acc);
        store_columns(sums + (tile * 4 + part) * kColumn, acc[0]);
        sync();
        if (kGroups == 1 || first + kEach >= count) release(4);
        const int ahead = (warp_ - first_warp) & (kWarps - 1), here = min(count - first, kEach);
        first_warp = (first_warp + 5) & (kWarps - 1);
        if (ahead < here) {
          int row, column;
          if constexpr (kGroups == 2) {
            column = ahead;
            row = columns[ahead];
          } else {
            uint32_t left = in;
            for (int i = 0; i < ahead; ++i) left &= left - 1;
            column = row = __ffs(static_cast<int>(left)) - 1;
          }
          // Gate, up, gate, up tiles of 16.
          const float* place = sums + (at_.lane >> 4) * 8 * kColumn + column * kColumnFloats + (at_.lane & 15);
          const float gate = tree_of<4>(place, kColumn);
          const float up = tree_of<4>(place + 4 * kColumn, kColumn);
          const float active = act == Act::silu ? numerics::silu<Ops>(gate) : numerics::gelu_tanh<Ops>(gate);
          put_block(args_.rows.activated + activated(expert, row, item % Shape::kInnerBlocks), __fmul_rn(active, up),
                    at_.lane, flag_);
        }
        sums = sums == sh_.partial ? sh_.partial + kWarps * kColumn : sh_.partial;
      }
    }
  }
  __device__ __forceinline__ static int activated(int expert, int row, int block) {
    return ((expert * H + row) * Shape::kInnerBlocks + block) * 4;
  }

  /// Down's ring entries come free in any order, but only a run from the first on can be used again.
  __device__ __forceinline__ void give_back_up_to(int expert) {
    __threadfence_block();
    const unsigned long long mine = 1ULL << (expert & 63);
    unsigned long long used = atomicOr(&sh_.used[expert >> 6], mine) | mine;
    __threadfence_block();
    int run = 0;
    if constexpr (Sizes::kMostEntries > 64) {
      used = atomicOr(&sh_.used[0], 0ULL);
      if (~used == 0) {
        run = 64;
        used = atomicOr(&sh_.used[1], 0ULL);
      }
    }
    run += ~used == 0 ? 64 : __ffsll(static_cast<long long>(~used)) - 1;
    atomicMax(&sh_.released, next_ + static_cast<uint32_t>(run));
  }
  /// More rows: a warp an expert, by pairs of its rows; words of the next are asked for before the last are used.
  __device__ __forceinline__ void down_by_pairs(const FlowLayer& layer) {
    constexpr int kSegment = Shape::kInnerBlocks / 4;
    const int entries = sh_.entries;
    const bool other = layer.down.other != 0;
    FlaggedQuad next[kSegment];
    // Of many experts more of the ring is left to what comes.
    constexpr int kDowners = H > 4 ? kWarps / 2 : kWarps;
    int expert = warp_ < kDowners ? warp_ : entries, first = 0, second = 0;  // rows of the next pair
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
        expert += kDowners;
        in = expert < entries ? sh_.rows[expert] : 0U;
      }
      if (expert < entries) look();
      float acc[4];
      diagonal_of<FA, FB, kSegment>(other, entry(here), 0, words, at_, acc);
      if (at_.t < 2) {
        const int row = at_.t == 0 ? rows[0] : rows[1];
        float* to = sh_.result(0, row * Shape::kTopK + sh_.slots[here * H + row]);
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
    FlaggedQuad next[kSegment], later[kSegment];
    const FlaggedQuad *from = nullptr, *later_from = nullptr;
    const auto ask = [&](const FlaggedQuad* words) {
      later_from = words;
#pragma unroll
      for (int i = 0; i < kSegment; ++i) later[i] = get(words + i * 4);
    };
    const auto look = [&](int expert) {
      const uint32_t in = sh_.rows[min(expert, entries - 1)];
      // Columns that are not there take one that is; their sums are not used.
      const int row = (in >> at_.g & 1U) != 0 ? at_.g : __ffs(static_cast<int>(in)) - 1;
      ask(args_.rows.activated + activated(min(expert, entries - 1), row, half * 2 * kSegment) + at_.t);
    };
    const auto step_on = [&] {
      from = later_from;
#pragma unroll
      for (int i = 0; i < kSegment; ++i) next[i] = later[i];
    };
    look(warp_ >> 1);
    step_on();
    mark(13);
    for (int first = 0; first < entries; first += kAtOnce) {
      const int expert = first + (warp_ >> 1);
      if (expert < entries) {
        const std::byte* tile = nullptr;
        float sums[1][4], acc[1][4];
        clear<1>(acc);
        ask(from + kSegment * 4);
        repeat<FA, 2>([&](int segment) {
          finish<kSegment>([&](int i) { return from + i * 4; }, flag_, next);
          __syncwarp();
          if (segment == 0) tile = entry(warp_ >> 1);
          copy_to<1>(sums, acc);
          segment_of<FA, FB, kSegment, 1>(other, tile, (half * 2 + segment) * kSegment, next, at_, acc);
          step_on();
          if (segment == 0) look(expert + kAtOnce);
          return true;
        });
        add_to<1>(acc, sums);
        const uint32_t in = sh_.rows[expert];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = at_.t * 2 + i;
          if ((in >> row & 1U) == 0) continue;
          float* to = sh_.result(half, row * Shape::kTopK + sh_.slots[expert * H + row]);
          to[at_.g] = acc[0][i];
          to[at_.g + 8] = acc[0][i + 2];
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
      float d = sh_.result(0, route)[in_tile];
      if constexpr (H == 2) d = __fadd_rn(d, sh_.result(1, route)[in_tile]);
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

}  // namespace flow
}  // namespace cohort::cuda
