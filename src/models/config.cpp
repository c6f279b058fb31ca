#include "models/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "base/printable.h"
#include "base/result.h"
#include "formats/gguf/metadata.h"
#include "models/diffusion_config.h"
#include "models/families.h"
#include "models/gemma_config.h"
#include "models/gpt_oss_config.h"
#include "models/rope.h"

namespace cohort {
namespace {

using nlohmann::json;

/// Upper limits that no real model comes near; they keep a hostile file from asking for absurd tables.
constexpr int64_t kMaxDimension = 1 << 24;

Expected<int32_t> dimension(std::string_view key, int64_t value, int64_t limit = kMaxDimension) {
  if (value < 0 || value > limit) return fail(ErrorCode::corrupt, "'{}' is {}; expected 0 to {}", key, value, limit);
  return static_cast<int32_t>(value);
}

/// An integer of config.json between 0 and `limit`; absent without a fallback is an error.
Expected<int32_t> size_of(const JsonObject& config, std::string_view key, std::optional<int64_t> fallback = {},
                          int64_t limit = kMaxDimension) {
  COHORT_ASSIGN(int64_t value, fallback ? config.get_int(key, *fallback) : config.get_int(key));
  return dimension(key, value, limit);
}

/// transformers writes a list of class names; the model's kind is read from model_type.
Expected<void> check_architectures(const JsonObject& config) {
  const json* value = config.find("architectures");
  if (value == nullptr) return {};
  const bool names = value->is_array() && std::ranges::all_of(*value, [](const json& v) { return v.is_string(); });
  if (names) return {};
  return fail(ErrorCode::corrupt, "{}: 'architectures' is {}; a list of class names is needed, as [\"{}\"]",
              config.where(), printable(value->dump(-1, ' ', false, json::error_handler_t::replace), 80),
              "Qwen3MoeForCausalLM");
}

Expected<void> check_no_sliding_window(const JsonObject& config, const ModelConfig& out, bool used_by_default) {
  COHORT_ASSIGN(bool used, config.get_bool("use_sliding_window", used_by_default));
  COHORT_ASSIGN(int32_t window, size_of(config, "sliding_window", 0));
  if (used && window > 0 && window < out.context) {
    return fail(ErrorCode::unsupported, "{}: sliding_window {} is in use; this family runs with full attention only",
                config.where(), window);
  }
  return {};
}

Expected<void> read_experts(const JsonObject& config, bool mixtral, ModelConfig& out) {
  COHORT_ASSIGN(out.top_k, size_of(config, "num_experts_per_tok"));
  COHORT_ASSIGN(out.expert_inner, size_of(config, "moe_intermediate_size", out.inner));
  // The class default of Qwen is false; Mixtral always renormalises.
  COHORT_ASSIGN(out.renormalise, config.get_bool("norm_topk_prob", mixtral));
  COHORT_ASSIGN(int64_t step, config.get_int("decoder_sparse_step", 1));
  const json* dense = config.find("mlp_only_layers");
  if (step != 1 || (dense != nullptr && dense->is_array() && !dense->empty())) {
    return fail(ErrorCode::unsupported,
                "{}: dense layers between MoE layers (decoder_sparse_step {}, mlp_only_layers {}) are not supported",
                config.where(), step, dense != nullptr ? dense->dump() : "[]");
  }
  return {};
}

}  // namespace

Expected<ModelConfig> config_from_huggingface(const json& root) {
  JsonObject config(root, "config.json");
  ModelConfig out;
  COHORT_ASSIGN(std::string type, config.get_string("model_type"));
  const Family* family = find_family_by_huggingface(type);
  if (family == nullptr) {
    return fail(ErrorCode::unsupported, "config.json: model_type '{}' is not supported; supported are {}", type,
                supported_huggingface_types());
  }
  COHORT_TRY(check_architectures(config));
  const bool mixtral = type == "mixtral";
  out.architecture = family->architecture;
  COHORT_ASSIGN(out.name, config.get_string("_name_or_path", ""));
  if (out.architecture == "diffusion-gemma") COHORT_TRY(read_diffusion_from_huggingface(config, out.diffusion));
  // Models that also see and hear keep the text model's sizes apart.
  const bool gemma = is_gemma(out.architecture);
  if (gemma && config.contains("text_config")) {
    COHORT_ASSIGN(config, config.get_object("text_config"));
  }
  COHORT_ASSIGN(out.layers, size_of(config, "num_hidden_layers"));
  COHORT_ASSIGN(out.hidden, size_of(config, "hidden_size"));
  COHORT_ASSIGN(out.heads, size_of(config, "num_attention_heads"));
  COHORT_ASSIGN(out.kv_heads, size_of(config, "num_key_value_heads", out.heads));
  COHORT_ASSIGN(out.head_dim, size_of(config, "head_dim", out.heads > 0 ? out.hidden / out.heads : 0));
  out.rotary_dims = out.head_dim;
  COHORT_ASSIGN(out.vocabulary, size_of(config, "vocab_size"));
  COHORT_ASSIGN(out.context, size_of(config, "max_position_embeddings", {}, kMaxContext));
  COHORT_ASSIGN(out.inner, size_of(config, "intermediate_size", 0));
  COHORT_ASSIGN(double eps, config.get_number("rms_norm_eps", 1e-6));
  out.rms_eps = static_cast<float>(eps);
  if (gemma) {
    COHORT_TRY(read_gemma_from_huggingface(config, out));
    COHORT_TRY(check(out));
    return out;
  }
  if (is_gpt_oss(out.architecture)) {
    COHORT_TRY(read_gpt_oss_from_huggingface(config, out));
    COHORT_TRY(check(out));
    return out;
  }
  COHORT_ASSIGN(std::string activation, config.get_string("hidden_act", "silu"));
  if (activation != "silu") {
    return fail(ErrorCode::unsupported, "config.json: hidden_act '{}' is not supported for {}; expected silu",
                activation, type);
  }
  if (family->moe) {
    // Mixtral says num_local_experts, Qwen num_experts; newer transformers write either.
    COHORT_ASSIGN(int32_t local_experts, size_of(config, "num_local_experts", 0));
    COHORT_ASSIGN(out.experts, size_of(config, "num_experts", local_experts));
    if (out.experts > 0) COHORT_TRY(read_experts(config, mixtral, out));
  }
  COHORT_TRY(check_no_sliding_window(config, out, mixtral));
  COHORT_TRY(read_rope_from_huggingface(config, out));
  COHORT_TRY(check(out));
  return out;
}

Expected<ModelConfig> config_from_gguf(const gguf::Metadata& metadata) {
  ModelConfig out;
  COHORT_ASSIGN(std::string_view architecture, metadata.get_string("general.architecture"));
  out.architecture = architecture;
  const Family* family = find_family(architecture);
  if (family == nullptr) {
    return fail(ErrorCode::unsupported, "architecture '{}' is not supported; supported are {}", architecture,
                supported_architectures());
  }
  const std::string prefix = out.architecture + ".";
  const auto key = [&](const char* name) { return prefix + name; };
  COHORT_ASSIGN(std::string_view name, metadata.get_string("general.name", ""));
  out.name = name;
  const auto size = [&](const char* name, std::optional<int64_t> fallback = {},
                        int64_t limit = kMaxDimension) -> Expected<int32_t> {
    COHORT_ASSIGN(int64_t value, fallback ? metadata.get_i64(key(name), *fallback) : metadata.get_i64(key(name)));
    return dimension(key(name), value, limit);
  };
  COHORT_ASSIGN(out.layers, size("block_count"));
  COHORT_ASSIGN(out.hidden, size("embedding_length"));
  COHORT_ASSIGN(out.context, size("context_length", {}, kMaxContext));
  COHORT_ASSIGN(out.heads, size("attention.head_count"));
  COHORT_ASSIGN(out.rms_eps, metadata.get_f32(key("attention.layer_norm_rms_epsilon")));
  COHORT_ASSIGN(const auto* tokens, metadata.get_string_array("tokenizer.ggml.tokens"));
  COHORT_ASSIGN(out.vocabulary, dimension("number of tokens", static_cast<int64_t>(tokens->size())));
  if (is_gemma(architecture)) {
    COHORT_TRY(read_gemma_from_gguf(metadata, out));
    if (architecture == "diffusion-gemma") COHORT_TRY(read_diffusion_from_gguf(metadata, out.diffusion));
    COHORT_TRY(check(out));
    return out;
  }
  COHORT_ASSIGN(out.kv_heads, size("attention.head_count_kv", out.heads));
  COHORT_ASSIGN(out.head_dim, size("attention.key_length", out.heads > 0 ? out.hidden / out.heads : 0));
  COHORT_ASSIGN(int32_t value_dim, size("attention.value_length", out.head_dim));
  if (value_dim != out.head_dim) {
    return fail(ErrorCode::unsupported, "'{}' is {} and '{}' is {}; different lengths are not supported",
                key("attention.key_length"), out.head_dim, key("attention.value_length"), value_dim);
  }
  COHORT_ASSIGN(out.rotary_dims, size("rope.dimension_count", out.head_dim));
  COHORT_ASSIGN(out.inner, size("feed_forward_length", 0));
  COHORT_ASSIGN(out.experts, size("expert_count", 0));
  if (out.experts > 0) {
    COHORT_ASSIGN(out.top_k, size("expert_used_count"));
    // Older Qwen files have no expert width of their own: their feed_forward_length is that of the experts a token uses
    // together.
    const bool shared_width = out.architecture == "qwen3moe" && out.top_k > 0;
    COHORT_ASSIGN(out.expert_inner,
                  size("expert_feed_forward_length", shared_width ? out.inner / out.top_k : out.inner));
  }
  COHORT_TRY(read_rope_from_gguf(metadata, out));
  if (is_gpt_oss(architecture)) COHORT_TRY(read_gpt_oss_from_gguf(metadata, out));
  if (out.architecture == "llama") out.rope_pairing = RopePairing::adjacent;
  COHORT_TRY(check(out));
  return out;
}

}  // namespace cohort
