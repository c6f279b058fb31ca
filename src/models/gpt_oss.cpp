// gpt-oss (OpenAI, 2025, "gpt-oss-120b & gpt-oss-20b model card"): every other layer sees a sliding window, each head
// has a sink (a score without a value), everything that multiplies has a bias, and the experts' gate and up are cut
// before they meet.
#include <cmath>

#include "models/builder.h"
#include "models/families.h"

namespace cohort {
namespace {

/// W x + b; files have both.
ValueId biased(ProgramBuilder& p, const std::string& name, ValueId x, int64_t rows, int64_t cols) {
  return p.linear(name, x, p.matrix(name, rows, cols), p.vector(name + ".bias", rows));
}

ValueId attention(ProgramBuilder& p, const ModelConfig& c, const RopeTable& rope, int32_t layer, ValueId x) {
  const int64_t q_width = int64_t{c.heads} * c.head_dim, kv_width = int64_t{c.kv_heads} * c.head_dim;
  const ValueId a = p.rms_norm("attn_norm", x, p.vector("attn_norm.weight", c.hidden));
  const ValueId q = biased(p, "attn_q", a, q_width, c.hidden);
  const ValueId k = biased(p, "attn_k", a, kv_width, c.hidden);
  const ValueId v = biased(p, "attn_v", a, kv_width, c.hidden);
  const ValueId turned_q = p.rope("attn_q_rope", q, rope, c.heads, c.head_dim, c.rope_pairing);
  const ValueId turned_k = p.rope("attn_k_rope", k, rope, c.kv_heads, c.head_dim, c.rope_pairing);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  const ValueId o = p.attend("attn", turned_q, turned_k, v, c.heads, c.kv_heads, c.head_dim, scale,
                             c.slides(layer) ? c.sliding.window : 0, p.vector("attn_sinks.weight", c.heads));
  return p.add("attn_residual", x, biased(p, "attn_output", o, c.hidden, q_width));
}

/// The softmax over the chosen logits is that over all of them, renormalised.
ValueId feed_forward(ProgramBuilder& p, const ModelConfig& c, ValueId x) {
  const ValueId n = p.rms_norm("post_attention_norm", x, p.vector("post_attention_norm.weight", c.hidden));
  const ValueId routes = p.route("ffn_route", n, p.matrix("ffn_gate_inp", c.experts, c.hidden), c.top_k,
                                 /*renormalise=*/true, nullptr, p.vector("ffn_gate_inp.bias", c.experts));
  const int64_t inner = int64_t{c.experts} * c.expert_inner, hidden = int64_t{c.experts} * c.hidden;
  const op::Experts experts{p.matrix("ffn_gate_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_up_exps", c.expert_inner, c.hidden, c.experts),
                            p.matrix("ffn_down_exps", c.hidden, c.expert_inner, c.experts),
                            Activation::clamped_swiglu,
                            p.vector("ffn_gate_exps.bias", inner),
                            p.vector("ffn_up_exps.bias", inner),
                            p.vector("ffn_down_exps.bias", hidden)};
  return p.add("ffn_residual", x, p.experts("ffn_experts", n, routes, experts));
}

}  // namespace

Expected<Program> build_gpt_oss(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  ProgramBuilder p(c, weights);
  ValueId x = p.embed(p.matrix("token_embd", c.vocabulary, c.hidden));  // [rows, hidden]
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    p.layer(layer);
    x = attention(p, c, rope.full, layer, x);
    x = feed_forward(p, c, x);
  }
  return p.finish(head_block(p, c, weights, x));
}

}  // namespace cohort
