#include "models/gemma_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/result.h"
#include "models/layer_types.h"
#include "models/rope.h"

namespace cohort {
namespace {

using nlohmann::json;

constexpr int64_t kMaxDimension = 1 << 24;

Expected<int32_t> dimension(std::string_view where, std::string_view key, int64_t value,
                            int64_t limit = kMaxDimension) {
  if (value >= 0 && value <= limit) return static_cast<int32_t>(value);
  return fail(ErrorCode::corrupt, "{}'{}' is {}; expected 0 to {}", where, key, value, limit);
}

// ---- config.json ----

Expected<int32_t> size_of(const JsonObject& config, std::string_view key, std::optional<int64_t> fallback = {}) {
  COHORT_ASSIGN(int64_t value, fallback ? config.get_int(key, *fallback) : config.get_int(key));
  return dimension(config.where() + ": ", key, value);
}

/// Parts of smaller Gemma 4 models and of other modes that no program here computes.
Expected<void> refuse_unknown_parts(const JsonObject& text, const ModelConfig& out) {
  // The class default of Gemma 4 is 256; relatives do not have the key.
  const int64_t default_width = out.architecture == "gemma4" ? 256 : 0;
  COHORT_ASSIGN(int64_t width, text.get_int("hidden_size_per_layer_input", default_width));
  COHORT_ASSIGN(int64_t shared, text.get_int("num_kv_shared_layers", 0));
  for (const auto& [key, value, what] : {std::tuple{"hidden_size_per_layer_input", width, "embeddings for each layer"},
                                         {"num_kv_shared_layers", shared, "keys and values shared by layers"}}) {
    if (value == 0) continue;
    return fail(ErrorCode::unsupported, "{}: {} is {}; {} are not supported (Gemma 4 26B-A4B and 31B have none)",
                text.where(), key, value, what);
  }
  COHORT_ASSIGN(bool bias, text.get_bool("attention_bias", false));
  if (bias) return fail(ErrorCode::unsupported, "{}: attention_bias true is not supported", text.where());
  COHORT_ASSIGN(std::string direction, text.get_string("use_bidirectional_attention", ""));
  if (direction == "all")
    return fail(ErrorCode::unsupported, "{}: use_bidirectional_attention 'all' is not supported; text is causal",
                text.where());
  COHORT_ASSIGN(std::string activation, text.get_string("hidden_activation", "gelu_pytorch_tanh"));
  if (activation != "gelu_pytorch_tanh") {
    return fail(ErrorCode::unsupported, "{}: hidden_activation '{}' is not supported; expected gelu_pytorch_tanh",
                text.where(), activation);
  }
  return {};
}

Expected<std::vector<bool>> sliding_layers(const JsonObject& text, int32_t layers) {
  if (text.contains("layer_types")) return read_layer_types(text, layers);
  // transformers' default: five sliding layers, a full one; the last layer is full.
  std::vector<bool> sliding = sliding_but_every(6, layers);
  if (!sliding.empty()) sliding.back() = false;
  return sliding;
}

/// Heads of the full layers: two keys of their own, or the table that newer versions of transformers make of them.
Expected<void> read_full_heads(const JsonObject& text, ModelConfig& out) {
  COHORT_ASSIGN(out.keys_as_values, text.get_bool("attention_k_eq_v", out.architecture != "gemma4"));
  COHORT_ASSIGN(out.head_dim, size_of(text, "global_head_dim", 512));
  // The key counts only where values are keys.
  COHORT_ASSIGN(int32_t own_heads, size_of(text, "num_global_key_value_heads", out.sliding.kv_heads));
  out.kv_heads = out.keys_as_values ? own_heads : out.sliding.kv_heads;
  if (!text.contains("per_layer_config")) return {};
  COHORT_ASSIGN(const JsonObject table, text.get_object("per_layer_config"));
  bool first = true;
  for (int32_t layer = 0; layer < out.layers; ++layer) {
    const std::string key = std::to_string(layer);
    int32_t head_dim = out.sliding.head_dim, kv_heads = out.sliding.kv_heads;
    if (table.contains(key)) {
      COHORT_ASSIGN(const JsonObject entry, table.get_object(key));
      COHORT_ASSIGN(head_dim, size_of(entry, "head_dim", head_dim));
      COHORT_ASSIGN(kv_heads, size_of(entry, "num_key_value_heads", kv_heads));
    }
    if (!out.slides(layer) && first) {
      out.head_dim = head_dim;
      out.kv_heads = kv_heads;
      first = false;
    }
    if (head_dim != (out.slides(layer) ? out.sliding.head_dim : out.head_dim) ||
        kv_heads != (out.slides(layer) ? out.sliding.kv_heads : out.kv_heads)) {
      return fail(ErrorCode::unsupported,
                  "{}: layer {} has {} KV heads of {}; other heads than those of the layers before it of the same kind "
                  "are not supported",
                  table.where(), layer, kv_heads, head_dim);
    }
  }
  return {};
}

/// rope_parameters: one entry for each kind of layer; absent, transformers' own.
Expected<void> read_rope(const JsonObject& text, ModelConfig& out) {
  double share = 0.25;
  out.rope_base = 1e6;
  out.sliding.rope_base = 1e4;
  out.rotary_dims = out.head_dim;
  out.sliding.rotary_dims = out.sliding.head_dim;
  if (text.contains("rope_parameters")) {
    COHORT_ASSIGN(const JsonObject kinds, text.get_object("rope_parameters"));
    COHORT_ASSIGN(const JsonObject full, kinds.get_object("full_attention"));
    COHORT_ASSIGN(const JsonObject sliding, kinds.get_object("sliding_attention"));
    COHORT_ASSIGN(std::string kind, full.get_string("rope_type", "default"));
    COHORT_ASSIGN(std::string sliding_kind, sliding.get_string("rope_type", "default"));
    COHORT_ASSIGN(double factor, full.get_number("factor", 1));
    COHORT_ASSIGN(share, full.get_number("partial_rotary_factor", 1));
    COHORT_ASSIGN(double sliding_share, sliding.get_number("partial_rotary_factor", 1));
    if ((kind != "proportional" && (kind != "default" || share != 1)) || factor != 1) {
      return fail(ErrorCode::unsupported,
                  "{}: rope_type '{}' with partial_rotary_factor {} and factor {} is not supported; supported are "
                  "proportional without a factor, and default without a partial_rotary_factor",
                  full.where(), kind, share, factor);
    }
    if (sliding_kind != "default" || sliding_share != 1) {
      return fail(ErrorCode::unsupported,
                  "{}: rope_type '{}' with partial_rotary_factor {} is not supported; supported is default, 1",
                  sliding.where(), sliding_kind, sliding_share);
    }
    COHORT_ASSIGN(out.rope_base, full.get_number("rope_theta", out.rope_base));
    COHORT_ASSIGN(out.sliding.rope_base, sliding.get_number("rope_theta", out.sliding.rope_base));
  }
  if (!(share > 0 && share <= 1)) {
    return fail(ErrorCode::corrupt, "{}: partial_rotary_factor is {:g}; it must be above 0 and at most 1", text.where(),
                share);
  }
  // As transformers rounds it.
  if (share < 1) out.turning_pairs = static_cast<int32_t>(std::floor(share * out.head_dim / 2));
  return {};
}

// ---- GGUF ----

/// A key that is one number, or a list with one number a layer.
Expected<std::vector<int64_t>> for_layers(const gguf::Metadata& metadata, const std::string& key, int32_t layers) {
  if (const auto one = metadata.get_i64(key)) return std::vector<int64_t>(static_cast<size_t>(layers), *one);
  COHORT_ASSIGN(auto list, metadata.get_int_array(key));
  if (list.size() != static_cast<size_t>(layers)) {
    return fail(ErrorCode::corrupt, "'{}' has {} values; one for each of {} layers is needed", key, list.size(),
                layers);
  }
  return list;
}

/// Gemma's files have no rule for longer contexts: what full layers do with pairs is said by rope_freqs.
Expected<void> refuse_scaling(const gguf::Metadata& metadata, const std::string& prefix) {
  COHORT_ASSIGN(double factor, metadata.get_f64(prefix + "factor", 1.0));
  const bool scaled = factor != 0 && factor != 1;  // 0 means 1
  COHORT_ASSIGN(std::string_view kind, metadata.get_string(prefix + "type", scaled ? "linear" : "none"));
  if (kind == "none" || (kind == "linear" && !scaled)) return {};
  return fail(ErrorCode::unsupported, "'{}type' is '{}' with a factor of {:g}; Gemma is supported without scaling only",
              prefix, kind, factor);
}

/// What all layers of a kind share; `fallback` where there are none of the kind.
Expected<int32_t> shared_value(const std::string& key, const std::vector<int64_t>& values, const ModelConfig& config,
                               bool sliding, int64_t fallback) {
  std::optional<int64_t> found;
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const int64_t value = values[static_cast<size_t>(layer)];
    if (config.slides(layer) != sliding) continue;
    if (found && *found != value) {
      return fail(ErrorCode::unsupported, "'{}' is {} and {} in {} layers; different values are not supported", key,
                  *found, value, sliding ? "sliding" : "full");
    }
    found = value;
  }
  return dimension("", key, found.value_or(fallback));
}

}  // namespace

bool is_gemma(std::string_view architecture) {
  return architecture == "gemma4" || architecture == "diffusion-gemma";
}

Expected<void> read_gemma_from_huggingface(const JsonObject& text, ModelConfig& out) {
  COHORT_TRY(refuse_unknown_parts(text, out));
  SlidingAttention& sliding = out.sliding;
  COHORT_ASSIGN(sliding.layers, sliding_layers(text, out.layers));
  COHORT_ASSIGN(sliding.window, size_of(text, "sliding_window", 512));
  COHORT_ASSIGN(sliding.head_dim, size_of(text, "head_dim", 256));
  COHORT_ASSIGN(sliding.kv_heads, size_of(text, "num_key_value_heads"));
  COHORT_TRY(read_full_heads(text, out));
  COHORT_TRY(read_rope(text, out));
  COHORT_ASSIGN(double cap, text.get_number("final_logit_softcapping", 0));
  out.logit_softcap = static_cast<float>(cap);
  COHORT_ASSIGN(bool moe, text.get_bool("enable_moe_block", out.architecture != "gemma4"));
  if (!moe) return {};
  COHORT_ASSIGN(out.experts, size_of(text, "num_experts"));
  COHORT_ASSIGN(out.top_k, size_of(text, "top_k_experts"));
  COHORT_ASSIGN(out.expert_inner, size_of(text, "moe_intermediate_size"));
  return {};
}

Expected<void> read_gemma_from_gguf(const gguf::Metadata& metadata, ModelConfig& out) {
  const auto key = [&](const char* name) { return out.architecture + "." + name; };
  const auto size = [&](const char* name, std::optional<int64_t> fallback = {}) -> Expected<int32_t> {
    COHORT_ASSIGN(int64_t value, fallback ? metadata.get_i64(key(name), *fallback) : metadata.get_i64(key(name)));
    return dimension("", key(name), value);
  };
  for (const auto& [name, what] : {std::pair{"embedding_length_per_layer_input", "embeddings for each layer"},
                                   {"attention.shared_kv_layers", "keys and values shared by layers"}}) {
    COHORT_ASSIGN(int32_t value, size(name, 0));
    if (value == 0) continue;
    return fail(ErrorCode::unsupported, "'{}' is {}; {} are not supported (Gemma 4 26B-A4B and 31B have none)",
                key(name), value, what);
  }
  SlidingAttention& sliding = out.sliding;
  COHORT_ASSIGN(sliding.layers, read_sliding_pattern(metadata, key("attention.sliding_window_pattern"), out.layers));
  COHORT_ASSIGN(sliding.window, size("attention.sliding_window"));
  const std::string kv = key("attention.head_count_kv"), inner = key("feed_forward_length");
  COHORT_ASSIGN(const auto kv_heads, for_layers(metadata, kv, out.layers));
  COHORT_ASSIGN(out.kv_heads, shared_value(kv, kv_heads, out, false, kv_heads.empty() ? 0 : kv_heads.front()));
  COHORT_ASSIGN(sliding.kv_heads, shared_value(kv, kv_heads, out, true, out.kv_heads));
  COHORT_ASSIGN(const auto widths, for_layers(metadata, inner, out.layers));
  COHORT_ASSIGN(out.inner, shared_value(inner, widths, out, false, 0));
  COHORT_ASSIGN(int32_t sliding_inner, shared_value(inner, widths, out, true, out.inner));
  if (sliding_inner != out.inner && out.inner != 0) {
    return fail(ErrorCode::unsupported, "'{}' is {} and {}; different values are not supported", inner, out.inner,
                sliding_inner);
  }
  out.inner = sliding_inner;
  COHORT_ASSIGN(out.head_dim, size("attention.key_length"));
  COHORT_ASSIGN(sliding.head_dim, size("attention.key_length_swa", out.head_dim));
  COHORT_ASSIGN(int32_t value_dim, size("attention.value_length", out.head_dim));
  COHORT_ASSIGN(int32_t sliding_value_dim, size("attention.value_length_swa", sliding.head_dim));
  if (value_dim != out.head_dim || sliding_value_dim != sliding.head_dim) {
    return fail(ErrorCode::unsupported,
                "'{}' and '{}' are {} and {}, keys have {} and {}; different lengths are not supported",
                key("attention.value_length"), key("attention.value_length_swa"), value_dim, sliding_value_dim,
                out.head_dim, sliding.head_dim);
  }
  COHORT_TRY(refuse_scaling(metadata, key("rope.scaling.")));
  COHORT_ASSIGN(out.rotary_dims, size("rope.dimension_count", out.head_dim));
  COHORT_ASSIGN(sliding.rotary_dims, size("rope.dimension_count_swa", sliding.head_dim));
  COHORT_ASSIGN(out.rope_base, metadata.get_f64(key("rope.freq_base"), 1e6));
  COHORT_ASSIGN(sliding.rope_base, metadata.get_f64(key("rope.freq_base_swa"), 1e4));
  COHORT_ASSIGN(out.logit_softcap, metadata.get_f32(key("final_logit_softcapping"), 0.0F));
  // No key says so: full layers whose values are keys have no attn_v.
  out.keys_as_values = true;
  COHORT_ASSIGN(out.experts, size("expert_count", 0));
  if (out.experts == 0) return {};
  COHORT_ASSIGN(out.top_k, size("expert_used_count"));
  COHORT_ASSIGN(out.expert_inner, size("expert_feed_forward_length"));
  return {};
}

Expected<void> check_gemma(const ModelConfig& c) {
  if (!std::isfinite(c.logit_softcap) || c.logit_softcap < 0 || c.logit_softcap > 1e6F) {
    return fail(ErrorCode::corrupt,
                "the model's softcap of logits (final_logit_softcapping) is {:g}; 0 to 1e6 is "
                "expected",
                c.logit_softcap);
  }
  if (c.inner < 1) {
    return fail(ErrorCode::corrupt,
                "the model's feed-forward width (intermediate_size, feed_forward_length) is {}; it must be at least 1",
                c.inner);
  }
  const SlidingAttention& s = c.sliding;
  if (std::ranges::find(s.layers, true) == s.layers.end()) return {};
  if (s.window < 1) {
    return fail(ErrorCode::corrupt,
                "the model's window (sliding_window, attention.sliding_window) is {}; it must be "
                "at least 1",
                s.window);
  }
  if (s.kv_heads < 1 || c.heads % s.kv_heads != 0) {
    return fail(ErrorCode::corrupt, "{} attention heads cannot share {} KV heads of sliding layers evenly", c.heads,
                s.kv_heads);
  }
  if (s.head_dim < 1 || s.rotary_dims < 2 || s.rotary_dims % 2 != 0 || s.rotary_dims > s.head_dim) {
    return fail(ErrorCode::corrupt,
                "{} rotary dimensions (rope.dimension_count_swa) of a head of {} (head_dim, attention.key_length_swa) "
                "in sliding layers; expected an even number of 2 to {}",
                s.rotary_dims, s.head_dim, s.head_dim);
  }
  if (!(s.rope_base > 1 && s.rope_base <= 1e12)) {
    return fail(ErrorCode::corrupt,
                "the rotary base of sliding layers (rope_theta, rope.freq_base_swa) is {:g}; it must be above 1 and at "
                "most 1e12",
                s.rope_base);
  }
  return {};
}

}  // namespace cohort
