// Gemma 4, text: layers that see a sliding window between layers that see everything, with heads of their own sizes; a
// norm before and after each part; a dense MLP beside the experts (models without experts have the MLP only).
#include "models/gemma4.h"

#include <cmath>

#include "base/result.h"
#include "models/families.h"

namespace cohort {
namespace {

ValueId mlp(ProgramBuilder& p, const ModelConfig& c, ValueId h) {
  const ValueId n = p.rms_norm("ffn_norm", h, p.vector("ffn_norm.weight", c.hidden));
  const ValueId gate = p.linear("ffn_gate", n, p.matrix("ffn_gate", c.inner, c.hidden));
  const ValueId up = p.linear("ffn_up", n, p.matrix("ffn_up", c.inner, c.hidden));
  return p.linear("ffn_down", p.gate("ffn_act", gate, up, Activation::gelu_tanh),
                  p.matrix("ffn_down", c.hidden, c.inner));
}

/// The router looks at the raw residual, normed without weights, times scale / sqrt(hidden): one factor per column.
ValueId routes(ProgramBuilder& p, const ModelConfig& c, ValueId h) {
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.hidden)));
  const ValueId n = p.rms_norm("ffn_route_norm", h, p.scaled_vector("ffn_gate_inp.scale", c.hidden, root));
  return p.route("ffn_route", n, p.matrix("ffn_gate_inp", c.experts, c.hidden), c.top_k, /*renormalise=*/true,
                 p.vector("ffn_down_exps.scale", c.experts));
}

ValueId feed_forward(ProgramBuilder& p, const ModelConfig& c, ValueId h) {
  const ValueId d = mlp(p, c, h);
  if (c.experts == 0) return d;
  const ValueId r = routes(p, c, h);
  const ValueId n = p.rms_norm("pre_ffw_norm_2", h, p.vector("pre_ffw_norm_2.weight", c.hidden));
  const op::Experts experts{p.matrix("ffn_gate_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_up_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_down_exps", c.hidden, c.expert_inner, c.experts), Activation::gelu_tanh};
  const ValueId m = p.experts("ffn_experts", n, r, experts);
  return p.add("ffn_sum", p.rms_norm("post_ffw_norm_1", d, p.vector("post_ffw_norm_1.weight", c.hidden)),
               p.rms_norm("post_ffw_norm_2", m, p.vector("post_ffw_norm_2.weight", c.hidden)));
}

}  // namespace

Expected<void> check_gemma_experts(const ModelConfig& c, const WeightStore& weights) {
  constexpr const char* kRouter = "blk.0.ffn_gate_inp.weight";
  if (c.experts > 0 || !weights.has(kRouter)) return {};
  return fail(ErrorCode::corrupt,
              "the model has a router ('{}') but, by its configuration, no experts (enable_moe_block, num_experts, "
              "{}.expert_count): correct it in config.json, or convert the model again",
              kRouter, c.architecture);
}

ValueId gemma_embed(ProgramBuilder& p, const ModelConfig& c) {
  return p.embed(p.matrix("token_embd", c.vocabulary, c.hidden), static_cast<float>(std::sqrt(c.hidden)));
}

GemmaHeads gemma_heads(ProgramBuilder& p, const ModelConfig& c, const RopeTables& rope, int32_t layer, ValueId x) {
  p.layer(layer);
  const bool slides = c.slides(layer);
  GemmaHeads heads{};
  heads.kv_heads = slides ? c.sliding.kv_heads : c.kv_heads;
  heads.head_dim = slides ? c.sliding.head_dim : c.head_dim;
  heads.window = slides ? c.sliding.window : 0;
  const RopeTable& table = slides ? rope.sliding : rope.full;
  const int64_t q_width = int64_t{c.heads} * heads.head_dim, kv_width = int64_t{heads.kv_heads} * heads.head_dim;

  const ValueId a = p.rms_norm("attn_norm", x, p.vector("attn_norm.weight", c.hidden));
  const ValueId q = p.linear("attn_q", a, p.matrix("attn_q", q_width, c.hidden));
  const ValueId k = p.linear("attn_k", a, p.matrix("attn_k", kv_width, c.hidden));
  // Before its norm and rotation, that is.
  const bool from_k = !slides && c.keys_as_values && !p.has("attn_v.weight");
  const ValueId v = from_k ? k : p.linear("attn_v", a, p.matrix("attn_v", kv_width, c.hidden));
  const ValueId qn = p.head_norm("attn_q_norm", q, p.vector("attn_q_norm.weight", heads.head_dim), heads.head_dim);
  const ValueId kn = p.head_norm("attn_k_norm", k, p.vector("attn_k_norm.weight", heads.head_dim), heads.head_dim);
  heads.v = p.head_norm("attn_v_norm", v, nullptr, heads.head_dim);
  heads.q = p.rope("attn_q_rope", qn, table, c.heads, heads.head_dim, c.rope_pairing);
  heads.k = p.rope("attn_k_rope", kn, table, heads.kv_heads, heads.head_dim, c.rope_pairing);
  return heads;
}

ValueId gemma_after_attention(ProgramBuilder& p, const ModelConfig& c, const GemmaHeads& heads, ValueId x,
                              ValueId attended, const std::string& layer_scalar, const std::string& canvas_scalar) {
  const ValueId o =
      p.linear("attn_output", attended, p.matrix("attn_output", c.hidden, int64_t{c.heads} * heads.head_dim));
  const ValueId h =
      p.add("attn_residual", x, p.rms_norm("post_attention_norm", o, p.vector("post_attention_norm.weight", c.hidden)));
  const ValueId f = p.rms_norm("post_ffw_norm", feed_forward(p, c, h), p.vector("post_ffw_norm.weight", c.hidden));
  return p.scale("layer_output", p.add("ffn_residual", h, f), p.vector(layer_scalar, 1),
                 canvas_scalar.empty() ? nullptr : p.vector(canvas_scalar, 1));
}

ValueId gemma_layer(ProgramBuilder& p, const ModelConfig& c, const RopeTables& rope, int32_t layer, ValueId x,
                    const std::string& layer_scalar, const std::string& canvas_scalar) {
  const GemmaHeads heads = gemma_heads(p, c, rope, layer, x);
  // The norms of queries and keys take the place of 1 / sqrt(head_dim).
  const ValueId attended =
      p.attend("attn", heads.q, heads.k, heads.v, c.heads, heads.kv_heads, heads.head_dim, 1.0F, heads.window);
  return gemma_after_attention(p, c, heads, x, attended, layer_scalar, canvas_scalar);
}

ValueId gemma_head(ProgramBuilder& p, const ModelConfig& c, WeightStore& weights, ValueId x) {
  const ValueId logits = head_block(p, c, weights, x);
  return c.logit_softcap > 0 ? p.softcap("output_softcap", logits, c.logit_softcap) : logits;
}

Expected<Program> build_gemma4(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  COHORT_TRY(check_gemma_experts(c, weights));
  ProgramBuilder p(c, weights);
  ValueId x = gemma_embed(p, c);
  for (int32_t layer = 0; layer < c.layers; ++layer) x = gemma_layer(p, c, rope, layer, x);
  return p.finish(gemma_head(p, c, weights, x));
}

}  // namespace cohort
