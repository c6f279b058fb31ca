// Gemma 4's layer, in parts: DiffusionGemma's encoder and decoder are built from the same ones.
#pragma once

#include <string>

#include "models/builder.h"

namespace cohort {

/// Weights of the last multiplication of a layer: y = (...) * scalar.
inline constexpr const char* kGemmaLayerScalar = "layer_output_scale.weight";

/// What a layer attends with: normed and rotated queries and keys, normed values.
struct GemmaHeads {
  ValueId q;     // [rows, heads * head_dim]
  ValueId k, v;  // [rows, kv_heads * head_dim]
  int32_t kv_heads, head_dim;
  int32_t window;  // 0: the layer sees everything
};

/// corrupt: weights of experts where the configuration has none. Computing the rest would be another model.
Expected<void> check_gemma_experts(const ModelConfig& c, const WeightStore& weights);
/// rows of the embedding times sqrt(hidden). [rows, hidden]
ValueId gemma_embed(ProgramBuilder& p, const ModelConfig& c);
/// Makes `layer` the builder's layer. x [rows, hidden].
GemmaHeads gemma_heads(ProgramBuilder& p, const ModelConfig& c, const RopeTables& rope, int32_t layer, ValueId x);
/// The rest of the builder's layer. x [rows, hidden] is its input, `attended` [rows, heads * head_dim] what attention
/// with its heads gave, `layer_scalar` the name of its last factor, `canvas_scalar` of that of canvas rows (empty: the
/// same).
ValueId gemma_after_attention(ProgramBuilder& p, const ModelConfig& c, const GemmaHeads& heads, ValueId x,
                              ValueId attended, const std::string& layer_scalar = kGemmaLayerScalar,
                              const std::string& canvas_scalar = {});
/// A whole layer with causal attention, whose keys and values go to the next layer of the cache. [rows, hidden]
ValueId gemma_layer(ProgramBuilder& p, const ModelConfig& c, const RopeTables& rope, int32_t layer, ValueId x,
                    const std::string& layer_scalar = kGemmaLayerScalar, const std::string& canvas_scalar = {});
/// Sampled rows only: softcap(head(norm(x))). [sampled, vocabulary]
ValueId gemma_head(ProgramBuilder& p, const ModelConfig& c, WeightStore& weights, ValueId x);

}  // namespace cohort
