// From the body of a completion request to what it asks for. Pure: bytes in, a request or an error out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/error.h"
#include "cohort/sampling.h"
#include "server/openai/tools.h"

namespace cohort::server {

enum class Api { completions, chat };

/// A text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct GenerationRequest {
  Api api = Api::completions;
  std::string model;                // empty: the one there is
  std::vector<Prompt> prompts;      // completions
  nlohmann::ordered_json messages;  // chat: array of {role, content, ...}; content is a string or null
  nlohmann::ordered_json template_variables = nlohmann::ordered_json::object();  // chat_template_kwargs
  std::string reasoning_effort;                                                  // empty: not given
  bool add_generation_prompt = true;
  SamplingParams sampling;            // seed is meaningful only when has_seed
  bool has_seed = false;              // absent: the server draws one
  std::string token_filter;           // of temperature, top_p, min_p and top_k the first that was given
  std::optional<int32_t> max_tokens;  // absent: 16 for completions (as OpenAI), what the context holds for chat
  int32_t choices = 1;                // n
  int32_t priority = 0;               // lower goes first (as vLLM)
  std::vector<std::string> stop;
  bool ignore_eos = false;  // go on after end tokens (as vLLM)
  bool stream = false, include_usage = false;
  // What the answer must be; at most one of these three.
  std::string grammar;                           // GBNF; empty: none
  std::optional<nlohmann::ordered_json> schema;  // response_format json_schema
  bool json_object = false;                      // response_format json_object
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();
  std::vector<std::string> tool_names;  // of tools, in their order
  ToolChoice tool_choice = ToolChoice::none;
  std::string forced_tool;  // the one to call; empty: any
  bool parallel_tool_calls = true;
};

/// Most values of one request; bodies that ask for more are refused.
inline constexpr int32_t kMaxChoices = 128, kMaxStopStrings = 16, kMaxStopBytes = 1024, kMaxTopLogprobs = 20;
inline constexpr size_t kMaxPrompts = 1024;

/// Errors: corrupt (the body is no JSON), invalid_argument (a field of the wrong type or out of range, an unknown
/// field), unsupported (a field that exists elsewhere but is not served here); every message names the field.
Expected<GenerationRequest> parse_generation_request(Api api, std::string_view body);

/// Messages alone, for /apply-template; `path` names them in errors.
Expected<nlohmann::ordered_json> parse_messages(const nlohmann::json& messages, std::string_view path);

}  // namespace cohort::server
