// Qwen2 and Qwen2.5, dense: biases on Q, K and V (found by name), no norm of Q and K.
#include "models/builder.h"
#include "models/families.h"

namespace cohort {

Expected<Program> build_qwen2(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  ProgramBuilder p(c, weights);
  ValueId x = p.embed(p.matrix("token_embd", c.vocabulary, c.hidden));  // [rows, hidden]
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    p.layer(layer);
    x = attention_block(p, c, rope.full, x, /*qk_norm=*/false);
    x = dense_block(p, c, x);
  }
  return p.finish(head_block(p, c, weights, x));
}

}  // namespace cohort
