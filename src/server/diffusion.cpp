#include "server/diffusion.h"

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace cohort::server {

Expected<void> check_diffusion(const GenerationRequest& request, const Engine& engine) {
  if (engine.diffusion().canvas_length == 0) return {};
  const SamplingParams& s = request.sampling;
  std::string field = request.token_filter;
  if (!request.grammar.empty()) field = "grammar";
  if (request.schema || request.json_object) field = "response_format";
  if (request.tool_choice == ToolChoice::required) field = "tool_choice";
  if (s.logprobs >= 0) field = "logprobs";
  if (!s.logit_bias.empty()) field = "logit_bias";
  if (s.presence_penalty != 0) field = "presence_penalty";
  if (s.frequency_penalty != 0) field = "frequency_penalty";
  if (s.repeat_penalty != 1) field = "repeat_penalty";
  if (field.empty()) return {};
  return fail(ErrorCode::unsupported,
              "'{}' is about choosing one token after another; this model denoises {} of them together (block "
              "diffusion): leave it out",
              field, engine.diffusion().canvas_length);
}

nlohmann::ordered_json diffusion_json(const DiffusionRules& r) {
  if (r.canvas_length == 0) return nullptr;
  return {
      {"canvas_length", r.canvas_length}, {"max_steps", r.max_steps}, {"t_min", r.t_min},          {"t_max", r.t_max},
      {"entropy_bound", r.entropy_bound}, {"stability", r.stability}, {"confidence", r.confidence}};
}

}  // namespace cohort::server
