#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/result.h"
#include "models/gpt_oss_config.h"

namespace cohort {
namespace {

using Kind = RopeScaling::Kind;

/// YaRN's own scale of queries and keys; `weight` is DeepSeek's mscale.
double yarn_magnitude(double factor, double weight = 1) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

/// Does YaRN's ramp begin and end at whole pairs? llama.cpp's does for every family, OpenAI's own does not.
bool truncates(std::string_view architecture) {
  return !is_gpt_oss(architecture);
}

Expected<void> read_yarn(const JsonObject& rope, const ModelConfig& config, RopeScaling& out) {
  COHORT_ASSIGN(out.truncate, rope.get_bool("truncate", true));
  // GGUF files cannot say it, so it is the family's.
  if (out.truncate != truncates(config.architecture)) {
    return fail(ErrorCode::unsupported, "{}: truncate {} is not supported for {}", rope.where(), out.truncate,
                config.architecture);
  }
  COHORT_ASSIGN(out.factor, rope.get_number("factor", config.context / out.original_context));
  COHORT_ASSIGN(out.beta_fast, rope.get_number("beta_fast", 32));
  COHORT_ASSIGN(out.beta_slow, rope.get_number("beta_slow", 1));
  COHORT_ASSIGN(double weight, rope.get_number("mscale", 0));
  COHORT_ASSIGN(double weight_of_all, rope.get_number("mscale_all_dim", 0));
  const bool weighted = weight != 0 && weight_of_all != 0;
  COHORT_ASSIGN(out.attention_factor,
                rope.get_number("attention_factor", weighted ? yarn_magnitude(out.factor, weight) /
                                                                   yarn_magnitude(out.factor, weight_of_all)
                                                             : yarn_magnitude(out.factor)));
  return {};
}

Expected<void> read_llama3(const JsonObject& rope, RopeScaling& out) {
  COHORT_ASSIGN(out.factor, rope.get_number("factor"));
  COHORT_ASSIGN(out.low_frequency_factor, rope.get_number("low_freq_factor"));
  COHORT_ASSIGN(out.high_frequency_factor, rope.get_number("high_freq_factor"));
  return {};
}

/// The keys of llama.cpp. yarn_attn_factor is the whole scale of queries and keys (its converter copies
/// attention_factor of config.json there); attn_factor is multiplied on top.
Expected<void> read_yarn(const gguf::Metadata& metadata, const std::string& prefix, RopeScaling& out) {
  COHORT_ASSIGN(double extrapolation, metadata.get_f64(prefix + "yarn_ext_factor", 1.0));
  COHORT_ASSIGN(double all_dims, metadata.get_f64(prefix + "yarn_log_multiplier", 0.0));
  for (const auto& [name, value, only] :
       {std::tuple{"yarn_ext_factor", extrapolation, 1.0}, {"yarn_log_multiplier", all_dims, 0.0}}) {
    if (value == only) continue;
    return fail(ErrorCode::unsupported, "'{}{}' is {}; only {} is supported", prefix, name, value, only);
  }
  COHORT_ASSIGN(out.beta_fast, metadata.get_f64(prefix + "yarn_beta_fast", 32.0));
  COHORT_ASSIGN(out.beta_slow, metadata.get_f64(prefix + "yarn_beta_slow", 1.0));
  COHORT_ASSIGN(double magnitude, metadata.get_f64(prefix + "yarn_attn_factor", yarn_magnitude(out.factor)));
  COHORT_ASSIGN(double more, metadata.get_f64(prefix + "attn_factor", 1.0));
  out.attention_factor = magnitude * more;
  return {};
}

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

Expected<void> read_rope_from_huggingface(const JsonObject& config, ModelConfig& out) {
  // Newer files have "rope_parameters" {rope_theta, rope_type, ...}; older ones "rope_theta" and "rope_scaling".
  COHORT_ASSIGN(out.rope_base, config.get_number("rope_theta", 10000));
  const char* key = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.contains(key)) return {};
  COHORT_ASSIGN(const JsonObject rope, config.get_object(key));
  COHORT_ASSIGN(out.rope_base, rope.get_number("rope_theta", out.rope_base));
  COHORT_ASSIGN(std::string legacy, rope.get_string("type", "default"));
  COHORT_ASSIGN(std::string kind, rope.get_string("rope_type", legacy));
  RopeScaling& scaling = out.rope_scaling;
  COHORT_ASSIGN(scaling.original_context, rope.get_number("original_max_position_embeddings", out.context));
  if (kind == "default") return {};
  if (kind == "linear") {
    scaling.kind = Kind::linear;
    COHORT_ASSIGN(scaling.factor, rope.get_number("factor"));
    return {};
  }
  if (kind == "llama3") {
    scaling.kind = Kind::llama3;
    return read_llama3(rope, scaling);
  }
  if (kind == "yarn") {
    scaling.kind = Kind::yarn;
    return read_yarn(rope, out, scaling);
  }
  return fail(ErrorCode::unsupported,
              "{}: rope_type '{}' is not supported; supported are default, linear, llama3, yarn", rope.where(), kind);
}

Expected<void> read_rope_from_gguf(const gguf::Metadata& metadata, ModelConfig& out) {
  const std::string rope = out.architecture + ".rope.", prefix = rope + "scaling.";
  COHORT_ASSIGN(out.rope_base, metadata.get_f64(rope + "freq_base", 10000.0));
  RopeScaling& scaling = out.rope_scaling;
  // The older key counts where the newer one is missing; 0 means 1. A factor without a type is linear.
  COHORT_ASSIGN(double older, metadata.get_f64(rope + "scale_linear", 1.0));
  COHORT_ASSIGN(scaling.factor, metadata.get_f64(prefix + "factor", older));
  if (scaling.factor == 0) scaling.factor = 1;
  COHORT_ASSIGN(std::string_view kind, metadata.get_string(prefix + "type", scaling.factor == 1 ? "none" : "linear"));
  COHORT_ASSIGN(scaling.original_context, metadata.get_i64(prefix + "original_context_length", int64_t{out.context}));
  if (kind == "none") {
    scaling.factor = 1;
    return {};
  }
  if (kind == "linear") {
    scaling.kind = Kind::linear;
    return {};
  }
  if (kind == "yarn") {
    scaling.kind = Kind::yarn;
    scaling.truncate = truncates(out.architecture);
    return read_yarn(metadata, prefix, scaling);
  }
  return fail(ErrorCode::unsupported, "'{}type' is '{}'; supported are none, linear, yarn", prefix, kind);
}

namespace {

RopeTable full_table(const ModelConfig& config) {
  RopeTable table;
  table.rotary_dims = config.rotary_dims;
  const RopeScaling& s = config.rope_scaling;
  const auto dimension = [&](double turns) {
    return yarn_dimension(turns, config.rotary_dims, config.rope_base, s.original_context);
  };
  const double first = dimension(s.beta_fast), last = dimension(s.beta_slow);
  const double low = std::max(s.truncate ? std::floor(first) : first, 0.0);
  const double high = std::min(s.truncate ? std::ceil(last) : last, config.rotary_dims - 1.0);
  table.frequencies.reserve(static_cast<size_t>(config.rotary_dims / 2));
  for (int32_t i = 0; i < config.rotary_dims / 2; ++i) {
    double frequency = std::pow(config.rope_base, -2.0 * i / config.rotary_dims);
    switch (s.kind) {
      case Kind::none:
        break;
      case Kind::linear:
        frequency /= s.factor;
        break;
      case Kind::llama3:
        frequency = llama3_frequency(frequency, s);
        break;
      case Kind::yarn: {
        const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
        frequency = frequency / s.factor * ramp + frequency * (1 - ramp);
        break;
      }
    }
    table.frequencies.push_back(frequency);
  }
  if (config.turning_pairs >= 0) {
    const auto turning = std::min(static_cast<size_t>(config.turning_pairs), table.frequencies.size());
    std::fill(table.frequencies.begin() + static_cast<ptrdiff_t>(turning), table.frequencies.end(), 0.0);
  }
  if (s.kind == Kind::yarn) table.magnitude = static_cast<float>(s.attention_factor);
  return table;
}

}  // namespace

RopeTables make_rope_tables(const ModelConfig& config) {
  RopeTables tables{full_table(config), {}};
  const SlidingAttention& sliding = config.sliding;
  tables.sliding.rotary_dims = sliding.rotary_dims;
  for (int32_t i = 0; i < sliding.rotary_dims / 2; ++i)
    tables.sliding.frequencies.push_back(std::pow(sliding.rope_base, -2.0 * i / sliding.rotary_dims));
  return tables;
}

}  // namespace cohort
