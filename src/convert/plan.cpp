#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "convert/mixes.h"
#include "models/gemma_config.h"

namespace cohort::convert_detail {
namespace {

/// What a matrix becomes before fallbacks. The head (or the embedding that serves as head) touches every logit, so that
/// 4-bit files keep it in Q6_K; the router decides everything after it and is tiny, so that it stays exact.
TensorType wanted_type(const Weight& weight, TensorType type, bool tied) {
  const std::string& name = weight.name;
  if (weight.type == TensorType::mxfp4) return weight.type;  // a checkpoint that was made with it
  if (name.ends_with("ffn_gate_inp")) return TensorType::f32;
  bool head = name == (tied ? "token_embd" : "output");
  if (head && (type == TensorType::q4_0 || type == TensorType::q4_k)) return TensorType::q6_k;
  return type;
}

/// GGUF files of `llama` interleave the halves of each head of Q and K (and their biases).
int64_t rotary_head(const std::string& name, const ModelConfig& config) {
  bool permuted = name.ends_with(".attn_q") || name.ends_with(".attn_k") || name.ends_with(".attn_q.bias") ||
                  name.ends_with(".attn_k.bias");
  return config.architecture == "llama" && permuted ? config.head_dim : 0;
}

PlannedTensor plan_matrix(const Weight& weight, const ModelConfig& config, TensorType type, bool tied, Plan& plan) {
  PlannedTensor tensor;
  tensor.name = weight.name + ".weight";
  TensorType wanted = wanted_type(weight, type, tied);
  tensor.type = fitting_type(wanted, weight.cols);
  if (tensor.type != wanted) {
    plan.notes.push_back(fmt::format("{} is {} instead of {}: its rows of {} values are no multiple of {}", tensor.name,
                                     type_info(tensor.type).name, type_info(wanted).name, weight.cols,
                                     type_info(wanted).block_values));
  }
  tensor.source_type = weight.type;
  tensor.shape = {weight.cols, weight.rows};
  if (weight.name.ends_with("_exps")) tensor.shape.push_back(weight.experts);
  tensor.rows = weight.rows;
  tensor.cols = weight.cols;
  tensor.slices = weight.slices;
  tensor.made = weight.made;
  tensor.rotary_head = rotary_head(weight.name, config);
  return tensor;
}

/// Gemma's files hold gate and up of an expert in one matrix, gate first: `gate` becomes it.
void join_up(PlannedTensor& gate, const PlannedTensor& up) {
  constexpr std::string_view kGate = "ffn_gate_exps.weight", kFused = "ffn_gate_up_exps.weight";
  gate.name.replace(gate.name.size() - kGate.size(), kGate.size(), kFused);
  gate.shape[1] *= 2;
  std::vector<const std::byte*> slices;
  for (size_t e = 0; e < gate.slices.size(); ++e) slices.insert(slices.end(), {gate.slices[e], up.slices[e]});
  gate.slices = std::move(slices);
  gate.made.insert(gate.made.end(), up.made.begin(), up.made.end());
}

void join_gates_and_ups(Plan& plan) {
  for (PlannedTensor& gate : plan.tensors) {
    const size_t at = gate.name.find("ffn_gate_exps.");
    if (at == std::string::npos) continue;
    const std::string name = gate.name.substr(0, at) + "ffn_up_exps.weight";
    const auto up = std::ranges::find(plan.tensors, name, &PlannedTensor::name);
    // Slices of two types cannot lie in one tensor; readers take both layouts.
    if (up == plan.tensors.end() || up->source_type != gate.source_type) continue;
    join_up(gate, *up);
    up->slices.clear();
  }
  std::erase_if(plan.tensors, [](const PlannedTensor& tensor) { return tensor.slices.empty(); });
}

/// Vectors stay f32. They are planned as rows of one value, so that biases can be permuted like the rows they belong
/// to.
PlannedTensor plan_vector(const std::string& name, std::span<const float> values, int64_t rotary_head) {
  PlannedTensor tensor;
  tensor.name = name;
  tensor.shape = {static_cast<int64_t>(values.size())};
  tensor.rows = static_cast<int64_t>(values.size());
  tensor.slices = {std::as_bytes(values).data()};
  tensor.rotary_head = rotary_head;
  return tensor;
}

/// "blk.12.x" -> 12; tensors before the layers -1, after them a large number.
int64_t layer_of(const std::string& name) {
  if (name.starts_with("blk.")) return std::stoll(name.substr(4));
  return name.starts_with("output") ? INT64_MAX : -1;
}

}  // namespace

Plan make_plan(const WeightStore& store, const ModelConfig& config, TensorType type, bool tied) {
  Plan plan;
  for (const Weight& weight : store.matrices()) {
    if (tied && weight.name == "output") continue;
    plan.tensors.push_back(plan_matrix(weight, config, type, tied, plan));
  }
  if (is_gemma(config.architecture)) join_gates_and_ups(plan);
  for (const VectorWeight& vector : store.vectors()) {
    plan.tensors.push_back(plan_vector(vector.name, vector.values, rotary_head(vector.name, config)));
    PlannedTensor& planned = plan.tensors.back();
    if (vector.name.ends_with("_exps.bias")) planned.shape = {planned.shape[0] / config.experts, config.experts};
  }
  if (config.rope_scaling.kind == RopeScaling::Kind::llama3 || is_gemma(config.architecture)) {
    // GGUF has no keys for Llama 3.1's rule, nor for pairs that stand still; files carry the divisor of each frequency
    // instead.
    constexpr float kStandsStill = 1e30F;
    const RopeTable table = make_rope_tables(config).full;
    for (size_t i = 0; i < table.frequencies.size(); ++i) {
      const double plain = std::pow(config.rope_base, -2.0 * static_cast<double>(i) / config.rotary_dims);
      plan.rope_factors.push_back(table.frequencies[i] > 0 ? static_cast<float>(plain / table.frequencies[i])
                                                           : kStandsStill);
    }
    plan.tensors.push_back(plan_vector("rope_freqs.weight", plan.rope_factors, 0));
  }
  // Layer by layer, as the model is read.
  std::stable_sort(plan.tensors.begin(), plan.tensors.end(),
                   [](const auto& a, const auto& b) { return layer_of(a.name) < layer_of(b.name); });
  return plan;
}

uint32_t file_type(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return 0;
    case TensorType::f16:
      return 1;
    case TensorType::q4_0:
      return 2;
    case TensorType::q8_0:
      return 7;
    case TensorType::q4_k:
      return 14;  // "Q4_K - Small": the mix without extra bits for some layers
    case TensorType::bf16:
      return 32;
    default:
      return 1024;  // "guess from the tensors"
  }
}

}  // namespace cohort::convert_detail
