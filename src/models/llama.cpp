// Llama (Touvron et al., 2023) and Mixtral (Jiang et al., 2024): a dense MLP, or experts when the model has them (top-2
// of 8, renormalised).
#include "models/builder.h"
#include "models/families.h"

namespace cohort {

Expected<Program> build_llama(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  ProgramBuilder p(c, weights);
  ValueId x = p.embed(p.matrix("token_embd", c.vocabulary, c.hidden));  // [rows, hidden]
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    p.layer(layer);
    x = attention_block(p, c, rope.full, x, /*qk_norm=*/false);
    x = c.experts > 0 ? moe_block(p, c, x) : dense_block(p, c, x);
  }
  return p.finish(head_block(p, c, weights, x));
}

}  // namespace cohort
