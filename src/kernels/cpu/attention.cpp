#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_impl.h"
#include "numerics/simd_generic.h"

namespace cohort::cpu {

extern const AttentionKernels kAvx2Attention, kAvx512Attention, kNeonAttention;

namespace {

constinit const AttentionKernels kScalarAttention = Attention<numerics::GenericOps>::table();

// Query rows times heads of a block: enough that converting K and V and loading them from L2 is paid once for many
// rows, few enough that the block's scores (256 floats each) stay in L2.
constexpr int32_t kBlockTiles = 8;
// Jobs per thread that a step is cut into, so that the last ones end together.
constexpr double kJobsPerThread = 4;
// Rough costs of one cached value (K and V) of one position, in ns: reading it once, multiplying it per query.
constexpr double kReadCost = 0.17, kQueryCost = 0.03;

double cost_of(double positions, double queries, double head_dim) {
  return positions * head_dim * std::max(2 * kReadCost, queries * kQueryCost);
}

}  // namespace

const AttentionKernels& attention_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return kAvx2Attention;
    case Isa::avx512:
    case Isa::amx:
      return kAvx512Attention;
#elif defined(__aarch64__)
    case Isa::neon:
      return kNeonAttention;
#endif
    default:
      return kScalarAttention;
  }
}

AttentionCall make_attention_call(const op::Attend& attend, const Batch& batch, KvCache& cache, const float* q,
                                  float* out, float* shared) {
  const size_t stride = 2 * KvCache::half_page(cache.type(), attend.kv_heads, attend.head_dim);
  return {attend,
          cache.type(),
          batch.sequences.data(),
          cache.keys(attend.cache_layer, 0),
          cache.values(attend.cache_layer, 0),
          stride,
          q,
          out,
          shared,
          attend.sinks != nullptr ? attend.sinks->values.data() : nullptr,
          false};
}

bool AttentionPlan::fits(const op::Attend& attend) const {
  return attend.heads == shape_.heads && attend.kv_heads == shape_.kv_heads && attend.head_dim == shape_.head_dim &&
         attend.window == shape_.window;
}

AttentionPlan::AttentionPlan(const op::Attend& shape, const Batch& batch, const AttentionKernels& kernels, int threads)
    : shape_(shape) {
  const int32_t group = shape.heads / shape.kv_heads;
  const int32_t block_rows = std::max(1, kBlockTiles * kernels.tile_rows / group);
  const int64_t width = round_up(shape.head_dim, 16);
  std::vector<AttentionJob> blocks;
  double total = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceRows& sequence = batch.sequences[s];
    for (int32_t row = 0; row < sequence.rows; row += block_rows) {
      AttentionJob block;
      block.sequence = static_cast<int32_t>(s);
      block.first_row = row;
      block.rows = std::min(block_rows, sequence.rows - row);
      const int32_t begin = visible_positions(sequence, row, shape.window).begin;
      const int32_t end = visible_positions(sequence, row + block.rows - 1, shape.window).end;
      block.block_split = block.first_split = begin / kSplitPositions;
      block.block_splits = block.splits = (end - 1) / kSplitPositions - block.block_split + 1;
      block.cost = static_cast<float>(cost_of(end - begin, block.rows * group, shape.head_dim));
      total += static_cast<double>(block.cost) * shape.kv_heads;
      blocks.push_back(block);
    }
  }
  const double target = total / (kJobsPerThread * threads);
  for (const AttentionJob& block : blocks) {
    const int64_t queries = padded_queries(int64_t{block.rows} * group, kernels.tile_rows);
    const ScratchLayout scratch{queries, shape.head_dim, width};
    const PartialLayout partials{queries, block.splits, width};
    const auto pieces = static_cast<int32_t>(std::clamp(std::ceil(block.cost / target), 1.0, double(block.splits)));
    scratch_floats_ =
        std::max(scratch_floats_, static_cast<size_t>(scratch.partials() + (pieces == 1 ? partials.floats() : 0)));
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      AttentionJob job = block;
      job.kv_head = head;
      if (pieces == 1) {
        jobs_.push_back(job);
        continue;
      }
      job.partials = static_cast<int64_t>(shared_floats_);
      shared_floats_ += static_cast<size_t>(round_up(partials.floats(), 16));
      merges_.push_back(job);
      for (int32_t piece = 0; piece < pieces; ++piece) {
        const auto from = static_cast<int32_t>(int64_t{block.splits} * piece / pieces);
        const auto to = static_cast<int32_t>(int64_t{block.splits} * (piece + 1) / pieces);
        job.first_split = block.first_split + from;
        job.splits = to - from;
        job.cost = block.cost * static_cast<float>(job.splits) / static_cast<float>(block.splits);
        jobs_.push_back(job);
      }
    }
  }
  std::ranges::stable_sort(jobs_, [](const AttentionJob& a, const AttentionJob& b) { return a.cost > b.cost; });
}

}  // namespace cohort::cpu
