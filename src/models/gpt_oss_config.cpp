#include "models/gpt_oss_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "models/layer_types.h"
#include "models/rope.h"
#include "numerics/functions.h"

namespace cohort {
namespace {

constexpr int64_t kMaxDimension = 1 << 24;
/// Sliding and full layers in turn, a sliding one first: where files say nothing else.
constexpr int64_t kPeriod = 2;

Expected<int32_t> dimension(std::string_view where, std::string_view key, int64_t value) {
  if (value >= 0 && value <= kMaxDimension) return static_cast<int32_t>(value);
  return fail(ErrorCode::corrupt, "{}'{}' is {}; expected 0 to {}", where, key, value, kMaxDimension);
}

/// What the operation `clamped_swiglu` and the biases of every matrix are made for.
Expected<void> refuse_other_parts(const JsonObject& config) {
  COHORT_ASSIGN(std::string activation, config.get_string("hidden_act", "silu"));
  if (activation != "silu") {
    return fail(ErrorCode::unsupported, "{}: hidden_act '{}' is not supported for gpt_oss; expected silu",
                config.where(), activation);
  }
  for (const auto& [key, only] :
       {std::pair{"swiglu_limit", numerics::kSwigluLimit}, {"swiglu_alpha", numerics::kSwigluAlpha}}) {
    COHORT_ASSIGN(double value, config.get_number(key, static_cast<double>(only)));
    if (static_cast<float>(value) == only) continue;
    return fail(ErrorCode::unsupported, "{}: {} {:g} is not supported; expected {:g}", config.where(), key, value,
                only);
  }
  COHORT_ASSIGN(bool bias, config.get_bool("attention_bias", true));
  if (!bias) {
    return fail(ErrorCode::unsupported, "{}: attention_bias false is not supported for gpt_oss", config.where());
  }
  return {};
}

/// Newer files name the number of experts of a token as transformers does, older ones as OpenAI did, some both.
Expected<void> read_experts(const JsonObject& config, ModelConfig& out) {
  COHORT_ASSIGN(int64_t experts, config.get_int("num_local_experts"));
  COHORT_ASSIGN(out.experts, dimension(config.where() + ": ", "num_local_experts", experts));
  const bool both = config.contains("num_experts_per_tok") && config.contains("experts_per_token");
  const char* key = config.contains("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token";
  COHORT_ASSIGN(int64_t top_k, config.get_int(key));
  COHORT_ASSIGN(out.top_k, dimension(config.where() + ": ", key, top_k));
  if (both) {
    COHORT_ASSIGN(int64_t other, config.get_int("experts_per_token"));
    if (other != top_k) {
      return fail(ErrorCode::corrupt, "{}: num_experts_per_tok is {} and experts_per_token is {}; remove the wrong one",
                  config.where(), top_k, other);
    }
  }
  out.expert_inner = out.inner;
  out.inner = 0;
  return {};
}

/// transformers' own YaRN where config.json says nothing.
Expected<void> read_rotation(const JsonObject& config, ModelConfig& out) {
  if (config.contains("rope_parameters") || config.contains("rope_scaling"))
    return read_rope_from_huggingface(config, out);
  COHORT_ASSIGN(out.rope_base, config.get_number("rope_theta", 150000));
  RopeScaling& s = out.rope_scaling;
  s.kind = RopeScaling::Kind::yarn;
  s.factor = 32;
  s.original_context = 4096;
  s.attention_factor = 0.1 * std::log(s.factor) + 1;
  s.truncate = false;
  return {};
}

void share_heads(ModelConfig& out) {
  out.sliding.kv_heads = out.kv_heads;
  out.sliding.head_dim = out.head_dim;
  out.sliding.rotary_dims = 0;  // no table of their own
}

}  // namespace

bool is_gpt_oss(std::string_view architecture) {
  return architecture == "gpt-oss";
}

Expected<void> read_gpt_oss_from_huggingface(const JsonObject& config, ModelConfig& out) {
  COHORT_TRY(refuse_other_parts(config));
  COHORT_ASSIGN(double eps, config.get_number("rms_norm_eps", 1e-5));
  out.rms_eps = static_cast<float>(eps);
  if (config.contains("layer_types")) {
    COHORT_ASSIGN(out.sliding.layers, read_layer_types(config, out.layers));
  } else {
    out.sliding.layers = sliding_but_every(kPeriod, out.layers);
  }
  COHORT_ASSIGN(int64_t window, config.get_int("sliding_window", 128));
  COHORT_ASSIGN(out.sliding.window, dimension(config.where() + ": ", "sliding_window", window));
  COHORT_TRY(read_experts(config, out));
  COHORT_TRY(read_rotation(config, out));
  share_heads(out);
  return {};
}

Expected<void> read_gpt_oss_from_gguf(const gguf::Metadata& metadata, ModelConfig& out) {
  const std::string window = out.architecture + ".attention.sliding_window", pattern = window + "_pattern";
  COHORT_ASSIGN(int64_t value, metadata.get_i64(window));
  COHORT_ASSIGN(out.sliding.window, dimension("", window, value));
  if (metadata.contains(pattern)) {
    COHORT_ASSIGN(out.sliding.layers, read_sliding_pattern(metadata, pattern, out.layers));
  } else {
    out.sliding.layers = sliding_but_every(kPeriod, out.layers);
  }
  out.inner = 0;
  share_heads(out);
  return {};
}

Expected<void> check_gpt_oss(const ModelConfig& c) {
  if (c.experts < 1) {
    return fail(ErrorCode::corrupt,
                "the model's number of experts (num_local_experts, expert_count) is {}; it must be at least 1",
                c.experts);
  }
  const bool slides = std::ranges::find(c.sliding.layers, true) != c.sliding.layers.end();
  if (slides && c.sliding.window < 1) {
    return fail(ErrorCode::corrupt,
                "the model's window (sliding_window, attention.sliding_window) is {}; it must be at least 1",
                c.sliding.window);
  }
  return {};
}

}  // namespace cohort
