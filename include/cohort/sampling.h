// How the next token is chosen (docs/NUMERICS.md, rule 8).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort {

struct SamplingParams {
  float temperature = 0.8F;        // 0 = greedy, and so is what lies below kLeastTemperature
  int32_t top_k = 40;              // 0 = off
  float top_p = 0.95F;             // 1 = off
  float min_p = 0.05F;             // 0 = off
  float repeat_penalty = 1.0F;     // 1 = off
  float frequency_penalty = 0.0F;  // 0 = off
  float presence_penalty = 0.0F;   // 0 = off
  int32_t penalty_window = 64;     // last tokens that penalties look at; -1 = all
  uint64_t seed = 0;
  uint32_t stream = 0;  // distinguishes the choices of one request (n > 1)
  std::vector<std::pair<int32_t, float>> logit_bias;
  int32_t logprobs = -1;  // -1 = none; n = the chosen token's log probability and the n most likely ones
};

/// A logit divided by less could overflow, and long before that nothing but the highest one has a chance.
inline constexpr float kLeastTemperature = 1e-6F;
inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kLeastTemperature;
}

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

struct Sample {
  int32_t token = -1;
  float logprob = 0;  // of the model's own distribution (before penalties, bias, temperature), only when logprobs >= 0
  std::vector<TokenLogprob> top;  // descending
};

/// How block diffusion denoises a canvas (docs/NUMERICS.md, rule 10). A model file may say; else these.
struct DiffusionRules {
  int32_t canvas_length = 0;  // tokens that are denoised together; 0: the model makes one token after another
  int32_t max_steps = 48;     // of a canvas
  float t_min = 0.4F;         // temperature: falls from t_max to nearly t_min in max_steps steps
  float t_max = 0.8F;
  float entropy_bound = 0.1F;  // nats; how uncertain the tokens may be together that a step accepts beside the surest
  int32_t stability = 1;       // steps in which the most likely canvas must not have changed, to be done early; and
  float confidence = 0.005F;   // nats; the mean entropy of its tokens must be below
};

/// What of them somebody wants otherwise.
struct DiffusionOptions {
  std::optional<int32_t> max_steps, stability;
  std::optional<float> t_min, t_max, entropy_bound, confidence;
  bool any() const { return max_steps || stability || t_min || t_max || entropy_bound || confidence; }
};

}  // namespace cohort
