#include "models/huggingface_names.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "models/gemma_config.h"
#include "models/gpt_oss_config.h"

namespace cohort {
namespace {

using Map = std::unordered_map<std::string_view, std::string_view>;

const Map& llama_parts() {
  static const Map kParts{
      {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
      {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},       {"ffn_gate_inp", "mlp.gate"},
  };
  return kParts;
}

/// Where Gemma's names differ from Llama's.
const Map& gemma_parts() {
  static const Map kParts{
      {"post_attention_norm", "post_attention_layernorm"},
      {"ffn_norm", "pre_feedforward_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
      {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
      {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
      {"ffn_gate_inp", "router.proj"},
  };
  return kParts;
}

/// Tensors of a Gemma layer that are no modules with a `.weight`.
const Map& gemma_tensors() {
  static const Map kTensors{
      {"ffn_gate_inp.scale", "router.scale"},
      {"ffn_down_exps.scale", "router.per_expert_scale"},
      {"layer_output_scale.weight", "layer_scalar"},
  };
  return kTensors;
}

/// Where gpt-oss's names differ from Llama's.
const Map& gpt_oss_parts() {
  static const Map kParts{
      {"post_attention_norm", "post_attention_layernorm"},
      {"ffn_gate_inp", "mlp.router"},
  };
  return kParts;
}

/// DiffusionGemma's tensors outside of its layers.
const Map& self_conditioning() {
  static const Map kTensors{
      {"self_cond_pre_norm.weight", "pre_norm.weight"},
      {"self_cond_gate.weight", "gate_proj.weight"},
      {"self_cond_up.weight", "up_proj.weight"},
      {"self_cond_down.weight", "down_proj.weight"},
  };
  return kTensors;
}

std::string_view projection_of(std::string_view name) {
  if (name.ends_with("ffn_gate_exps")) return "gate_proj";
  return name.ends_with("ffn_down_exps") ? "down_proj" : "up_proj";
}

}  // namespace

HuggingFaceNames::HuggingFaceNames(const safetensors::Folder& folder, std::string_view architecture)
    : folder_(folder),
      mixtral_(architecture == "llama"),
      gemma_(is_gemma(architecture)),
      gpt_oss_(is_gpt_oss(architecture)),
      prefix_("model.") {
  if (!gemma_) return;
  // With a vision tower or without, as the encoder of a diffusion model, as MLX writes it.
  // Where the norm is missing, too, the message about it should name its place.
  for (const char* mark : {"norm.weight", "embed_tokens.weight"}) {
    for (const char* prefix : {"model.language_model.", "model.decoder.", "language_model.model.", "model."}) {
      if (folder.find(std::string(prefix) + mark) == nullptr) continue;
      prefix_ = prefix;
      return;
    }
  }
}

/// "blk.3.attn_q" -> "model.layers.3."
std::string HuggingFaceNames::layer(const std::string& name) const {
  return prefix_ + "layers." + name.substr(4, name.find('.', 4) - 4) + ".";
}

std::string HuggingFaceNames::tensor(const std::string& name) const {
  if (name == "token_embd.weight") return prefix_ + "embed_tokens.weight";
  if (name == "output_norm.weight") return prefix_ + "norm.weight";
  if (name == "output.weight") return "lm_head.weight";
  if (const auto found = self_conditioning().find(name); found != self_conditioning().end())
    return prefix_ + "self_conditioning." + std::string(found->second);
  if (!name.starts_with("blk.")) return name;
  const std::string in_layer = name.substr(name.find('.', 4) + 1);
  const size_t part_end = in_layer.rfind('.');
  const std::string part = in_layer.substr(0, part_end), ending = in_layer.substr(std::min(part_end, in_layer.size()));
  if (gemma_ && in_layer == "enc_layer_output_scale.weight") {
    // The encoder shares all but this.
    std::string of_encoder = layer(name) + "layer_scalar";
    if (const size_t at = of_encoder.find("decoder."); at != std::string::npos)
      of_encoder.replace(at, 8, "encoder.language_model.");
    return of_encoder;
  }
  if (gemma_) {
    if (const auto found = gemma_tensors().find(in_layer); found != gemma_tensors().end())
      return layer(name) + std::string(found->second);
    if (const auto found = gemma_parts().find(part); found != gemma_parts().end())
      return layer(name) + std::string(found->second) + ending;
  }
  if (gpt_oss_) {
    if (in_layer == "attn_sinks.weight") return layer(name) + "self_attn.sinks";
    if (const auto found = gpt_oss_parts().find(part); found != gpt_oss_parts().end())
      return layer(name) + std::string(found->second) + ending;
  }
  const auto found = llama_parts().find(part);
  std::string mapped = layer(name) + std::string(found != llama_parts().end() ? found->second : part) + ending;
  // Mixtral's router stands in another module in checkpoints of the older layout.
  if (mixtral_ && part == "ffn_gate_inp" && folder_.find(mapped) == nullptr)
    mapped = layer(name) + "block_sparse_moe.gate" + ending;
  return mapped;
}

HuggingFaceNames::Experts HuggingFaceNames::experts(const std::string& name) const {
  const std::string projection(projection_of(name));
  const std::string block = layer(name) + (gemma_ ? "" : mixtral_ ? "block_sparse_moe." : "mlp.");
  std::string one = projection;
  if (mixtral_) one = projection == "gate_proj" ? "w1" : projection == "down_proj" ? "w2" : "w3";
  Experts out{{}, {}, gpt_oss_, block + "experts.", "." + one};
  // MLX stacks the experts of a projection.
  out.stacked = {block + (gemma_ ? "experts.switch_glu." : gpt_oss_ ? "experts." : "switch_mlp.") + projection};
  const std::string fused = projection == "down_proj" ? "down_proj" : "gate_up_proj";
  out.fused = {block + "experts." + fused};
  if (mixtral_) out.fused.insert(out.fused.begin(), layer(name) + "mlp.experts." + fused);
  return out;
}

bool is_other_than_text(std::string_view tensor) {
  constexpr std::array kParts{"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                              "multi_modal_projector."};
  return std::ranges::any_of(kParts,
                             [&](std::string_view part) { return tensor.find(part) != std::string_view::npos; });
}

}  // namespace cohort
