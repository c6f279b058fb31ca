#include "measure/expert_lab.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/memory.h"
#include "base/result.h"
#include "measure/synth_blocks.h"

namespace cohort {

namespace {

// Encoders that search take milliseconds a row: of types that can only be encoded, so many rows are made and repeated.
// A prime, so that experts differ.
constexpr int64_t kEncodedRows = 61;

/// Random blocks of any weight type: directly where that is known, else by encoding random values, else random bytes
/// that decode to modest numbers.
Expected<void> fill_row(TensorType type, uint64_t seed, int64_t row, int64_t cols, float sigma, std::byte* out) {
  const TypeInfo& info = type_info(type);
  const int64_t blocks = cols / info.block_values;
  if (can_synthesise(type)) {
    fill_random_blocks(type, seed, row * blocks, blocks, sigma, out);
    return {};
  }
  std::vector<float> values(static_cast<size_t>(cols));
  const auto at = [&](int64_t i) { return random_word(seed, static_cast<uint64_t>(row * cols + i)); };
  if (has_encoder(type)) {
    // Uniform values of this standard deviation.
    for (int64_t i = 0; i < cols; ++i)
      values[static_cast<size_t>(i)] = sigma * std::sqrt(12.0F) * (static_cast<float>(at(i) >> 40) * 0x1p-24F - 0.5F);
    return encode_row(type, values.data(), out, cols);
  }
  uint64_t draw = seed ^ random_word(seed, static_cast<uint64_t>(row));
  for (int64_t b = 0; b < blocks; ++b, out += info.block_bytes) {
    bool fine = false;
    for (int tries = 0; !fine && tries < 1000; ++tries) {
      for (uint32_t i = 0; i < info.block_bytes; ++i) out[i] = static_cast<std::byte>(random_word(seed, ++draw) >> 56);
      decode_row(type, out, values.data(), info.block_values);
      fine = std::all_of(values.begin(), values.begin() + info.block_values,
                         [](float v) { return std::isfinite(v) && std::fabs(v) < 1e3F; });
    }
    if (!fine) return fail(ErrorCode::unsupported, "no random weights can be made of type {}", info.name);
  }
  return {};
}

Expected<TensorType> weight_type(const char* option, const std::string& name) {
  const TypeInfo* info = find_type(name);
  if (info != nullptr && info->weight) return info->type;
  std::string names;
  for (const TypeInfo& known : all_types()) {
    if (known.weight) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return fail(ErrorCode::invalid_argument, "{} is '{}'; expected one of {}", option, name, names);
}

}  // namespace

Expected<void> check_shape(const ExpertShape& s) {
  const auto in_range = [](const char* option, int64_t value, int64_t limit) -> Expected<void> {
    if (value >= 1 && value <= limit) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected 1 to {}", option, value, limit);
  };
  COHORT_TRY(in_range("--hidden", s.hidden, 1 << 20));
  COHORT_TRY(in_range("--inter", s.inner, 1 << 20));
  COHORT_TRY(in_range("--experts", s.experts, 1 << 16));
  COHORT_TRY(in_range("--top-k", s.top_k, s.experts));
  COHORT_TRY(in_range("--layers", s.layers, 1 << 12));
  const auto divides = [](const char* option, const std::string& name, int64_t cols) -> Expected<void> {
    COHORT_ASSIGN(const TensorType type, weight_type(option, name));
    const int64_t block = std::max<int64_t>(type_info(type).block_values, type_info(type).quantised ? 32 : 1);
    if (cols % block == 0) return {};
    return fail(ErrorCode::invalid_argument, "rows of {} values cannot be {} ({}): it needs multiples of {}", cols,
                name, option, block);
  };
  COHORT_TRY(divides("--gate-up", s.gate_up, s.hidden));
  COHORT_TRY(divides("--down", s.down, s.inner));
  return {};
}

struct ExpertWeights::Memory {
  std::vector<Weight> weights;  // gate, up, down of each layer
  std::vector<std::vector<std::byte>> data;
};

Expected<ExpertWeights> ExpertWeights::create(const ExpertShape& shape, uint64_t seed, int threads) {
  COHORT_TRY(check_shape(shape));
  ExpertWeights out;
  out.shape_ = shape;
  out.memory_ = std::make_shared<Memory>();
  out.program_ = std::make_unique<Program>();
  const TensorType types[3] = {find_type(shape.gate_up)->type, find_type(shape.gate_up)->type,
                               find_type(shape.down)->type};
  double total = 0;
  for (int64_t l = 0; l < shape.layers; ++l) {
    for (int m = 0; m < 3; ++m) {
      Weight w;
      w.name = fmt::format("blk.{}.{}", l, m == 0 ? "gate" : m == 1 ? "up" : "down");
      w.type = types[m];
      w.experts = shape.experts;
      w.rows = m == 2 ? shape.hidden : shape.inner;
      w.cols = m == 2 ? shape.inner : shape.hidden;
      total += static_cast<double>(w.bytes());
      out.memory_->weights.push_back(std::move(w));
    }
  }
  // As stored and as packed, and the packed form of some types is wider.
  if (3 * total > static_cast<double>(available_memory())) {
    return fail(ErrorCode::capacity, "{} layers of {} experts are {} and need up to three times that; {} are free",
                shape.layers, shape.experts, format_bytes(total),
                format_bytes(static_cast<double>(available_memory())));
  }
  ThreadTeam team(threads);
  for (size_t i = 0; i < out.memory_->weights.size(); ++i) {
    Weight& w = out.memory_->weights[i];
    auto& data = out.memory_->data.emplace_back(w.bytes());
    const size_t stride = row_bytes(w.type, w.cols);
    const float sigma = 1.0F / std::sqrt(static_cast<float>(w.cols));
    std::vector<Expected<void>> results(static_cast<size_t>(threads));
    const int64_t rows = w.rows * w.experts;
    const int64_t made = can_synthesise(w.type) ? rows : std::min(rows, kEncodedRows);
    team.run(made, [&](int64_t row, int thread) {
      auto filled = fill_row(w.type, seed + i, row, w.cols, sigma, data.data() + static_cast<size_t>(row) * stride);
      if (!filled) results[static_cast<size_t>(thread)] = std::move(filled);
    });
    for (auto& result : results) COHORT_TRY(std::move(result));
    for (int64_t row = made; row < rows; ++row)
      std::memcpy(data.data() + static_cast<size_t>(row) * stride,
                  data.data() + static_cast<size_t>(row % made) * stride, stride);
    for (int64_t e = 0; e < w.experts; ++e) w.slices.push_back(data.data() + static_cast<size_t>(e) * w.slice_bytes());
  }
  for (int64_t l = 0; l < shape.layers; ++l) {
    const Weight* w = out.memory_->weights.data() + 3 * l;
    Op op;
    op.name = fmt::format("blk.{}.experts", l);
    op.layer = static_cast<int32_t>(l);
    op.action = op::Experts{w, w + 1, w + 2, Activation::silu};
    out.program_->ops.push_back(std::move(op));
  }
  return out;
}

double ExpertWeights::expert_bytes() const {
  double bytes = 0;
  for (size_t m = 0; m < 3; ++m) bytes += static_cast<double>(memory_->weights[m].slice_bytes());
  return bytes;
}

ExpertRunner::ExpertRunner(const ExpertWeights& weights, Isa isa, int threads)
    : weights_(weights),
      linear_(cpu::linear_kernels(isa)),
      team_(threads),
      pass_(linear_, cpu::elementwise_kernels(isa), threads) {}

Expected<std::unique_ptr<ExpertRunner>> ExpertRunner::create(const ExpertWeights& weights, Isa isa, int threads) {
  COHORT_TRY(check_isa(isa));
  std::unique_ptr<ExpertRunner> runner(new ExpertRunner(weights, isa, threads));
  COHORT_ASSIGN(runner->packed_, cpu::WeightMemory::create(weights.program(), runner->team_, {}));
  return runner;
}

double ExpertRunner::run(int64_t layer, std::span<const float> x, std::span<const int32_t> routes,
                         std::span<const float> slots, std::span<float> y) {
  const ExpertShape& shape = weights_.shape();
  const op::Experts& experts = weights_.layer(layer);
  const cpu::ExpertMatrices matrices = {&packed_.matrix(experts.gate), &packed_.matrix(experts.up),
                                        &packed_.matrix(experts.down), experts.activation};
  const auto rows = static_cast<int64_t>(x.size()) / shape.hidden;
  const auto start = std::chrono::steady_clock::now();
  if (matrices.gate->quantised) {
    quant_.reserve(rows, shape.hidden, cpu::layout_info(matrices.gate->packed.shape.layout).sums);
    team_.run(rows, [&](int64_t r, int) {
      linear_.quantise(x.data() + r * shape.hidden, shape.hidden / cpu::kBlockValues,
                       quant_.chunk(r / cpu::kChunkRows, rows), static_cast<int32_t>(r % cpu::kChunkRows));
    });
  }
  groups_.build(routes, static_cast<int32_t>(shape.top_k), static_cast<int32_t>(shape.experts));
  pass_.begin({&matrices, &groups_, slots.data(), matrices.gate->quantised ? &quant_ : nullptr, x.data(), rows,
               y.data(), nullptr, 0});
  team_.run(pass_.gate_up_jobs(), [&](int64_t job, int thread) { pass_.gate_up(job, thread); });
  team_.run(pass_.down_jobs(), [&](int64_t job, int thread) { pass_.down(job, thread); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ExpertRunner::expert_bytes() const {
  const op::Experts& experts = weights_.layer(0);
  return static_cast<double>(packed_.matrix(experts.gate).bytes() + packed_.matrix(experts.up).bytes() +
                             packed_.matrix(experts.down).bytes());
}

std::vector<int32_t> routes_with_share(int64_t rows, int64_t experts, int64_t top_k, double share, uint64_t seed) {
  std::vector<int32_t> routes;
  std::vector<char> used(static_cast<size_t>(experts), 0);
  uint64_t draw = 0;
  std::vector<int32_t> order(static_cast<size_t>(experts));
  double owed = 0;  // repeats that are due: carried from row to row, so that the share also holds for few routes
  for (int64_t row = 0; row < rows; ++row) {
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_word(seed, draw++) % i]);
    if (share >= 0) {
      // First as many used ones as are due, then new ones, then the rest.
      owed += row > 0 ? share * static_cast<double>(top_k) : 0;
      const auto middle = std::stable_partition(order.begin(), order.end(),
                                                [&](int32_t e) { return used[static_cast<size_t>(e)] != 0; });
      const int64_t old = std::min<int64_t>(middle - order.begin(), std::llround(owed));
      const int64_t repeats = std::min(old, top_k);
      owed -= static_cast<double>(repeats);
      std::rotate(order.begin() + repeats, middle, order.end());
    }
    for (int64_t k = 0; k < top_k; ++k) {
      routes.push_back(order[static_cast<size_t>(k)]);
      used[static_cast<size_t>(order[static_cast<size_t>(k)])] = 1;
    }
  }
  return routes;
}

}  // namespace cohort
