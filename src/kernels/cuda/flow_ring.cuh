// The kernel of all layers (flow.cuh): what its warps share, words between blocks, and the warp that fills the ring of
// weights and chooses the experts.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/flow.h"
#include "kernels/cuda/segments.cuh"
#include "kernels/cuda/select.cuh"

namespace cohort::cuda {
namespace flow {

using Shape = FlowShape;
inline constexpr int kWarps = 16, kThreads = kWarps * 32, kAllThreads = kThreads + 32;
inline constexpr int kMaxTiles = 3;  // of q, k and v in a block: the grid has 107 blocks at least
inline constexpr int kEntries = 32;  // of the ring at once
inline constexpr int kRing = 186 << 10;
inline constexpr int kHeadBytes = kPageRows * Shape::kHeadDim * 2;
inline constexpr int kMaxPolls = 1 << 24;  // seconds: then something is broken, and an error is better than a hang

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
  float weights[2][Shape::kTopK];
  int keys[kSplitPages], pages[kSplitPages];
  float factor;
  uint64_t full[kEntries], layer_here[2];
  int place[kEntries];
  uint32_t released;
};
inline constexpr int kTotal = kRing + static_cast<int>(sizeof(Shared));
static_assert(kTotal <= 226 << 10);

__device__ __forceinline__ void sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ void put(Flagged* to, uint32_t bits, uint32_t flag) {
  const Flagged word = static_cast<Flagged>(flag) << 32 | bits;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ void put(Flagged* to, float value, uint32_t flag) {
  put(to, __float_as_uint(value), flag);
}
__device__ __forceinline__ Flagged get(const Flagged* from) {
  Flagged word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
/// N words, of which word i is at from(i), once all are of this layer.
template <int N, class From>
__device__ __forceinline__ void take(From&& from, uint32_t flag, uint32_t (&out)[N]) {
  for (int polls = 0;; ++polls) {
    Flagged words[N];
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = get(from(i));
    bool here = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      here = here && static_cast<uint32_t>(words[i] >> 32) == flag;
      out[i] = static_cast<uint32_t>(words[i]);
    }
    if (here) return;
    __nanosleep(40);  // looking again at once is 1% slower: it keeps the memory from others
    if (polls > kMaxPolls) __trap();
  }
}

/// Quantises a block (lane = value) and writes its words.
__device__ __forceinline__ void put_block(Flagged* to, float x, int lane, uint32_t flag) {
  const BlockScale s = block_scale(__reduce_max_sync(kFullMask, __float_as_uint(x) & 0x7fffffffU));
  const int q = quantise_value(x, s);
  const int sums = __reduce_add_sync(kFullMask, lane < 16 ? q : q * 65536);
  uint32_t word = static_cast<uint32_t>(q & 0xff) << (8 * (lane & 3));
  word |= __shfl_xor_sync(kFullMask, word, 1);
  word |= __shfl_xor_sync(kFullMask, word, 2);
  if ((lane & 3) == 0) put(to + activation_slot(lane) / 4, word, flag);
  if (lane == 1) put(to + 8, s.d, flag);
  if (lane == 2) put(to + 9, static_cast<uint32_t>(sums), flag);
}

/// Where value k lies in Shared::x.
__device__ __forceinline__ int packed(int k) {
  return k / 64 * 64 + k % 16 * 4 + k / 16 % 4;
}

/// This block's share of each phase.
struct Share {
  int first_tile, tiles;  // of q, k, v
  int head, rank;         // of attention
  int end;                // visible positions of this split; 0: none
  bool row_tile;          // of the output layer, the router and down
  int first_item, items;  // of gate and up
  __device__ Share(int block, int grid, int position) {
    constexpr int kTiles = (Shape::kAttention + 2 * Shape::kKeys) / kTileRows;
    first_tile = kTiles * block / grid;
    tiles = kTiles * (block + 1) / grid - first_tile;
    head = block / Shape::kMaxSplits;
    rank = block % Shape::kMaxSplits;
    end = head < Shape::kHeads ? max(0, min(position + 1 - rank * kSplit, kSplit)) : 0;
    row_tile = block < Shape::kTiles;
    first_item = Shape::kItems * block / grid;
    items = Shape::kItems * (block + 1) / grid - first_item;
  }
};

/// The warp that fills the ring.
class Filler {
 public:
  __device__ Filler(std::byte* ring, Shared& sh) : ring_(ring), sh_(sh) {}
  /// Room for `bytes` in the next place, whose barrier then expects them; one lane.
  __device__ std::byte* open(uint32_t bytes) {
    const int need = static_cast<int>((bytes + 127) / 128 * 128);
    for (;;) {
      uint32_t released;
      asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                   : "=r"(released)
                   : "r"(shared_address(&sh_.released))
                   : "memory");
      if (released == next_) {
        head_ = 0;
        break;
      }
      if (next_ - released >= kEntries) continue;
      const int tail = sh_.place[released % kEntries];
      if (head_ > tail) {
        if (head_ + need <= kRing) break;
        if (need < tail) {
          head_ = 0;
          break;
        }
      } else if (head_ + need < tail) {
        break;
      }
    }
    barrier_ = &sh_.full[next_ % kEntries];
    std::byte* to = ring_ + head_;
    sh_.place[next_ % kEntries] = head_;
    head_ += need;
    ++next_;
    barrier_expect(barrier_, bytes);
    return to;
  }
  __device__ void copy(std::byte* to, const void* from, uint32_t bytes) { bulk_copy(to, from, bytes, barrier_); }
  __device__ void push(const void* from, uint32_t bytes) { copy(open(bytes), from, bytes); }

 private:
  std::byte* ring_;
  Shared& sh_;
  uint64_t* barrier_ = nullptr;
  uint32_t next_ = 0;
  int head_ = 0;
};

__device__ __forceinline__ void fill(const FlowArgs& args, std::byte* ring, Shared& sh, const Share& share,
                                     uint32_t epoch) {
  const int lane = static_cast<int>(threadIdx.x & 31), block = static_cast<int>(blockIdx.x);
  Filler filler(ring, sh);
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
      if (share.end > 0) {
        const int pages = (share.end + kPageRows - 1) / kPageRows;
        for (const std::byte* from : {layer.keys, layer.values}) {
          std::byte* to = filler.open(static_cast<uint32_t>(pages * kHeadBytes));
          for (int i = 0; i < pages; ++i) {
            const int64_t head =
                int64_t{sh.pages[i]} * Shape::kKvHeads + share.head / (Shape::kHeads / Shape::kKvHeads);
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
    const bool renormalise = layer.renormalise != 0;
    uint32_t bits[4];
    take<4>([&](int i) { return args.logits + i * 32 + lane; }, epoch + static_cast<uint32_t>(l), bits);
    __syncwarp();
    float logits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) logits[i] = __uint_as_float(bits[i]);
    const Choice choice = choose_experts<4>(logits, Shape::kExperts, Shape::kTopK, renormalise);
    if (lane < Shape::kTopK) sh.weights[l & 1][lane] = choice.weight;
    __syncwarp();
    for (int i = 0; i < share.items; ++i) {
      const int item = share.first_item + i;
      const int64_t expert = __shfl_sync(kFullMask, choice.expert, item / Shape::kInnerBlocks);
      if (lane != 0) continue;
      const std::byte* from =
          pair.weights + expert * pair_bytes + int64_t{item % Shape::kInnerBlocks} * 4 * pair.tile_bytes;
      for (int tile = 0; tile < 4; ++tile)
        filler.push(from + int64_t{tile} * pair.tile_bytes, static_cast<uint32_t>(pair.tile_bytes));
    }
    if (!share.row_tile) continue;
    for (int slot = 0; slot < Shape::kTopK; ++slot) {
      const int64_t expert = __shfl_sync(kFullMask, choice.expert, slot);
      if (lane == 0)
        filler.push(down.weights + expert * down_bytes + int64_t{block} * down.tile_bytes,
                    static_cast<uint32_t>(down.tile_bytes));
    }
  }
}

}  // namespace flow
}  // namespace cohort::cuda
