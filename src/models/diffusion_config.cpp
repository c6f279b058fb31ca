#include "models/diffusion_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace cohort {
namespace {

/// Far beyond every model; the engine checks what it can run.
constexpr int64_t kMost = 1 << 24;

Expected<int32_t> count(std::string_view where, std::string_view key, int64_t value, int64_t least) {
  if (value >= least && value <= kMost) return static_cast<int32_t>(value);
  return fail(ErrorCode::corrupt, "{}'{}' is {}; expected {} to {}", where, key, value, least, kMost);
}

Expected<float> real(std::string_view where, std::string_view key, double value) {
  if (std::isfinite(value) && value >= 0 && value <= 1e6) return static_cast<float>(value);
  return fail(ErrorCode::corrupt, "{}'{}' is {:g}; expected 0 to 1e6", where, key, value);
}

}  // namespace

Expected<void> read_diffusion_from_gguf(const gguf::Metadata& metadata, DiffusionRules& out) {
  const auto integer = [&](const char* key, int32_t fallback, int64_t least) -> Expected<int32_t> {
    COHORT_ASSIGN(const int64_t value, metadata.get_i64(key, fallback));
    return count("", key, value, least);
  };
  const auto number = [&](const char* key, float fallback) -> Expected<float> {
    COHORT_ASSIGN(const double value, metadata.get_f64(key, static_cast<double>(fallback)));
    return real("", key, value);
  };
  COHORT_ASSIGN(const int64_t length, metadata.get_i64("diffusion.canvas_length"));
  COHORT_ASSIGN(out.canvas_length, count("", "diffusion.canvas_length", length, 1));
  COHORT_ASSIGN(out.max_steps, integer("diffusion.eb_max_steps", out.max_steps, 1));
  COHORT_ASSIGN(out.t_min, number("diffusion.eb_t_min", out.t_min));
  COHORT_ASSIGN(out.t_max, number("diffusion.eb_t_max", out.t_max));
  COHORT_ASSIGN(out.entropy_bound, number("diffusion.eb_entropy_bound", out.entropy_bound));
  COHORT_ASSIGN(out.stability, integer("diffusion.eb_stability_threshold", out.stability, 0));
  COHORT_ASSIGN(out.confidence, number("diffusion.eb_confidence_threshold", out.confidence));
  return {};
}

Expected<void> read_diffusion_from_huggingface(const JsonObject& config, DiffusionRules& out) {
  COHORT_ASSIGN(const int64_t length, config.get_int("canvas_length", 256));
  COHORT_ASSIGN(out.canvas_length, count(config.where() + ": ", "canvas_length", length, 1));
  return {};
}

Expected<void> read_diffusion_from_generation_config(const nlohmann::json& root, DiffusionRules& out) {
  const JsonObject config(root, "generation_config.json");
  const auto number = [](const JsonObject& in, const char* key, float fallback) -> Expected<float> {
    COHORT_ASSIGN(const double value, in.get_number(key, static_cast<double>(fallback)));
    return real(in.where() + ": ", key, value);
  };
  COHORT_ASSIGN(const int64_t steps, config.get_int("max_denoising_steps", out.max_steps));
  COHORT_ASSIGN(out.max_steps, count(config.where() + ": ", "max_denoising_steps", steps, 1));
  COHORT_ASSIGN(const int64_t stability, config.get_int("stability_threshold", out.stability));
  COHORT_ASSIGN(out.stability, count(config.where() + ": ", "stability_threshold", stability, 0));
  COHORT_ASSIGN(out.t_min, number(config, "t_min", out.t_min));
  COHORT_ASSIGN(out.t_max, number(config, "t_max", out.t_max));
  COHORT_ASSIGN(out.confidence, number(config, "confidence_threshold", out.confidence));
  if (!config.contains("sampler_config")) return {};
  COHORT_ASSIGN(const JsonObject sampler, config.get_object("sampler_config"));
  COHORT_ASSIGN(out.entropy_bound, number(sampler, "entropy_bound", out.entropy_bound));
  return {};
}

}  // namespace cohort
