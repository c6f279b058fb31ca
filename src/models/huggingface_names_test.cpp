// Names of tensors in checkpoint folders.
#include "models/huggingface_names.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace cohort {
namespace {

safetensors::Folder golden(const std::string& model) {
  auto folder = safetensors::Folder::open(std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/models" / model);
  EXPECT_TRUE(folder) << folder.error().message;
  return std::move(*folder);
}

TEST(HuggingFaceNames, GemmaWithAndWithoutAVisionTower) {
  for (const auto& [model, prefix] : {std::pair{"gemma4", "model.language_model."}, {"gemma4_deep", "model."}}) {
    const auto folder = golden(model);
    const HuggingFaceNames names(folder, "gemma4");
    for (const auto& [ours, theirs] : {std::pair{"token_embd.weight", "embed_tokens.weight"},
                                       {"output_norm.weight", "norm.weight"},
                                       {"blk.1.attn_norm.weight", "layers.1.input_layernorm.weight"},
                                       {"blk.1.attn_q.weight", "layers.1.self_attn.q_proj.weight"},
                                       {"blk.1.post_attention_norm.weight", "layers.1.post_attention_layernorm.weight"},
                                       {"blk.1.ffn_norm.weight", "layers.1.pre_feedforward_layernorm.weight"},
                                       {"blk.1.ffn_gate.weight", "layers.1.mlp.gate_proj.weight"},
                                       {"blk.1.ffn_gate_inp.weight", "layers.1.router.proj.weight"},
                                       {"blk.1.ffn_gate_inp.scale", "layers.1.router.scale"},
                                       {"blk.1.ffn_down_exps.scale", "layers.1.router.per_expert_scale"},
                                       {"blk.1.layer_output_scale.weight", "layers.1.layer_scalar"}}) {
      EXPECT_EQ(names.tensor(ours), std::string(prefix) + theirs);
      EXPECT_NE(folder.find(names.tensor(ours)), nullptr) << ours;
    }
    for (const auto& [ours, theirs] : {std::pair{"blk.0.ffn_gate_exps", "layers.0.experts.gate_up_proj"},
                                       {"blk.0.ffn_up_exps", "layers.0.experts.gate_up_proj"},
                                       {"blk.0.ffn_down_exps", "layers.0.experts.down_proj"}}) {
      EXPECT_EQ(names.experts(ours).fused, std::vector<std::string>{std::string(prefix) + theirs});
    }
    EXPECT_EQ(names.tensor("output.weight"), "lm_head.weight");
  }
}

TEST(HuggingFaceNames, OtherFamiliesKeepTheirs) {
  const auto folder = golden("mixtral");
  const HuggingFaceNames mixtral(folder, "llama"), qwen(folder, "qwen3moe");
  EXPECT_EQ(mixtral.tensor("blk.0.ffn_norm.weight"), "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(mixtral.tensor("blk.0.ffn_gate_inp.weight"), "model.layers.0.block_sparse_moe.gate.weight");
  EXPECT_EQ(mixtral.experts("blk.0.ffn_up_exps").of(3), "model.layers.0.block_sparse_moe.experts.3.w3");
  EXPECT_EQ(qwen.experts("blk.0.ffn_down_exps").of(1), "model.layers.0.mlp.experts.1.down_proj");
  EXPECT_EQ(qwen.tensor("blk.7.attn_q.bias"), "model.layers.7.self_attn.q_proj.bias");
  EXPECT_EQ(qwen.tensor("blk.7.new_thing.weight"), "model.layers.7.new_thing.weight");
}

TEST(HuggingFaceNames, TensorsForImagesAndSound) {
  int64_t others = 0;
  const auto folder = golden("diffusion_gemma");
  for (const auto& tensor : folder.tensors()) others += is_other_than_text(tensor.name) ? 1 : 0;
  EXPECT_GT(others, 10);
  EXPECT_TRUE(is_other_than_text("model.audio_tower.layers.0.norm.weight"));
  EXPECT_TRUE(is_other_than_text("model.embed_vision.embedding_projection.weight"));
  EXPECT_FALSE(is_other_than_text("model.language_model.layers.0.router.scale"));
  EXPECT_FALSE(is_other_than_text("model.embed_tokens.weight"));
}

}  // namespace
}  // namespace cohort
