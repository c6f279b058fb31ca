// The kernel of all layers for several rows (flow_rows.cuh): what its warps share, and the warp that fills the ring of
// weights and lists the experts.
#pragma once

#include "kernels/cuda/flow_parts.cuh"

namespace cohort::cuda {
namespace flow {

inline constexpr int kRowTiles = 3;      // of q, k and v in a block: the grid has 107 blocks at least
inline constexpr int kEntryPages = 4;    // of K or V in an entry of the ring: smaller ones find room earlier
inline constexpr int kRoleBlocks = 128;  // blocks that share rows: norms, the router, attention
inline constexpr int kRecord = shared_record(Shape::kHiddenBlocks, true);

/// H: most rows. Up to eight are one group of columns of the products; sixteen are two, and a block serves two rows.
template <int H>
struct RowsSizes {
  static constexpr int kGroups = H > 8 ? 2 : 1;
  static constexpr int kEach = H / kGroups;  // rows of a group; heads and experts of the router that a block has of a
                                             // row: 32 heads of kEach rows are 128 / 4 splits sets of kEach heads
  static constexpr int kTeamWarps = kWarps / kGroups, kTeam = kTeamWarps * 32;  // threads of a row's attention
  static constexpr int kChoosers = kGroups * 8;                                 // warps, one a row
  static constexpr int kMostEntries = H * Shape::kTopK;                         // experts of a layer
  static constexpr int kScoreParts = kGroups == 1 ? 8 : 2;                      // warps that share a split's positions
  static constexpr int kSplits = kGroups == 1 ? Shape::kMaxSplits : Shape::kSplitBlocks;  // of a row, at most
  static constexpr int kRounds = kSplits / Shape::kSplitBlocks;  // of attention: a block has one split in each
  static constexpr int kColumn = kEach * kColumnFloats;          // floats of one part of a tile's sums, a group
  static constexpr int kHalves = H == 2 ? 2 : 1;                 // of K in down's results
  // Floats of a team: q and p, later (two teams) the values' parts; or a row.
  static constexpr int kAttend = kEach * (Shape::kHeadDim + kSplit), kParts = 4 * kEach * Shape::kHeadDim;
  static constexpr int kWork = kGroups == 2 ? kParts : kAttend > Shape::kHidden ? kAttend : Shape::kHidden;
  static constexpr int kResults = kHalves * kMostEntries * kTileRows;
  // Where the sums of a block's third tile of q, k and v are: behind the rows and (two teams) the second q.
  static constexpr int kThird = kGroups == 2 ? kWork + kEach * Shape::kHeadDim : Shape::kHidden;
  static constexpr int kRecords = H * kRecord, kOthers = (kGroups * kWork + kResults) * 4;
  static constexpr int kSums = (kThird + kWarps * kColumn) * 4;
  static constexpr int kMost = kRecords > kOthers ? kRecords : kOthers, kPhases = kMost > kSums ? kMost : kSums;
};

template <int H>
struct RowsShared : RowsSizes<H> {
  using Sizes = RowsSizes<H>;
  /// Of phases that no warps are in at the same time: the experts' input; or a row's values and attention, and behind
  /// them down's results, which the next layer's first row must not meet.
  alignas(16) std::byte phases[Sizes::kPhases];
  alignas(16) float partial[2 * kWarps * Sizes::kColumn];
  alignas(16) FlowLayer layers[2];
  alignas(16) float fresh_v[Sizes::kGroups][Shape::kHeadDim];
  float cosines[Sizes::kGroups][Shape::kHeadDim / 2], sines[Sizes::kGroups][Shape::kHeadDim / 2];
  float own[H * kTileRows];  // this block's values of the residual
  alignas(16) int keys[Sizes::kGroups][Sizes::kEach * Sizes::kScoreParts];
  int pages[Sizes::kGroups][Sizes::kRounds * kSplitPages];  // of all rounds
  int positions[Sizes::kGroups];                            // of the teams' rows, -1: none
  int team_entries[Sizes::kGroups];                         // of the ring, with K or with V of the first round
  float factors[Sizes::kGroups];
  // The experts of a layer.
  float weights[H * Shape::kTopK];  // by row and slot
  int chosen[H * Shape::kTopK];
  uint4 masks[H];                            // of a row's experts
  int experts[Sizes::kMostEntries];          // in rising order
  uint32_t rows[Sizes::kMostEntries];        // bits of rows
  uint8_t slots[Sizes::kMostEntries * H];    // of a row
  uint8_t columns[Sizes::kMostEntries * H];  // rows in rising order; two groups only
  int entries;
  uint64_t full[kEntries], layer_here[2];
  int place[kEntries];
  uint32_t released, attended;                                // attended: bits of K and V that teams are done with
  unsigned long long used[Sizes::kMostEntries > 64 ? 2 : 1];  // bits of the experts that down is done with

  __device__ float* work(int team) { return reinterpret_cast<float*>(phases) + team * Sizes::kWork; }
  /// Sums of tile i of q, k and v.
  __device__ float* sums(int i) { return i < 2 ? partial + i * kWarps * Sizes::kColumn : work(0) + Sizes::kThird; }
  __device__ std::byte* records() { return phases; }
  __device__ float* x(int i) { return work(0) + i * Shape::kHidden; }  // [hidden], packed as the router's weights are
  __device__ float* q(int team) { return work(team); }                 // [heads][head_dim]
  __device__ float* p(int team) { return work(team) + Sizes::kEach * Shape::kHeadDim; }  // [256][heads]
  /// [4][heads][head_dim]
  __device__ float* exchange(int team) { return Sizes::kGroups == 1 ? partial : work(team); }
  /// Of down, [halves of K][routes][16].
  __device__ float* result(int half, int route) {
    return work(Sizes::kGroups) + (half * Sizes::kMostEntries + route) * kTileRows;
  }
};
template <int H>
struct RowsPlace : RowsShared<H> {
  static constexpr int kRing = (226 << 10) - (static_cast<int>(sizeof(RowsShared<H>)) + 127) / 128 * 128;
};

/// Of the ring, with so many pages of K or V.
__device__ __forceinline__ int entries_of(int pages) {
  return (pages + kEntryPages - 1) / kEntryPages;
}

/// This block's share of each phase.
template <int H>
struct RowsShare {
  using Sizes = RowsSizes<H>;
  int first_tile, tiles;  // of q, k, v
  int row, part;          // of norms and the router; row < 0: none. Of two groups also row + 8, if there is one
  int first_head;         // of attention
  bool row_tile;          // of the output layer and down
  __device__ RowsShare(int rows, int block, int grid) {
    constexpr int kTiles = (Shape::kAttention + 2 * Shape::kKeys) / kTileRows, kParts = kRoleBlocks / Sizes::kEach;
    static_assert(kParts == Shape::kHeads / Sizes::kEach * Shape::kSplitBlocks);
    first_tile = kTiles * block / grid;
    tiles = kTiles * (block + 1) / grid - first_tile;
    row = block / kParts < min(rows, Sizes::kEach) ? block / kParts : -1;
    part = block % kParts;
    first_head = part / Shape::kSplitBlocks * Sizes::kEach;
    row_tile = block < Shape::kTiles;
  }
  /// Of attention a block, or a half of its warps (a team), has some heads of a row's splits rank, rank + kSplitBlocks,
  /// ..., one a round. Of two rows the second has another rank, so that full splits meet short or absent ones.
  __device__ __forceinline__ int rank(int team) const { return part % Shape::kSplitBlocks ^ (team * 2); }
  __device__ __forceinline__ int row_of(int team) const { return row + team * Sizes::kEach; }
  /// Of the team's row; -1: none.
  __device__ __forceinline__ int position(const Step& step, int rows, int team) const {
    return row >= 0 && row_of(team) < rows ? step.positions[row_of(team)] : -1;
  }
  /// Visible positions of a round's split, 0: none.
  __device__ __forceinline__ int end(int position, int team, int round) const {
    return visible(position, rank(team) + round * Shape::kSplitBlocks);
  }
  __device__ __forceinline__ int rounds(int position) const {
    return Sizes::kRounds == 1 ? 1 : rounds_of(position, rank(0));
  }
};
/// The experts of all rows as bits; an entry is an expert's rank among them.
struct ExpertSet {
  uint32_t bits[4] = {};
  __device__ __forceinline__ void add(uint4 more) {
    bits[0] |= more.x;
    bits[1] |= more.y;
    bits[2] |= more.z;
    bits[3] |= more.w;
  }
  __device__ __forceinline__ int count() const {
    return __popc(bits[0]) + __popc(bits[1]) + __popc(bits[2]) + __popc(bits[3]);
  }
  __device__ __forceinline__ int entry_of(int expert) const {
    int before = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t lower = i < expert / 32 ? ~0U : i > expert / 32 ? 0U : (1U << expert % 32) - 1U;
      before += __popc(bits[i] & lower);
    }
    return before;
  }
  __device__ __forceinline__ int expert_of(int entry) const {
    uint32_t word = bits[0];
    int first = 0;
#pragma unroll
    for (int i = 1; i < 4; ++i) {
      const int here = __popc(word);
      if (first != (i - 1) * 32 || entry < here) continue;
      entry -= here;
      word = bits[i];
      first = i * 32;
    }
#pragma unroll 1
    for (; entry > 0; --entry) word &= word - 1U;
    return first + __ffs(static_cast<int>(word)) - 1;
  }
};

/// The warp that fills the ring, and lists the experts once the rows' warps have chosen.
template <int H>
__device__ __forceinline__ void fill_rows(const FlowArgs& args, std::byte* ring, RowsPlace<H>& sh,
                                          const RowsShare<H>& share, int rows) {
  using Sizes = RowsSizes<H>;
  const int lane = static_cast<int>(threadIdx.x & 31), block = static_cast<int>(blockIdx.x);
  const int grid = static_cast<int>(gridDim.x);
  Filler<RowsPlace<H>> filler(ring, sh);
  const int rounds = share.rounds(sh.positions[0]);
  int touched = 0;
  for (int l = 0; l < args.count; ++l) {
    const FlowLayer& layer = args.layers[l];
    if (lane == 0) {
      // The compute warps are done with the layer before the last: they chose experts of the last one.
      barrier_expect(&sh.layer_here[l & 1], sizeof(FlowLayer));
      bulk_copy(&sh.layers[l & 1], &layer, sizeof(FlowLayer), &sh.layer_here[l & 1]);
#pragma unroll 1
      for (int i = 0; i < share.tiles; ++i) {
        const int tile = share.first_tile + i;
        const bool second = tile >= layer.dense[0].tiles;
        const FlowDense& dense = layer.dense[second ? 1 : 0];
        filler.push(dense.weights + int64_t{tile - (second ? layer.dense[0].tiles : 0)} * dense.tile_bytes,
                    static_cast<uint32_t>(dense.tile_bytes));
      }
#pragma unroll 1
      for (int i = 0; i < rounds * 2 * Sizes::kGroups; ++i) {  // of a round K of all teams, V of all teams
        const int team = i % Sizes::kGroups, round = i / (2 * Sizes::kGroups);
        const int pages = pages_of(share.end(sh.positions[team], team, round));
        const std::byte* from = i / Sizes::kGroups % 2 == 0 ? layer.keys : layer.values;
        std::byte* to = nullptr;
#pragma unroll 1
        for (int page = 0; page < pages; ++page) {
          if (page % kEntryPages == 0)
            to = filler.open(static_cast<uint32_t>(min(pages - page, kEntryPages) * kHeadBytes));
          const int64_t head = int64_t{sh.pages[team][round * kSplitPages + page]} * Shape::kKvHeads +
                               share.first_head / (Shape::kHeads / Shape::kKvHeads);
          filler.copy(to + page % kEntryPages * kHeadBytes, from + head * kHeadBytes, kHeadBytes);
        }
      }
      if (share.row_tile) {
        filler.push(layer.output.weights + int64_t{block} * layer.output.tile_bytes,
                    static_cast<uint32_t>(layer.output.tile_bytes));
      }
      if (share.row >= 0) {
        filler.push(layer.router + int64_t{share.part} * Sizes::kEach * Shape::kHidden,
                    Sizes::kEach * Shape::kHidden * 4);
      }
    }
    __syncwarp();
    const FlowDense pair = layer.pair, down = layer.down;
    const int64_t pair_bytes = layer.pair_bytes, down_bytes = layer.down_bytes;
    asm volatile("bar.sync 2, %0;" ::"n"((Sizes::kChoosers + 1) * 32) : "memory");
    ExpertSet all;
    const uint4 mine = sh.masks[lane < rows ? lane : 0];
    all.add(make_uint4(__reduce_or_sync(kFullMask, mine.x), __reduce_or_sync(kFullMask, mine.y),
                       __reduce_or_sync(kFullMask, mine.z), __reduce_or_sync(kFullMask, mine.w)));
    const int entries = all.count();
    const auto push_item = [&](int64_t expert, int unit) {
      const std::byte* from = pair.weights + expert * pair_bytes + int64_t{unit} * 4 * pair.tile_bytes;
#pragma unroll 1
      for (int tile = 0; tile < 4; ++tile)
        filler.push(from + int64_t{tile} * pair.tile_bytes, static_cast<uint32_t>(pair.tile_bytes));
    };
    // Its first item is asked for before anything else.
    if (lane == 0) push_item(all.expert_of(block / Shape::kInnerBlocks), block % Shape::kInnerBlocks);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int expert = i * 32 + lane;
      if ((all.bits[i] >> lane & 1U) != 0) sh.experts[all.entry_of(expert)] = expert;
    }
    __syncwarp();
    touched += entries;
    if (lane != 0) continue;
#pragma unroll 1
    for (int item = block + grid; item < entries * Shape::kInnerBlocks; item += grid)
      push_item(sh.experts[item / Shape::kInnerBlocks], item % Shape::kInnerBlocks);
    if (!share.row_tile) continue;
#pragma unroll 1
    for (int entry = 0; entry < entries; ++entry) {
      filler.push(down.weights + sh.experts[entry] * down_bytes + int64_t{block} * down.tile_bytes,
                  static_cast<uint32_t>(down.tile_bytes));
    }
  }
  if (block == 0 && lane == 0) *args.distinct += touched;
}

}  // namespace flow
}  // namespace cohort::cuda
