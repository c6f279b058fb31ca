// The kernel of all layers (flow.cuh): what its warps share, words between blocks, and the warp that fills the ring of
// weights and chooses the experts.
#pragma once

#include "kernels/cuda/flow_parts.cuh"

namespace cohort::cuda {
namespace flow {

inline constexpr int kMaxTiles = 3;  // of q, k and v in a block: the grid has 107 blocks at least

/// Quantised rows as records (Quantised) in shared memory.
template <int Blocks>
struct Record {
  alignas(16) std::byte values[Blocks * 32];
  float scales[Blocks];
  int32_t sums[Blocks];
  __device__ __forceinline__ ColumnPointers columns(Lane at) const {
    const auto* scale = reinterpret_cast<const std::byte*>(scales);
    return {values + at.t * 8, scale, scale, 0, Blocks * 4};
  }
  /// Word `word` (kFlowBlock) of block `block`.
  __device__ __forceinline__ void put(int block, int word, uint32_t bits) {
    if (word < 8) {
      reinterpret_cast<uint32_t*>(values)[block * 8 + word] = bits;
    } else if (word == 8) {
      scales[block] = __uint_as_float(bits);
    } else {
      sums[block] = static_cast<int32_t>(bits);
    }
  }
};

struct Shared {
  static constexpr int kRing = 186 << 10;
  Record<Shape::kHiddenBlocks> row;
  Record<Shape::kAttentionBlocks> attended;
  Record<Shape::kInnerBlocks> hidden[Shape::kTopK];
  alignas(16) FlowLayer layers[2];
  alignas(16) float x[Shape::kHidden];          // packed as the router's weights are
  alignas(16) float partial[2][4][kWarps][16];  // of one phase: tiles, parts
  alignas(16) float down[Shape::kTopK][4][16];  // slots, segments
  alignas(16) float q[Shape::kHeadDim], p[kSplit];
  float exchange[4][Shape::kHeadDim], fresh_v[Shape::kHeadDim];
  float cosines[Shape::kHeadDim / 2], sines[Shape::kHeadDim / 2];
  float own[16];  // this block's values of the residual
  float weights[Shape::kTopK];
  int keys[kSplitPages], pages[kRounds * kSplitPages];  // pages: of all rounds
  float factor;
  uint64_t full[kEntries], layer_here[2];
  int place[kEntries];
  uint32_t released;
};
inline constexpr int kTotal = Shared::kRing + static_cast<int>(sizeof(Shared));
static_assert(kTotal <= 226 << 10);

/// This block's share of each phase.
struct Share {
  int first_tile, tiles;  // of q, k, v
  int head, rank;         // of attention
  int rounds;             // splits of attention: rank, rank + kSplitBlocks, ...
  bool row_tile;          // of the output layer, the router and down
  int first_item, items;  // of gate and up
  __device__ Share(int block, int grid, int position) {
    constexpr int kTiles = (Shape::kAttention + 2 * Shape::kKeys) / kTileRows;
    first_tile = kTiles * block / grid;
    tiles = kTiles * (block + 1) / grid - first_tile;
    head = block / Shape::kSplitBlocks;
    rank = block % Shape::kSplitBlocks;
    rounds = head < Shape::kHeads ? rounds_of(position, rank) : 0;
    row_tile = block < Shape::kTiles;
    first_item = Shape::kItems * block / grid;
    items = Shape::kItems * (block + 1) / grid - first_item;
  }
};

__device__ __forceinline__ void fill(const FlowArgs& args, std::byte* ring, Shared& sh, const Share& share,
                                     uint32_t epoch, int position) {
  const int lane = static_cast<int>(threadIdx.x & 31), block = static_cast<int>(blockIdx.x);
  Filler<Shared> filler(ring, sh);
  for (int l = 0; l < args.count; ++l) {
    const FlowLayer& layer = args.layers[l];
    if (lane == 0) {
      // The compute warps are done with the layer before the last: they gave logits of the last one.
      barrier_expect(&sh.layer_here[l & 1], sizeof(FlowLayer));
      bulk_copy(&sh.layers[l & 1], &layer, sizeof(FlowLayer), &sh.layer_here[l & 1]);
      for (int i = 0; i < share.tiles; ++i) {
        const int tile = share.first_tile + i;
        const bool second = tile >= layer.dense[0].tiles;
        const FlowDense& dense = layer.dense[second ? 1 : 0];
        filler.push(dense.weights + int64_t{tile - (second ? layer.dense[0].tiles : 0)} * dense.tile_bytes,
                    static_cast<uint32_t>(dense.tile_bytes));
      }
#pragma unroll 1
      for (int round = 0; round < share.rounds; ++round) {
        const int pages = pages_of(visible(position, share.rank + round * Shape::kSplitBlocks));
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          const std::byte* from = half == 0 ? layer.keys : layer.values;
          std::byte* to = filler.open(static_cast<uint32_t>(pages * kHeadBytes));
#pragma unroll 1
          for (int i = 0; i < pages; ++i) {
            const int64_t head = int64_t{sh.pages[round * kSplitPages + i]} * Shape::kKvHeads +
                                 share.head / (Shape::kHeads / Shape::kKvHeads);
            filler.copy(to + i * kHeadBytes, from + head * kHeadBytes, kHeadBytes);
          }
        }
      }
      if (share.row_tile) {
        filler.push(layer.output.weights + int64_t{block} * layer.output.tile_bytes,
                    static_cast<uint32_t>(layer.output.tile_bytes));
        filler.push(layer.router + int64_t{block} * Shape::kHidden, Shape::kHidden * 4);
      }
    }
    __syncwarp();
    const FlowDense pair = layer.pair, down = layer.down;
    const int64_t pair_bytes = layer.pair_bytes, down_bytes = layer.down_bytes;
    float logits[kLogits];
    take_logits(args.logits, epoch + static_cast<uint32_t>(l), logits);
    const int chosen = rank_experts(logits).expert;
#pragma unroll 1
    for (int i = 0; i < share.items; ++i) {
      const int item = share.first_item + i;
      const int64_t expert = __shfl_sync(kFullMask, chosen, item / Shape::kInnerBlocks);
      if (lane == 0) {
        const std::byte* from =
            pair.weights + expert * pair_bytes + int64_t{item % Shape::kInnerBlocks} * 4 * pair.tile_bytes;
#pragma unroll 1
        for (int tile = 0; tile < 4; ++tile)
          filler.push(from + int64_t{tile} * pair.tile_bytes, static_cast<uint32_t>(pair.tile_bytes));
      }
    }
    if (!share.row_tile) continue;
#pragma unroll 1
    for (int slot = 0; slot < Shape::kTopK; ++slot) {
      const int64_t expert = __shfl_sync(kFullMask, chosen, slot);
      if (lane == 0)
        filler.push(down.weights + expert * down_bytes + int64_t{block} * down.tile_bytes,
                    static_cast<uint32_t>(down.tile_bytes));
    }
  }
}

}  // namespace flow
}  // namespace cohort::cuda
