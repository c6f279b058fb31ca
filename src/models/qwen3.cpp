// Qwen3, dense: Qwen3-MoE's attention with one gated MLP per layer.
#include "models/builder.h"
#include "models/families.h"

namespace cohort {

Expected<Program> build_qwen3(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  ProgramBuilder p(c, weights);
  ValueId x = p.embed(p.matrix("token_embd", c.vocabulary, c.hidden));  // [rows, hidden]
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    p.layer(layer);
    x = attention_block(p, c, rope.full, x, /*qk_norm=*/true);
    x = dense_block(p, c, x);
  }
  return p.finish(head_block(p, c, weights, x));
}

}  // namespace cohort
