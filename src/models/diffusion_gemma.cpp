// DiffusionGemma: Gemma 4 that denoises canvases of many tokens. Its encoder reads tokens causally and fills the cache;
// its decoder looks at a whole canvas and gives logits. Both have the same weights but for a factor at the end of each
// layer, so one program runs the rows of both in the same step: every matrix and every expert is read once for all.
#include <cmath>

#include "base/result.h"
#include "models/families.h"
#include "models/gemma4.h"

namespace cohort {
namespace {

/// Tokens as they are; those of a canvas beside what the step before thought of their places.
ValueId conditioned_embed(ProgramBuilder& p, const ModelConfig& c) {
  const ValueId e = gemma_embed(p, c);
  const ValueId s =
      p.mix("self_cond_mix", p.matrix("token_embd", c.vocabulary, c.hidden), static_cast<float>(std::sqrt(c.hidden)));
  const ValueId n = p.rms_norm("self_cond_pre_norm", s, p.vector("self_cond_pre_norm.weight", c.hidden));
  const ValueId gate = p.linear("self_cond_gate", n, p.matrix("self_cond_gate", c.inner, c.hidden));
  const ValueId up = p.linear("self_cond_up", n, p.matrix("self_cond_up", c.inner, c.hidden));
  const ValueId g = p.linear("self_cond_down", p.gate("self_cond_act", gate, up, Activation::gelu_tanh),
                             p.matrix("self_cond_down", c.hidden, c.inner));
  return p.condition("self_cond", e, g);
}

}  // namespace

Expected<Program> build_diffusion_gemma(const ModelConfig& c, const RopeTables& rope, WeightStore& weights) {
  COHORT_TRY(check_gemma_experts(c, weights));
  ProgramBuilder p(c, weights);
  ValueId x = conditioned_embed(p, c);
  for (int32_t layer = 0; layer < c.layers; ++layer)
    x = gemma_layer(p, c, rope, layer, x, "enc_layer_output_scale.weight", kGemmaLayerScalar);
  return p.finish(gemma_head(p, c, weights, x));
}

}  // namespace cohort
