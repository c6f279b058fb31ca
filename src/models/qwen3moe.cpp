// Qwen3-MoE (Qwen team, 2025, "Qwen3 technical report"): every layer is MoE, heads of Q and K are RMS-normed before
// RoPE.
#include "models/builder.h"
#include "models/families.h"

namespace cohort {

Expected<Program> build_qwen3moe(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  ProgramBuilder p(c, weights);
  ValueId x = p.embed(p.matrix("token_embd", c.vocabulary, c.hidden));  // [rows, hidden]
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    p.layer(layer);
    x = attention_block(p, c, rope.full, x, /*qk_norm=*/true);
    x = moe_block(p, c, x);
  }
  return p.finish(head_block(p, c, weights, x));
}

}  // namespace cohort
