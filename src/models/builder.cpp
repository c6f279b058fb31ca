#include "models/builder.h"

#include <cmath>

#include "base/result.h"

namespace cohort {

ProgramBuilder::ProgramBuilder(const ModelConfig& config, WeightStore& weights)
    : eps_(config.rms_eps), weights_(weights) {
  program_.family = config.architecture;
  program_.vocabulary = config.vocabulary;
  program_.context = config.context;
}

std::string ProgramBuilder::qualified(const std::string& name) const {
  return layer_ < 0 ? name : fmt::format("blk.{}.{}", layer_, name);
}

const Weight* ProgramBuilder::matrix(const std::string& name, int64_t rows, int64_t cols, int64_t experts) {
  return weights_.matrix(qualified(name), rows, cols, experts);
}
const VectorWeight* ProgramBuilder::vector(const std::string& name, int64_t size) {
  return weights_.vector(qualified(name), size);
}
const VectorWeight* ProgramBuilder::optional_vector(const std::string& name, int64_t size) {
  return weights_.optional_vector(qualified(name), size);
}

const VectorWeight* ProgramBuilder::scaled_vector(const std::string& name, int64_t size, float factor) {
  return weights_.scaled_vector(qualified(name), size, factor);
}
bool ProgramBuilder::has(const std::string& name) const {
  return weights_.has(qualified(name));
}

ValueId ProgramBuilder::append(const std::string& name, Action action, std::vector<ValueId> inputs, int32_t width,
                               ValueKind kind) {
  const auto id = static_cast<ValueId>(program_.values.size());
  const bool sampled = std::holds_alternative<op::Gather>(action) ||
                       (!inputs.empty() && program_.values[static_cast<size_t>(inputs[0])].extent == Extent::sampled);
  program_.values.push_back({qualified(name), width, sampled ? Extent::sampled : Extent::rows, kind});
  program_.ops.push_back({qualified(name), layer_, std::move(inputs), id, action});
  return id;
}

ValueId ProgramBuilder::embed(const Weight* table, float scale) {
  return append("token_embd", op::Embed{table, scale}, {}, static_cast<int32_t>(table->cols));
}

ValueId ProgramBuilder::rms_norm(const std::string& name, ValueId x, const VectorWeight* weight) {
  return append(name, op::RmsNorm{weight, eps_, width(x)}, {x}, width(x));
}

ValueId ProgramBuilder::head_norm(const std::string& name, ValueId x, const VectorWeight* weight, int32_t head_dim) {
  return append(name, op::RmsNorm{weight, eps_, head_dim}, {x}, width(x));
}

ValueId ProgramBuilder::linear(const std::string& name, ValueId x, const Weight* weight, const VectorWeight* bias) {
  return append(name, op::Linear{weight, bias}, {x}, static_cast<int32_t>(weight->rows));
}

ValueId ProgramBuilder::rope(const std::string& name, ValueId x, const RopeTable& table, int32_t heads,
                             int32_t head_dim, RopePairing pairing) {
  return append(name, op::Rope{&table, heads, head_dim, pairing}, {x}, width(x));
}

ValueId ProgramBuilder::attend(const std::string& name, ValueId q, ValueId k, ValueId v, int32_t heads,
                               int32_t kv_heads, int32_t head_dim, float scale, int32_t window,
                               const VectorWeight* sinks) {
  const auto cache = static_cast<int32_t>(program_.cache_layers.size());
  program_.cache_layers.push_back({kv_heads, head_dim, window});
  return append(name, op::Attend{cache, heads, kv_heads, head_dim, scale, window, sinks}, {q, k, v}, heads * head_dim);
}

ValueId ProgramBuilder::add(const std::string& name, ValueId a, ValueId b) {
  return append(name, op::Add{}, {a, b}, width(a));
}

ValueId ProgramBuilder::gate(const std::string& name, ValueId gate, ValueId up, Activation activation) {
  return append(name, op::Gate{activation}, {gate, up}, width(gate));
}

ValueId ProgramBuilder::route(const std::string& name, ValueId x, const Weight* router, int32_t top_k, bool renormalise,
                              const VectorWeight* per_expert_scale, const VectorWeight* bias) {
  return append(name, op::Route{router, top_k, renormalise, per_expert_scale, bias}, {x}, top_k, ValueKind::routes);
}

ValueId ProgramBuilder::experts(const std::string& name, ValueId x, ValueId routes, const op::Experts& weights) {
  return append(name, weights, {x, routes}, static_cast<int32_t>(weights.down->rows));
}

ValueId ProgramBuilder::scale(const std::string& name, ValueId x, const VectorWeight* values,
                              const VectorWeight* canvas_values) {
  return append(name, op::Scale{values, canvas_values}, {x}, width(x));
}

ValueId ProgramBuilder::mix(const std::string& name, const Weight* table, float scale) {
  return append(name, op::Mix{table, scale}, {}, static_cast<int32_t>(table->cols));
}

ValueId ProgramBuilder::condition(const std::string& name, ValueId e, ValueId g) {
  return append(name, op::Condition{eps_}, {e, g}, width(e));
}

ValueId ProgramBuilder::softcap(const std::string& name, ValueId x, float cap) {
  return append(name, op::Softcap{cap}, {x}, width(x));
}

ValueId ProgramBuilder::gather(ValueId x) {
  return append("gather", op::Gather{}, {x}, width(x));
}

Expected<Program> ProgramBuilder::finish(ValueId logits) {
  if (weights_.error()) return tl::unexpected<Error>(*weights_.error());
  program_.logits = logits;
  return std::move(program_);
}

ValueId attention_block(ProgramBuilder& p, const ModelConfig& c, const RopeTable& rope, ValueId x, bool qk_norm) {
  const int64_t q_width = int64_t{c.heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.kv_heads} * c.head_dim;
  const ValueId a = p.rms_norm("attn_norm", x, p.vector("attn_norm.weight", c.hidden));
  ValueId q = p.linear("attn_q", a, p.matrix("attn_q", q_width, c.hidden), p.optional_vector("attn_q.bias", q_width));
  ValueId k = p.linear("attn_k", a, p.matrix("attn_k", kv_width, c.hidden), p.optional_vector("attn_k.bias", kv_width));
  const ValueId v =
      p.linear("attn_v", a, p.matrix("attn_v", kv_width, c.hidden), p.optional_vector("attn_v.bias", kv_width));
  if (qk_norm) {
    q = p.head_norm("attn_q_norm", q, p.vector("attn_q_norm.weight", c.head_dim), c.head_dim);
    k = p.head_norm("attn_k_norm", k, p.vector("attn_k_norm.weight", c.head_dim), c.head_dim);
  }
  q = p.rope("attn_q_rope", q, rope, c.heads, c.head_dim, c.rope_pairing);
  k = p.rope("attn_k_rope", k, rope, c.kv_heads, c.head_dim, c.rope_pairing);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  const ValueId o = p.attend("attn", q, k, v, c.heads, c.kv_heads, c.head_dim, scale);
  return p.add("attn_residual", x,
               p.linear("attn_output", o, p.matrix("attn_output", c.hidden, q_width),
                        p.optional_vector("attn_output.bias", c.hidden)));
}

ValueId dense_block(ProgramBuilder& p, const ModelConfig& c, ValueId x) {
  const ValueId n = p.rms_norm("ffn_norm", x, p.vector("ffn_norm.weight", c.hidden));
  const ValueId gate = p.linear("ffn_gate", n, p.matrix("ffn_gate", c.inner, c.hidden));
  const ValueId up = p.linear("ffn_up", n, p.matrix("ffn_up", c.inner, c.hidden));
  const ValueId h = p.gate("ffn_act", gate, up, Activation::silu);
  return p.add("ffn_residual", x, p.linear("ffn_down", h, p.matrix("ffn_down", c.hidden, c.inner)));
}

ValueId moe_block(ProgramBuilder& p, const ModelConfig& c, ValueId x) {
  const ValueId n = p.rms_norm("ffn_norm", x, p.vector("ffn_norm.weight", c.hidden));
  const ValueId routes = p.route("ffn_route", n, p.matrix("ffn_gate_inp", c.experts, c.hidden), c.top_k, c.renormalise);
  const op::Experts experts{p.matrix("ffn_gate_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_up_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_down_exps", c.hidden, c.expert_inner, c.experts), Activation::silu};
  return p.add("ffn_residual", x, p.experts("ffn_experts", n, routes, experts));
}

ValueId head_block(ProgramBuilder& p, const ModelConfig& c, WeightStore& weights, ValueId x) {
  p.layer(-1);
  const ValueId n = p.rms_norm("output_norm", p.gather(x), p.vector("output_norm.weight", c.hidden));
  const std::string head = weights.has("output.weight") ? "output" : "token_embd";
  return p.linear("output", n, p.matrix(head, c.vocabulary, c.hidden));
}

}  // namespace cohort
