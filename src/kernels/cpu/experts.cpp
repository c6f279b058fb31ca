#include "kernels/cpu/experts.h"

#include <algorithm>
#include <bit>

namespace cohort::cpu {
namespace {

// When rows are many, this much of h and partial sums should stay in the second cache.
constexpr int64_t kPartialBytes = int64_t{1} << 20;
// No job reads less weight than this if it can help it: taking one costs 0.1 us, and its front is often not prefetched.
constexpr int64_t kLeastJobBytes = int64_t{48} << 10;
// Neighbouring tiles of down that are read together: 14 KB of memory for K = 384 instead of 3.4.
constexpr int64_t kDownTiles = 4;

/// Guided lists: a job takes its share of half of what is left, so that jobs are long as long as many follow, and the
/// last ones short enough that all threads end together.
int64_t share_of(int64_t left, int threads) {
  return left / (int64_t{2} * threads);
}

/// Block `b` of a chunk as a chunk of its own.
ActivationChunk block_of(const ActivationChunk& chunk, int64_t b) {
  ActivationChunk block = chunk;
  const int64_t at = b * chunk.rows;
  block.q += at * kBlockValues;
  block.d += at;
  if (block.transposed != nullptr) block.transposed += at * kBlockValues;
  if (block.strided != nullptr) block.strided += at * kBlockValues;
  for (SumMask left = block.kinds; left != 0; left &= left - 1) block.sums[std::countr_zero(left)] += at;
  return block;
}

}  // namespace

ExpertPass::ExpertPass(const LinearKernels& linear, const ElementwiseKernels& elementwise, int threads)
    : linear_(linear), elementwise_(elementwise), threads_(threads) {
  for (int i = 0; i < threads; ++i) scratch_.push_back(std::make_unique<Scratch>());
}

void ExpertPass::begin(const ExpertCall& call) {
  call_ = call;
  ++calls_;
  const ExpertMatrices& m = *call.matrices;
  const RouteGroups& groups = *call.groups;
  quantised_input_ = m.gate->quantised || m.up->quantised;
  float_input_ = !m.gate->quantised || !m.up->quantised;
  chosen_ = m.gate->quantised ? tuning_.find(m.gate->packed.shape.layout, call.rows) : ExpertTuning{};
  inner_ = m.gate->source->rows;
  h_blocks_ = (inner_ + kBlockValues - 1) / kBlockValues;
  list_gate_up();
  list_down();

  const int64_t routes = groups.routes();
  if (m.down->quantised) {
    h_.reserve(routes, inner_, layout_info(m.down->packed.shape.layout).sums);
  } else if (h_floats_.size() < static_cast<size_t>(routes * inner_)) {
    h_floats_.resize(static_cast<size_t>(routes * inner_));
  }
  // Combining loads whole vectors of 16.
  int64_t most_tiles = 0;
  for (const TileRange& range : down_list_) most_tiles = std::max(most_tiles, range.last - range.first);
  partial_width_ = (most_tiles * m.down->tile_outputs + 15) / 16 * 16;
  const auto partials = static_cast<size_t>(routes * partial_width_);
  for (auto& scratch : scratch_) {
    if (quantised_input_) scratch->gathered.reserve(groups.largest_group(), m.gate->source->cols, call.quant->sums());
    if (scratch->partials.size() < partials) scratch->partials.resize(partials);
    scratch->gate.resize(kChunkRows * kBlockValues);
    scratch->up.resize(kChunkRows * kBlockValues);
  }
}

void ExpertPass::list_gate_up() {
  const ExpertMatrices& m = *call_.matrices;
  const auto groups = call_.groups->groups();
  const int64_t block_bytes = std::max<int64_t>(1, (m.gate->bytes() + m.up->bytes()) / h_blocks_);
  const int64_t most = std::clamp<int64_t>(chosen_.job_bytes / block_bytes, 1, h_blocks_);
  const int64_t least = std::clamp<int64_t>(kLeastJobBytes / block_bytes, 1, most);
  // A block takes as long as reading it, or with many rows as multiplying them.
  const auto cost = [](const RouteGroups::Group& group) { return int64_t{std::max(group.count, kOnePassRows)}; };
  int64_t left = 0;
  for (const RouteGroups::Group& group : groups) left += h_blocks_ * cost(group);
  gate_up_list_.clear();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int64_t block = 0; block < h_blocks_;) {
      int64_t count = std::clamp(share_of(left, threads_) / cost(groups[g]), least, most);
      if (block + count + count / 2 >= h_blocks_ && h_blocks_ - block <= most) count = h_blocks_ - block;
      count = std::min(count, h_blocks_ - block);
      gate_up_list_.push_back({static_cast<int32_t>(g), block, block + count});
      left -= count * cost(groups[g]);
      block += count;
    }
  }
}

void ExpertPass::list_down() {
  down_list_.clear();
  const Matrix& down = *call_.matrices->down;
  const int64_t routes = call_.groups->routes();
  if (routes == 0) return;
  const int64_t partial_row = 4 * down.tile_outputs * routes;
  const int64_t most = std::clamp<int64_t>(kPartialBytes / partial_row, 1, kDownTiles * 16 / down.tile_outputs);
  for (int64_t tile = 0; tile < down.tiles;) {
    const int64_t count =
        std::min(std::clamp<int64_t>(share_of(down.tiles - tile, threads_), 1, most), down.tiles - tile);
    down_list_.push_back({tile, tile + count});
    tile += count;
  }
}

void ExpertPass::gather(Scratch& scratch, const RouteGroups::Group& group) {
  const int64_t blocks = scratch.gathered.blocks(), inputs = call_.inputs != nullptr ? call_.input_rows : call_.rows;
  for (int32_t i = 0; i < group.count; ++i) {
    const int32_t row = input_at(group.first + i);
    const int32_t chunk = i / kChunkRows;
    copy_row(call_.quant->chunk(row / kChunkRows, inputs), row % kChunkRows, scratch.gathered.chunk(chunk, group.count),
             i % kChunkRows, blocks);
  }
}

void ExpertPass::take_group(Scratch& scratch, int32_t group_index) {
  if (scratch.call == calls_ && scratch.group == group_index) return;
  scratch.call = calls_;
  scratch.group = group_index;
  const RouteGroups::Group& group = call_.groups->groups()[static_cast<size_t>(group_index)];
  if (quantised_input_) gather(scratch, group);
  scratch.chunks.clear();
  for (int32_t first = 0; first < group.count; first += kChunkRows) {
    RowChunk& chunk = scratch.chunks.emplace_back();
    chunk.rows = std::min(group.count - first, kChunkRows);
    if (quantised_input_) chunk.quant = scratch.gathered.chunk(first / kChunkRows, group.count);
    if (!float_input_) continue;
    const int64_t cols = call_.matrices->gate->source->cols;
    for (int32_t r = 0; r < chunk.rows; ++r) chunk.floats[r] = call_.floats + input_at(group.first + first + r) * cols;
  }
}

ExpertPass::JobStart ExpertPass::start_after_gate_up(int64_t job) const {
  const auto following = static_cast<size_t>(job + threads_);
  const auto groups = call_.groups->groups();
  if (following < gate_up_list_.size()) {
    const GateUpJob& next = gate_up_list_[following];
    return {groups[static_cast<size_t>(next.group)].expert, next.first_block, nullptr};
  }
  const size_t tiles = std::min(following - gate_up_list_.size(), down_list_.size() - 1);
  return {-1, 0, tile_address(*call_.matrices->down, groups.front().expert, down_list_[tiles].first)};
}

size_t ExpertPass::gate_up_steps(Scratch& scratch, int64_t block, const JobStart& next, TileStep* steps) const {
  const ExpertMatrices& m = *call_.matrices;
  const auto tiles_of = [](const Matrix& matrix, int64_t of_block) {
    const int64_t per_block = kBlockValues / matrix.tile_outputs;
    return std::pair(of_block * per_block, std::min((of_block + 1) * per_block, matrix.tiles));
  };
  size_t count = 0;
  const auto add = [&](const Matrix& matrix, float* out, int64_t index) {
    const int64_t tile = tiles_of(matrix, block).first + index;
    const std::byte* later = nullptr;
    if (next.expert >= 0) {
      const int64_t next_tile = std::min(tiles_of(matrix, next.block).first + index, matrix.tiles - 1);
      later = tile_address(matrix, next.expert, next_tile);
    }
    steps[count++] = {&matrix, tile, out + index * matrix.tile_outputs, later};
  };
  const auto tiles = [&](const Matrix& matrix) {
    const auto [begin, end] = tiles_of(matrix, block);
    return end - begin;
  };
  if (chosen_.interleave && m.gate->tile_outputs == m.up->tile_outputs) {
    for (int64_t i = 0; i < tiles(*m.gate); ++i) {
      add(*m.gate, scratch.gate.data(), i);
      add(*m.up, scratch.up.data(), i);
    }
    return count;
  }
  for (int64_t i = 0; i < tiles(*m.gate); ++i) add(*m.gate, scratch.gate.data(), i);
  for (int64_t i = 0; i < tiles(*m.up); ++i) add(*m.up, scratch.up.data(), i);
  return count;
}

void ExpertPass::add_bias(const VectorWeight* biases, const Matrix& matrix, int32_t expert, int64_t first,
                          int64_t count, int32_t rows, float* out, int64_t stride) const {
  const float* bias = bias_of(biases, expert, matrix.source->rows);
  if (bias == nullptr) return;
  for (int32_t r = 0; r < rows; ++r) elementwise_.add(out + r * stride, bias + first, count, out + r * stride);
}

void ExpertPass::gate_up(int64_t job, int thread) {
  Scratch& scratch = *scratch_[static_cast<size_t>(thread)];
  const auto& [group_index, first_block, last_block] = gate_up_list_[static_cast<size_t>(job)];
  const RouteGroups::Group& group = call_.groups->groups()[static_cast<size_t>(group_index)];
  const ExpertMatrices& m = *call_.matrices;
  const JobStart after = start_after_gate_up(job);
  take_group(scratch, group_index);
  for (int64_t block = first_block; block < last_block; ++block) {
    const int64_t width = std::min<int64_t>(kBlockValues, inner_ - block * kBlockValues);
    const JobStart following = block + 1 < last_block ? JobStart{group.expert, block + 1, nullptr} : after;
    TileStep steps[kMaxSteps];
    const size_t count = gate_up_steps(scratch, block, following, steps);
    const std::byte* then = following.tile;
    if (following.expert >= 0) {
      const int64_t per_block = kBlockValues / m.gate->tile_outputs;
      then = tile_address(*m.gate, following.expert, following.block * per_block);
    }
    for (int32_t first = 0; first < group.count; first += kChunkRows) {
      const RowChunk& x = scratch.chunks[static_cast<size_t>(first / kChunkRows)];
      for (size_t i = 0; i < count; ++i) {
        const auto& [matrix, tile, out, later] = steps[i];
        const std::byte* next =
            i + 1 < count ? tile_address(*steps[i + 1].matrix, group.expert, steps[i + 1].tile) : then;
        multiply_tile(linear_, *matrix, group.expert, tile, x, out, kBlockValues,
                      upcoming(next, later, matrix->tile_bytes, first, x.rows, group.count));
      }
      add_bias(m.gate_bias, *m.gate, group.expert, block * kBlockValues, width, x.rows, scratch.gate.data(),
               kBlockValues);
      add_bias(m.up_bias, *m.up, group.expert, block * kBlockValues, width, x.rows, scratch.up.data(), kBlockValues);
      if (m.down->quantised) {
        // h of a quantised down is a multiple of 32 wide, so the rows are whole blocks and lie without gaps.
        elementwise_.gate(m.activation, scratch.gate.data(), scratch.up.data(), x.rows * kBlockValues,
                          scratch.gate.data());
        const ActivationChunk h = block_of(h_.at(group.first + first, x.rows), block);
        for (int32_t r = 0; r < x.rows; ++r) linear_.quantise(scratch.gate.data() + r * kBlockValues, 1, h, r);
      } else {
        for (int32_t r = 0; r < x.rows; ++r) {
          elementwise_.gate(m.activation, scratch.gate.data() + r * kBlockValues, scratch.up.data() + r * kBlockValues,
                            width, h_floats_.data() + (group.first + first + r) * inner_ + block * kBlockValues);
        }
      }
    }
  }
}

void ExpertPass::read_hidden(const RouteGroups::Group& group, std::vector<float>& out) const {
  const auto inner = static_cast<size_t>(inner_);
  out.resize(static_cast<size_t>(group.count) * inner);
  if (!call_.matrices->down->quantised) {
    std::copy_n(h_floats_.begin() + group.first * inner_, out.size(), out.begin());
    return;
  }
  for (int32_t i = 0; i < group.count; ++i) {
    const int32_t first = i / kChunkRows * kChunkRows;
    const ActivationChunk chunk = h_.at(group.first + first, std::min(group.count - first, kChunkRows));
    for (size_t k = 0; k < inner; ++k) {
      const int64_t at = static_cast<int64_t>(k) / kBlockValues * chunk.rows + (i - first);
      out[static_cast<size_t>(i) * inner + k] =
          chunk.d[at] * static_cast<float>(chunk.q[at * kBlockValues + static_cast<int64_t>(k) % kBlockValues]);
    }
  }
}

void ExpertPass::down(int64_t job, int thread) {
  Scratch& scratch = *scratch_[static_cast<size_t>(thread)];
  const Matrix& matrix = *call_.matrices->down;
  const auto groups = call_.groups->groups();
  const auto [first_tile, last_tile] = down_list_[static_cast<size_t>(job)];
  const int64_t width = partial_width_, outputs = matrix.source->rows;
  const int64_t first_output = first_tile * matrix.tile_outputs;
  const int64_t count = std::min(last_tile * matrix.tile_outputs, outputs) - first_output;
  const auto following = static_cast<size_t>(job + threads_);
  for (size_t g = 0; g < groups.size(); ++g) {
    const RouteGroups::Group& group = groups[g];
    // Then comes the next group, or the first one of the job that this thread will probably take next.
    const bool more = g + 1 < groups.size();
    const int32_t next_expert = groups[more ? g + 1 : 0].expert;
    const int64_t next_first = more ? first_tile : following < down_list_.size() ? down_list_[following].first : -1;
    for (int32_t first = 0; first < group.count; first += kChunkRows) {
      // Built in place: a copy would wait for the stores that it reads.
      const int32_t rows = std::min(group.count - first, kChunkRows);
      RowChunk h{matrix.quantised ? h_.at(group.first + first, rows) : ActivationChunk{}, {}, rows};
      if (!matrix.quantised) {
        for (int32_t r = 0; r < h.rows; ++r) h.floats[r] = h_floats_.data() + (group.first + first + r) * inner_;
      }
      for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        const std::byte* next = tile + 1 < last_tile ? tile_address(matrix, group.expert, tile + 1)
                                : next_first < 0     ? nullptr
                                                     : tile_address(matrix, next_expert, next_first);
        // With many rows: the same tile of the next group.
        const int64_t later_tile = std::min(next_first + tile - first_tile, matrix.tiles - 1);
        const std::byte* later = next_first < 0 ? nullptr : tile_address(matrix, next_expert, later_tile);
        multiply_tile(
            linear_, matrix, group.expert, tile, h,
            scratch.partials.data() + (group.first + first) * width + (tile - first_tile) * matrix.tile_outputs, width,
            upcoming(next, later, matrix.tile_bytes, first, h.rows, group.count));
      }
      add_bias(call_.matrices->down_bias, matrix, group.expert, first_output, count, h.rows,
               scratch.partials.data() + (group.first + first) * width, width);
    }
  }
  const int32_t top_k = call_.groups->top_k();
  for (int64_t row = 0; row < call_.rows; ++row) {
    linear_.combine({scratch.partials.data(), call_.groups->place().data() + row * top_k, call_.weights + row * top_k,
                     top_k, width, call_.out + row * outputs + first_output, static_cast<int32_t>(count)});
  }
}

}  // namespace cohort::cpu
