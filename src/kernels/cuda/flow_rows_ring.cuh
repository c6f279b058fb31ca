// The kernel of all layers for several rows (flow_rows.cuh): what its warps share, and the warp that fills the ring of
// weights and lists the experts.
#pragma once

#include "kernels/cuda/flow_parts.cuh"

namespace cohort::cuda {
namespace flow {

inline constexpr int kRowTiles = 3;      // of q, k and v in a block: the grid has 107 blocks at least
inline constexpr int kEntryPages = 4;    // of K or V in an entry of the ring: smaller ones find room earlier
inline constexpr int kChoosers = 8;      // warps, one a row
inline constexpr int kRoleBlocks = 128;  // blocks that share rows: norms, the router, attention
inline constexpr int kRecord = shared_record(Shape::kHiddenBlocks, true);

/// H: most rows, and the heads that a block of attention has: 32 heads of H rows are 128 / 4 splits sets of H heads.
template <int H>
struct RowsShared {
  static constexpr int kScoreParts = H > 2 ? 2 : 4;  // warps that share the positions of a split
  static constexpr int kColumn = H * kColumnFloats;  // floats of one part of a tile's sums
  alignas(16) std::byte records[H * kRecord];        // the experts' input
  alignas(16) float partial[kRowTiles * kWarps * kColumn];
  alignas(16) float results[H == 2 ? 2 : 1][H * Shape::kTopK][kTileRows];  // of down: halves of K, routes
  alignas(16) float work[H > 4 ? H*(Shape::kHeadDim + kSplit) : Shape::kHidden];
  alignas(16) FlowLayer layers[2];
  alignas(16) float fresh_v[Shape::kHeadDim];
  float cosines[Shape::kHeadDim / 2], sines[Shape::kHeadDim / 2];
  float own[H * kTileRows];  // this block's values of the residual
  int keys[H * kScoreParts], pages[kSplitPages];
  float factor;
  // The experts of a layer.
  float weights[H * Shape::kTopK];  // by row and slot
  int chosen[H * Shape::kTopK];
  uint4 masks[kFlowRows];                   // of a row's experts
  int experts[kFlowEntries];                // in rising order
  uint32_t rows[kFlowEntries];              // bits of rows
  uint8_t slots[kFlowEntries * kFlowRows];  // of a row
  int entries;
  uint64_t full[kEntries], layer_here[2];
  int place[kEntries];
  uint32_t released;
  unsigned long long used;  // bits of the experts that down is done with

  // Parts that are not in use at the same time.
  __device__ float* x() { return work; }                        // [hidden], packed as the router's weights are
  __device__ float* q() { return work; }                        // [H][head_dim]
  __device__ float* p() { return work + H * Shape::kHeadDim; }  // [256][H]
  __device__ float* exchange() { return partial; }              // [4][H][head_dim]
};
template <int H>
struct RowsPlace : RowsShared<H> {
  static constexpr int kRing = (226 << 10) - (static_cast<int>(sizeof(RowsShared<H>)) + 127) / 128 * 128;
};

/// This block's share of each phase.
template <int H>
struct RowsShare {
  static constexpr int kSets = Shape::kHeads / H;  // of a row's heads
  int first_tile, tiles;                           // of q, k, v
  int row, part;                                   // of norms and the router; row < 0: none
  int first_head, rank;                            // of attention
  int position, end;                               // of the row; visible positions of this split, 0: none
  bool row_tile;                                   // of the output layer and down
  __device__ RowsShare(const Step& step, int rows, int block, int grid) {
    constexpr int kTiles = (Shape::kAttention + 2 * Shape::kKeys) / kTileRows;
    constexpr int kParts = kRoleBlocks / H;
    static_assert(kParts == kSets * Shape::kMaxSplits);
    first_tile = kTiles * block / grid;
    tiles = kTiles * (block + 1) / grid - first_tile;
    row = block / kParts < rows ? block / kParts : -1;
    part = block % kParts;
    first_head = part / Shape::kMaxSplits * H;
    rank = part % Shape::kMaxSplits;
    position = row >= 0 ? step.positions[row] : 0;
    end = row >= 0 ? max(0, min(position + 1 - rank * kSplit, kSplit)) : 0;
    row_tile = block < Shape::kTiles;
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
  const int lane = static_cast<int>(threadIdx.x & 31), block = static_cast<int>(blockIdx.x);
  const int grid = static_cast<int>(gridDim.x);
  Filler<RowsPlace<H>> filler(ring, sh);
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
      if (share.end > 0) {
        const int pages = (share.end + kPageRows - 1) / kPageRows;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          const std::byte* from = half == 0 ? layer.keys : layer.values;
          std::byte* to = nullptr;
#pragma unroll 1
          for (int i = 0; i < pages; ++i) {
            if (i % kEntryPages == 0) to = filler.open(static_cast<uint32_t>(min(pages - i, kEntryPages) * kHeadBytes));
            const int64_t head =
                int64_t{sh.pages[i]} * Shape::kKvHeads + share.first_head / (Shape::kHeads / Shape::kKvHeads);
            filler.copy(to + i % kEntryPages * kHeadBytes, from + head * kHeadBytes, kHeadBytes);
          }
        }
      }
      if (share.row_tile) {
        filler.push(layer.output.weights + int64_t{block} * layer.output.tile_bytes,
                    static_cast<uint32_t>(layer.output.tile_bytes));
      }
      if (share.row >= 0) filler.push(layer.router + int64_t{share.part} * H * Shape::kHidden, H * Shape::kHidden * 4);
    }
    __syncwarp();
    const FlowDense pair = layer.pair, down = layer.down;
    const int64_t pair_bytes = layer.pair_bytes, down_bytes = layer.down_bytes;
    asm volatile("bar.sync 2, %0;" ::"n"((kChoosers + 1) * 32) : "memory");
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
