// All layers of a step of one row (flow.cuh) or of up to sixteen (flow_rows.cuh) as one kernel: what it is told, and
// its limits.
#pragma once

#include "kernels/cuda/args.h"

namespace cohort::cuda {

/// The sizes it is made for, those of qwen3-30b-a3b: its warps share K by these.
struct FlowShape {
  static constexpr int kHidden = 2048, kHeads = 32, kKvHeads = 4, kHeadDim = 128, kInner = 768, kExperts = 128,
                       kTopK = 8;
  static constexpr int kAttention = kHeads * kHeadDim, kKeys = kKvHeads * kHeadDim;
  static constexpr int kHiddenBlocks = kHidden / 32, kAttentionBlocks = kAttention / 32, kInnerBlocks = kInner / 32;
  static constexpr int kTiles = kHidden / kTileRows;  // of the output layer and of down
  static constexpr int kItems = kTopK * kInnerBlocks;
  static constexpr int kSplitBlocks = 4;  // that share the splits of a head
  static constexpr int kMaxSplits = 32;   // a lane each when they meet
};

/// Weights of q, k and v as they were stacked: one matrix, or two where the types differ.
struct FlowDense {
  const std::byte* weights = nullptr;
  int32_t tiles = 0, tile_bytes = 0;
  int32_t first = 0;  // value of the q, k, v row where its outputs start
  int32_t other = 0;  // of the second format
};
struct alignas(16) FlowLayer {
  FlowDense dense[2];
  FlowDense output, pair, down;  // pair, down: of one expert
  int64_t pair_bytes = 0, down_bytes = 0;
  const float* router = nullptr;
  const float* attention_norm = nullptr;
  const float* expert_norm = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  int32_t q = 0, k = 0, v = 0;  // where they start in the q, k, v row
  float attention_eps = 0, expert_eps = 0, q_eps = 0, k_eps = 0;
  int32_t renormalise = 0;
  Act act = Act::silu;
};

/// A value that another block waits for stands beside the number of the layer it was made in: a word of 8 bytes is
/// read whole, so it needs no barrier.
using Flagged = unsigned long long;
/// The same for three words. Of a quantised block: lane t's eight values and one more word, in lane 0 the scale, in
/// lane 1 the sums (Quantised); so a lane of an mma gets its operand by one load.
struct alignas(16) FlaggedQuad {
  uint32_t first, second, more, flag;
};
/// What blocks tell each other in steps of several rows.
struct FlowRowWords {
  Flagged* x = nullptr;              // [rows][hidden] into a layer
  Flagged* middle = nullptr;         // [rows][hidden] after attention
  Flagged* heads = nullptr;          // [rows][q, k, v]
  Flagged* partial = nullptr;        // [rows][heads][splits][kFlowPartial]
  Flagged* logits = nullptr;         // [rows][experts]
  FlaggedQuad* normed = nullptr;     // [rows][blocks][4] into q, k, v
  FlaggedQuad* attended = nullptr;   // [rows][blocks][4]
  FlaggedQuad* routed = nullptr;     // [rows][blocks][4] into the experts
  FlaggedQuad* activated = nullptr;  // [entries][rows][blocks][4]
};
struct FlowArgs {
  Step step;
  const FlowLayer* layers = nullptr;
  int32_t count = 0;
  const uint32_t* epoch = nullptr;  // flag of the first layer; see launch_flow
  const float* cosines = nullptr;   // [positions, 64]
  const float* sines = nullptr;
  float scale = 1;
  Rows input, out;
  int32_t* distinct = nullptr;
  Flagged* x = nullptr;         // [hidden] into a layer
  Flagged* middle = nullptr;    // [hidden] after attention
  Flagged* heads = nullptr;     // [q, k, v]
  Flagged* partial = nullptr;   // [heads][splits][kFlowPartial]
  Flagged* attended = nullptr;  // [blocks][kFlowBlock]
  Flagged* logits = nullptr;    // [experts]
  Flagged* hidden = nullptr;    // [slots][blocks][kFlowBlock]
  FlowRowWords rows;
};
inline constexpr int kFlowPartial = FlowShape::kHeadDim + 2;  // maximum, sum, values
inline constexpr int kFlowBlock = 10;  // words of a quantised block: values in slot order, scale, sums
inline constexpr int kFlowWords = 2 * FlowShape::kHidden + FlowShape::kAttention + 2 * FlowShape::kKeys +
                                  FlowShape::kHeads * FlowShape::kMaxSplits * kFlowPartial +
                                  FlowShape::kAttentionBlocks * kFlowBlock + FlowShape::kExperts +
                                  FlowShape::kItems * kFlowBlock;
/// Positions of a context, at most, in a step of so many rows: of more than eight a block has one split a row.
inline constexpr int flow_positions(int rows) {
  return 256 * (rows > 8 ? FlowShape::kSplitBlocks : FlowShape::kMaxSplits);
}
inline constexpr int kFlowRows = 16;                               // most rows
inline constexpr int kFlowEntries = kFlowRows * FlowShape::kTopK;  // most experts of a layer
inline constexpr int kFlowRowWords = 2 * FlowShape::kHidden + FlowShape::kAttention + 2 * FlowShape::kKeys +
                                     FlowShape::kHeads * FlowShape::kMaxSplits * kFlowPartial + FlowShape::kExperts;
inline constexpr int kFlowRowQuads =
    4 * (2 * FlowShape::kHiddenBlocks + FlowShape::kAttentionBlocks + kFlowEntries * FlowShape::kInnerBlocks);

/// The formats of a model's layers: one for all, or q4_k with q6_k for some of v and down.
enum class FlowFormats : int32_t { q4, q8, k };
/// The kernels: of one row, and of up to so many rows.
enum class FlowRows : int32_t { none = 0, one = 1, two = 2, four = 4, eight = 8, sixteen = 16 };
/// Whether this device has room for all blocks at once.
bool flow_fits(FlowFormats formats, int sms);
/// Adds to the flag, then runs the layers.
void launch_flow(FlowFormats formats, FlowRows rows, const FlowArgs& args, uint32_t* epoch, int sms,
                 cudaStream_t stream);

}  // namespace cohort::cuda
