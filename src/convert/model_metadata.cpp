#include "convert/model_metadata.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "convert/plan.h"
#include "models/diffusion_config.h"
#include "models/gemma_config.h"
#include "models/gpt_oss_config.h"
#include "models/layer_types.h"

namespace cohort::convert_detail {
namespace {

constexpr uint32_t kQuantisationVersion = 2;  // of ggml's block layouts

uint32_t u32(int32_t value) {
  return static_cast<uint32_t>(value);
}

/// What the model's makers recommend, under the names that llama.cpp reads.
Expected<void> add_sampling(const nlohmann::json* generation_config, gguf::Metadata& out) {
  if (generation_config == nullptr) return {};
  JsonObject config(*generation_config, "generation_config.json");
  COHORT_ASSIGN(bool samples, config.get_bool("do_sample", true));
  if (!samples) return {};
  if (config.contains("top_k")) {
    COHORT_ASSIGN(int64_t top_k, config.get_int("top_k"));
    if (!std::in_range<int32_t>(top_k) || top_k < 0) {
      return fail(ErrorCode::corrupt, "{}: top_k is {}; 0 or more is needed", config.where(), top_k);
    }
    COHORT_TRY(out.add("general.sampling.top_k", gguf::Value(static_cast<int32_t>(top_k))));
  }
  constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  for (const auto& [name, key] : kNumbers) {
    if (!config.contains(name)) continue;
    COHORT_ASSIGN(double value, config.get_number(name));
    COHORT_TRY(out.add(key, gguf::Value(static_cast<float>(value))));
  }
  return {};
}

Expected<void> add_rope_scaling(const RopeScaling& scaling, const std::string& prefix, gguf::Metadata& out,
                                std::vector<std::string>& notes) {
  using Kind = RopeScaling::Kind;
  if (scaling.kind == Kind::none || scaling.kind == Kind::llama3) return {};  // llama3: the tensor rope_freqs
  bool yarn = scaling.kind == Kind::yarn;
  COHORT_TRY(out.add(prefix + "type", gguf::Value(std::string(yarn ? "yarn" : "linear"))));
  COHORT_TRY(out.add(prefix + "factor", gguf::Value(static_cast<float>(scaling.factor))));
  if (!yarn) return {};
  COHORT_TRY(out.add(prefix + "original_context_length", gguf::Value(static_cast<uint32_t>(scaling.original_context))));
  if (scaling.beta_fast != 32) {
    COHORT_TRY(out.add(prefix + "yarn_beta_fast", gguf::Value(static_cast<float>(scaling.beta_fast))));
  }
  if (scaling.beta_slow != 1) {
    COHORT_TRY(out.add(prefix + "yarn_beta_slow", gguf::Value(static_cast<float>(scaling.beta_slow))));
  }
  if (scaling.beta_fast != 32 || scaling.beta_slow != 1) {
    notes.push_back(fmt::format(
        "llama.cpp reads YaRN's betas for few architectures; there, run with --yarn-beta-fast {} --yarn-beta-slow {}",
        scaling.beta_fast, scaling.beta_slow));
  }
  // The key holds what is multiplied on top of YaRN's own 0.1 ln(factor) + 1.
  const double own = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
  if (std::abs(scaling.attention_factor / own - 1) > 1e-6) {
    COHORT_TRY(out.add(prefix + "attn_factor", gguf::Value(static_cast<float>(scaling.attention_factor / own))));
  }
  return {};
}

/// A number, or a list with one for each layer where they differ.
Expected<void> add_kv_heads(const ModelConfig& config, const std::string& arch, gguf::Metadata& out) {
  const std::string key = arch + "attention.head_count_kv";
  if (!is_gemma(config.architecture)) return out.add(key, gguf::Value(u32(config.kv_heads)));
  std::vector<int32_t> heads;
  for (int32_t layer = 0; layer < config.layers; ++layer)
    heads.push_back(config.slides(layer) ? config.sliding.kv_heads : config.kv_heads);
  return out.add(key, gguf::Value(std::move(heads)));
}

/// What only Gemma's files have.
Expected<void> add_gemma(const ModelConfig& config, const std::string& arch, gguf::Metadata& out) {
  using gguf::Value;
  const SlidingAttention& sliding = config.sliding;
  COHORT_TRY(out.add(arch + "attention.key_length_swa", Value(u32(sliding.head_dim))));
  COHORT_TRY(out.add(arch + "attention.value_length_swa", Value(u32(sliding.head_dim))));
  COHORT_TRY(out.add(arch + "attention.sliding_window", Value(u32(sliding.window))));
  COHORT_TRY(out.add(arch + "attention.sliding_window_pattern", Value(sliding.layers)));
  COHORT_TRY(out.add(arch + "attention.shared_kv_layers", Value(u32(0))));
  COHORT_TRY(out.add(arch + "embedding_length_per_layer_input", Value(u32(0))));
  COHORT_TRY(out.add(arch + "rope.dimension_count_swa", Value(u32(sliding.rotary_dims))));
  COHORT_TRY(out.add(arch + "rope.freq_base_swa", Value(static_cast<float>(sliding.rope_base))));
  if (config.logit_softcap > 0) COHORT_TRY(out.add(arch + "final_logit_softcapping", Value(config.logit_softcap)));
  return {};
}

/// The window, and which layers have it where it is not every other one, as llama.cpp takes for granted.
Expected<void> add_gpt_oss(const ModelConfig& config, const std::string& arch, gguf::Metadata& out) {
  using gguf::Value;
  COHORT_TRY(out.add(arch + "attention.sliding_window", Value(u32(config.sliding.window))));
  if (config.sliding.layers == sliding_but_every(2, config.layers)) return {};
  return out.add(arch + "attention.sliding_window_pattern", Value(config.sliding.layers));
}

/// How canvases are denoised; these keys have no architecture before them.
Expected<void> add_diffusion(DiffusionRules rules, const nlohmann::json* generation_config, gguf::Metadata& out) {
  using gguf::Value;
  if (generation_config != nullptr) COHORT_TRY(read_diffusion_from_generation_config(*generation_config, rules));
  COHORT_TRY(out.add("diffusion.canvas_length", Value(u32(rules.canvas_length))));
  COHORT_TRY(out.add("diffusion.eb_max_steps", Value(u32(rules.max_steps))));
  COHORT_TRY(out.add("diffusion.eb_t_min", Value(rules.t_min)));
  COHORT_TRY(out.add("diffusion.eb_t_max", Value(rules.t_max)));
  COHORT_TRY(out.add("diffusion.eb_entropy_bound", Value(rules.entropy_bound)));
  COHORT_TRY(out.add("diffusion.eb_stability_threshold", Value(u32(rules.stability))));
  return out.add("diffusion.eb_confidence_threshold", Value(rules.confidence));
}

}  // namespace

Expected<void> add_model_metadata(const ModelConfig& config, const std::string& name, TensorType type,
                                  const nlohmann::json* generation_config, gguf::Metadata& out,
                                  std::vector<std::string>& notes) {
  using gguf::Value;
  COHORT_TRY(out.add("general.architecture", Value(config.architecture)));
  COHORT_TRY(out.add("general.type", Value(std::string("model"))));
  COHORT_TRY(out.add("general.name", Value(name)));
  COHORT_TRY(out.add("general.file_type", Value(file_type(type))));
  COHORT_TRY(out.add("general.quantization_version", Value(kQuantisationVersion)));
  COHORT_TRY(add_sampling(generation_config, out));

  const std::string arch = config.architecture + ".";
  COHORT_TRY(out.add(arch + "vocab_size", Value(u32(config.vocabulary))));
  COHORT_TRY(out.add(arch + "block_count", Value(u32(config.layers))));
  COHORT_TRY(out.add(arch + "context_length", Value(u32(config.context))));
  COHORT_TRY(out.add(arch + "embedding_length", Value(u32(config.hidden))));
  // Mixtral's experts have the width that config.json calls intermediate_size.
  int32_t inner = config.inner > 0 ? config.inner : config.expert_inner;
  COHORT_TRY(out.add(arch + "feed_forward_length", Value(u32(inner))));
  COHORT_TRY(out.add(arch + "attention.head_count", Value(u32(config.heads))));
  COHORT_TRY(add_kv_heads(config, arch, out));
  COHORT_TRY(out.add(arch + "attention.key_length", Value(u32(config.head_dim))));
  COHORT_TRY(out.add(arch + "attention.value_length", Value(u32(config.head_dim))));
  COHORT_TRY(out.add(arch + "attention.layer_norm_rms_epsilon", Value(config.rms_eps)));
  COHORT_TRY(out.add(arch + "rope.dimension_count", Value(u32(config.rotary_dims))));
  COHORT_TRY(out.add(arch + "rope.freq_base", Value(static_cast<float>(config.rope_base))));
  if (is_gemma(config.architecture)) COHORT_TRY(add_gemma(config, arch, out));
  if (is_gpt_oss(config.architecture)) COHORT_TRY(add_gpt_oss(config, arch, out));
  if (config.diffusion.canvas_length > 0) COHORT_TRY(add_diffusion(config.diffusion, generation_config, out));
  COHORT_TRY(add_rope_scaling(config.rope_scaling, arch + "rope.scaling.", out, notes));
  if (config.experts > 0) {
    COHORT_TRY(out.add(arch + "expert_count", Value(u32(config.experts))));
    COHORT_TRY(out.add(arch + "expert_used_count", Value(u32(config.top_k))));
    COHORT_TRY(out.add(arch + "expert_feed_forward_length", Value(u32(config.expert_inner))));
  }
  return {};
}

}  // namespace cohort::convert_detail
