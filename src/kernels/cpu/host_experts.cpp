#include "kernels/cpu/host_experts.h"

#include <algorithm>

#include "base/counted.h"
#include "base/memory.h"
#include "base/result.h"
#include "models/expert_parts.h"

namespace cohort::cpu {
namespace {
// So many values are quantised in the time that sharing them takes.
constexpr int64_t kAlone = 16384;
}  // namespace

HostExperts::HostExperts(const Options& options)
    : isa_(options.isa),
      team_(options.threads),
      linear_(linear_kernels(options.isa)),
      elementwise_(elementwise_kernels(options.isa)),
      pass_(linear_, elementwise_, options.threads) {
  pass_.set_tuning(options.tuning);
}

const Weight* HostExperts::part_of(const Weight& whole, const std::vector<int32_t>& experts) {
  auto part = std::make_unique<Weight>(cohort::part_of(whole, experts));
  if (!type_info(whole.type).quantised) float_bytes_ += part->bytes();
  weights_.push_back(std::move(part));
  return weights_.back().get();
}

const VectorWeight* HostExperts::part_of(const VectorWeight* whole, const std::vector<int32_t>& experts,
                                         const Weight& matrix) {
  if (whole == nullptr) return nullptr;
  biases_.push_back(std::make_unique<VectorWeight>(biases_of(*whole, experts, matrix.rows)));
  return biases_.back().get();
}

Expected<std::unique_ptr<HostExperts>> HostExperts::create(const std::vector<Layer>& layers, const Options& options) {
  COHORT_TRY(check_isa(options.isa));
  std::unique_ptr<HostExperts> made(new HostExperts(options));
  size_t wanted = 0;
  for (const Layer& layer : layers) {
    auto& place = made->place_.emplace_back(static_cast<size_t>(layer.experts->gate->experts), -1);
    for (size_t i = 0; i < layer.here.size(); ++i) place[static_cast<size_t>(layer.here[i])] = static_cast<int32_t>(i);
    if (layer.here.empty()) continue;
    Op op;
    op.name = layer.experts->gate->name;
    const op::Experts& all = *layer.experts;
    op.action = op::Experts{made->part_of(*all.gate, layer.here),
                            made->part_of(*all.up, layer.here),
                            made->part_of(*all.down, layer.here),
                            all.activation,
                            made->part_of(all.gate_bias, layer.here, *all.gate),
                            made->part_of(all.up_bias, layer.here, *all.up),
                            made->part_of(all.down_bias, layer.here, *all.down)};
    for (const Weight* weight : matrices_of(op)) {
      if (type_info(weight->type).quantised) wanted += weight->bytes();
    }
    made->program_.ops.push_back(std::move(op));
  }
  if (const size_t free = available_memory(); wanted > free) {
    return fail(
        ErrorCode::capacity,
        "the experts that do not fit the device need {} of host memory, {} are free: use a smaller quantisation",
        format_bytes(static_cast<double>(wanted)), format_bytes(static_cast<double>(free)));
  }
  COHORT_ASSIGN(made->memory_, WeightMemory::create(made->program_, made->team_, options.progress));
  size_t next = 0;
  for (const Layer& layer : layers) {
    ExpertMatrices matrices{nullptr, nullptr, nullptr, layer.experts->activation};
    if (!layer.here.empty()) {
      const auto& part = std::get<op::Experts>(made->program_.ops[next++].action);
      matrices.gate = &made->memory_.matrix(part.gate);
      matrices.up = &made->memory_.matrix(part.up);
      matrices.down = &made->memory_.matrix(part.down);
      matrices.gate_bias = part.gate_bias;
      matrices.up_bias = part.up_bias;
      matrices.down_bias = part.down_bias;
    }
    made->matrices_.push_back(matrices);
  }
  return made;
}

int32_t HostExperts::find_routes(size_t layer, std::span<const int32_t> chosen, int32_t* out) const {
  int32_t count = 0;
  for (size_t route = 0; route < chosen.size(); ++route)
    if (holds(layer, chosen[route])) out[count++] = static_cast<int32_t>(route);
  return count;
}

void HostExperts::run(size_t layer, std::span<const int32_t> routes, const int32_t* chosen, int32_t top_k,
                      const float* input, float* out) {
  if (routes.empty()) return;
  const ExpertMatrices& matrices = matrices_[layer];
  const auto rows = static_cast<int64_t>(routes.size());
  const int64_t cols = matrices.gate->source->cols;
  // Every route is a row of its own with the weight 1 (1 * d is d); routes of one row share its input.
  local_.clear();
  inputs_.clear();
  input_rows_.clear();
  for (int32_t route : routes) {
    local_.push_back(place_[layer][static_cast<size_t>(chosen[route])]);
    if (input_rows_.empty() || input_rows_.back() != route / top_k) input_rows_.push_back(route / top_k);
    inputs_.push_back(static_cast<int32_t>(input_rows_.size()) - 1);
  }
  const auto inputs = static_cast<int64_t>(input_rows_.size());
  const auto input_of = [&](int64_t i) { return input + input_rows_[static_cast<size_t>(i)] * cols; };
  ones_.resize(std::max(ones_.size(), routes.size()), 1.0F);
  groups_.build(local_, 1, static_cast<int32_t>(matrices.gate->source->experts));
  SumMask sums = 0;
  for (const Matrix* matrix : {matrices.gate, matrices.up})
    if (matrix->quantised) sums |= layout_info(matrix->packed.shape.layout).sums;
  if (matrices.gate->quantised || matrices.up->quantised) {
    quant_.reserve(inputs, cols, sums);
    const auto quantise = [&](int64_t i, int) {
      linear_.quantise(input_of(i), cols / kBlockValues, quant_.chunk(i / kChunkRows, inputs),
                       static_cast<int32_t>(i % kChunkRows));
    };
    if (inputs * cols <= kAlone) {
      for (int64_t i = 0; i < inputs; ++i) quantise(i, 0);
    } else {
      team_.run(inputs, quantise);
    }
  }
  if (!matrices.gate->quantised || !matrices.up->quantised) {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(inputs * cols)));
    team_.run(inputs, [&](int64_t i, int) { std::copy_n(input_of(i), cols, rows_.data() + i * cols); });
  }
  ExpertCall call{};
  call.matrices = &matrices;
  call.groups = &groups_;
  call.weights = ones_.data();
  call.quant = &quant_;
  call.floats = rows_.data();
  call.rows = rows;
  call.out = out;
  call.inputs = inputs_.data();
  call.input_rows = inputs;
  pass_.begin(call);
  team_.run(pass_.gate_up_jobs(), [&](int64_t job, int thread) { pass_.gate_up(job, thread); });
  team_.run(pass_.down_jobs(), [&](int64_t job, int thread) { pass_.down(job, thread); });
}

std::string HostExperts::description() const {
  return fmt::format("{}, {}", isa_name(isa_), counted(team_.size(), "thread"));
}

}  // namespace cohort::cpu
