#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "base/json.h"
#include "base/result.h"
#include "formats/gguf/metadata.h"
#include "models/families.h"

namespace cohort {
namespace {

using nlohmann::json;

/// Upper limits that no real model comes near; they keep a hostile file from asking for absurd tables.
constexpr int64_t kMaxDimension = 1 << 24;
constexpr int64_t kMaxContext = 1 << 26;

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

/// Newer files have "rope_parameters" {rope_theta, rope_type, ...}; older ones "rope_theta" and "rope_scaling".
Expected<void> read_rope(const JsonObject& config, ModelConfig& out) {
  COHORT_ASSIGN(out.rope_base, config.get_number("rope_theta", 10000));
  const char* key = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.contains(key)) return {};
  COHORT_ASSIGN(const JsonObject rope, config.get_object(key));
  COHORT_ASSIGN(out.rope_base, rope.get_number("rope_theta", out.rope_base));
  COHORT_ASSIGN(std::string legacy, rope.get_string("type", "default"));
  COHORT_ASSIGN(std::string kind, rope.get_string("rope_type", legacy));
  RopeScaling& scaling = out.rope_scaling;
  COHORT_ASSIGN(scaling.factor, rope.get_number("factor", 1));
  COHORT_ASSIGN(scaling.original_context, rope.get_number("original_max_position_embeddings", out.context));
  COHORT_ASSIGN(scaling.low_frequency_factor, rope.get_number("low_freq_factor", 1));
  COHORT_ASSIGN(scaling.high_frequency_factor, rope.get_number("high_freq_factor", 4));
  COHORT_ASSIGN(scaling.beta_fast, rope.get_number("beta_fast", 32));
  COHORT_ASSIGN(scaling.beta_slow, rope.get_number("beta_slow", 1));
  COHORT_ASSIGN(scaling.attention_factor, rope.get_number("attention_factor", 0));
  if (kind == "default") return {};
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
  } else if (kind == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
  } else {
    return fail(ErrorCode::unsupported,
                "{}: rope_type '{}' is not supported; supported are default, linear, llama3, yarn", rope.where(), kind);
  }
  return {};
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
  const JsonObject config(root, "config.json");
  ModelConfig out;
  COHORT_ASSIGN(std::string type, config.get_string("model_type"));
  const Family* family = find_family_by_huggingface(type);
  if (family == nullptr) {
    return fail(ErrorCode::unsupported, "config.json: model_type '{}' is not supported; supported are {}", type,
                supported_huggingface_types());
  }
  const bool mixtral = type == "mixtral";
  out.architecture = family->architecture;
  COHORT_ASSIGN(out.name, config.get_string("_name_or_path", ""));
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
  COHORT_TRY(read_rope(config, out));
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
  COHORT_ASSIGN(out.rms_eps, metadata.get_f32(key("attention.layer_norm_rms_epsilon")));
  COHORT_ASSIGN(out.rope_base, metadata.get_f64(key("rope.freq_base"), 10000.0));
  COHORT_ASSIGN(std::string_view scaling, metadata.get_string(key("rope.scaling.type"), "none"));
  if (scaling != "none") {
    if (scaling == "linear") {
      out.rope_scaling.kind = RopeScaling::Kind::linear;
    } else if (scaling == "yarn") {
      out.rope_scaling.kind = RopeScaling::Kind::yarn;
    } else {
      return fail(ErrorCode::unsupported, "'{}' is '{}'; supported are none, linear, yarn", key("rope.scaling.type"),
                  scaling);
    }
    COHORT_ASSIGN(out.rope_scaling.factor, metadata.get_f64(key("rope.scaling.factor"), 1.0));
    COHORT_ASSIGN(out.rope_scaling.original_context,
                  metadata.get_f64(key("rope.scaling.original_context_length_float"), out.context));
    COHORT_ASSIGN(int32_t original, size("rope.scaling.original_context_length", out.context, kMaxContext));
    out.rope_scaling.original_context = original;
  }
  if (out.architecture == "llama") out.rope_pairing = RopePairing::adjacent;
  COHORT_ASSIGN(const auto* tokens, metadata.get_string_array("tokenizer.ggml.tokens"));
  COHORT_ASSIGN(out.vocabulary, dimension("number of tokens", static_cast<int64_t>(tokens->size())));
  COHORT_TRY(check(out));
  return out;
}

Expected<void> check(const ModelConfig& c) {
  const auto positive = [](std::string_view what, int64_t value) -> Expected<void> {
    if (value > 0) return {};
    return fail(ErrorCode::corrupt, "the model's {} is {}; it must be at least 1", what, value);
  };
  COHORT_TRY(positive("number of layers", c.layers));
  COHORT_TRY(positive("hidden size", c.hidden));
  COHORT_TRY(positive("number of attention heads", c.heads));
  COHORT_TRY(positive("number of KV heads", c.kv_heads));
  COHORT_TRY(positive("head dimension", c.head_dim));
  COHORT_TRY(positive("vocabulary", c.vocabulary));
  COHORT_TRY(positive("context length", c.context));
  if (c.heads % c.kv_heads != 0)
    return fail(ErrorCode::corrupt, "{} attention heads cannot share {} KV heads evenly", c.heads, c.kv_heads);
  if (c.rotary_dims <= 0 || c.rotary_dims % 2 != 0 || c.rotary_dims > c.head_dim) {
    return fail(ErrorCode::corrupt, "{} rotary dimensions of a head of {}; expected an even number of 2 to {}",
                c.rotary_dims, c.head_dim, c.head_dim);
  }
  if (!(c.rope_base > 0) || !std::isfinite(c.rope_base))
    return fail(ErrorCode::corrupt, "the rotary base is {}; it must be positive", c.rope_base);
  if (!(c.rms_eps >= 0) || !std::isfinite(c.rms_eps))
    return fail(ErrorCode::corrupt, "the RMS norm epsilon is {}; it must be 0 or more", c.rms_eps);
  if (c.rope_scaling.kind != RopeScaling::Kind::none &&
      (!(c.rope_scaling.factor > 0) || !std::isfinite(c.rope_scaling.factor))) {
    return fail(ErrorCode::corrupt, "the rotary scaling factor is {}; it must be positive", c.rope_scaling.factor);
  }
  if (c.experts > 0) {
    COHORT_TRY(positive("expert width", c.expert_inner));
    if (c.top_k < 1 || c.top_k > c.experts)
      return fail(ErrorCode::corrupt, "{} of {} experts are used per token; expected 1 to {}", c.top_k, c.experts,
                  c.experts);
  } else {
    COHORT_TRY(positive("feed-forward width", c.inner));
  }
  return {};
}

namespace {

/// Llama 3.1: long wavelengths are divided by the factor, short ones kept, a ramp between (Meta's published rule).
double llama3_frequency(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double low = s.original_context / s.low_frequency_factor;
  const double high = s.original_context / s.high_frequency_factor;
  if (wavelength < high) return frequency;
  if (wavelength > low) return frequency / s.factor;
  const double smooth =
      (s.original_context / wavelength - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// YaRN (Peng et al., 2023, "YaRN: Efficient context window extension"): the dimension at which `rotations` turns fit
/// the original context.
double yarn_dimension(double rotations, int32_t dims, double base, double context) {
  return dims * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

RopeTable make_rope_table(const ModelConfig& config) {
  RopeTable table;
  table.rotary_dims = config.rotary_dims;
  const RopeScaling& s = config.rope_scaling;
  const double low =
      std::max(std::floor(yarn_dimension(s.beta_fast, config.rotary_dims, config.rope_base, s.original_context)), 0.0);
  const double high =
      std::min(std::ceil(yarn_dimension(s.beta_slow, config.rotary_dims, config.rope_base, s.original_context)),
               config.rotary_dims - 1.0);
  for (int32_t i = 0; i < config.rotary_dims / 2; ++i) {
    double frequency = std::pow(config.rope_base, -2.0 * i / config.rotary_dims);
    switch (s.kind) {
      case RopeScaling::Kind::none:
        break;
      case RopeScaling::Kind::linear:
        frequency /= s.factor;
        break;
      case RopeScaling::Kind::llama3:
        frequency = llama3_frequency(frequency, s);
        break;
      case RopeScaling::Kind::yarn: {
        const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
        frequency = frequency / s.factor * ramp + frequency * (1 - ramp);
        break;
      }
    }
    table.frequencies.push_back(frequency);
  }
  if (s.kind == RopeScaling::Kind::yarn) {
    table.magnitude = static_cast<float>(s.attention_factor > 0 ? s.attention_factor : 0.1 * std::log(s.factor) + 1.0);
  }
  return table;
}

}  // namespace cohort
