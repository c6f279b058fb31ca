#include "server/openai/request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/result.h"
#include "engine/limits.h"
#include "server/openai/fields.h"
#include "server/openai/request_extras.h"

namespace cohort::server {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr int64_t kMaxToken = INT32_MAX;

Expected<std::vector<int32_t>> parse_token_ids(const json& array, const std::string& name) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const json& item : array) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > kMaxToken) {
      return fail(ErrorCode::invalid_argument, "'{}' holds {} at [{}]; expected a token id", name, shown(item),
                  ids.size());
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

/// A string, token ids, or an array of either.
Expected<std::vector<Prompt>> parse_prompts(const json* prompt) {
  if (prompt == nullptr) return fail(ErrorCode::invalid_argument, "'prompt' is missing; give a string");
  if (prompt->is_string()) return std::vector<Prompt>{prompt->get<std::string>()};
  if (!prompt->is_array() || prompt->empty()) {
    return fail(ErrorCode::invalid_argument,
                "'prompt' is {}; expected a string, token ids, or a non-empty array of either", shown(*prompt));
  }
  if (prompt->front().is_number()) {
    COHORT_ASSIGN(std::vector<int32_t> ids, parse_token_ids(*prompt, "prompt"));
    return std::vector<Prompt>{std::move(ids)};
  }
  if (prompt->size() > kMaxPrompts) {
    return fail(ErrorCode::invalid_argument, "'prompt' has {} prompts; at most {} are allowed", prompt->size(),
                kMaxPrompts);
  }
  std::vector<Prompt> prompts;
  for (const json& item : *prompt) {
    const std::string name = fmt::format("prompt[{}]", prompts.size());
    if (item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (item.is_array()) {
      COHORT_ASSIGN(std::vector<int32_t> ids, parse_token_ids(item, name));
      prompts.emplace_back(std::move(ids));
    } else {
      return fail(ErrorCode::invalid_argument, "'{}' is {}; expected a string or token ids", name, shown(item));
    }
  }
  return prompts;
}

Expected<void> parse_stop(Fields& fields, std::vector<std::string>& stop) {
  const json* value = fields.take("stop");
  if (value == nullptr) return {};
  if (value->is_string()) {
    stop.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const json& item : *value) {
      if (!item.is_string()) return fail(ErrorCode::invalid_argument, "'stop' holds {}; expected strings", shown(item));
      stop.push_back(item.get<std::string>());
    }
  } else {
    return fail(ErrorCode::invalid_argument, "'stop' is {}; expected a string or an array of strings", shown(*value));
  }
  if (stop.size() > static_cast<size_t>(kMaxStopStrings)) {
    return fail(ErrorCode::invalid_argument, "'stop' has {} strings; at most {} are allowed", stop.size(),
                kMaxStopStrings);
  }
  for (const std::string& text : stop) {
    if (text.empty() || text.size() > static_cast<size_t>(kMaxStopBytes)) {
      return fail(ErrorCode::invalid_argument, "'stop' holds a string of {} bytes; expected 1 to {}", text.size(),
                  kMaxStopBytes);
    }
  }
  return {};
}

/// {"token id": bias}
Expected<void> parse_logit_bias(Fields& fields, SamplingParams& sampling) {
  const json* value = fields.take("logit_bias");
  if (value == nullptr) return {};
  if (!value->is_object()) {
    return fail(ErrorCode::invalid_argument, "'logit_bias' is {}; expected an object of token ids and numbers",
                shown(*value));
  }
  for (const auto& [key, bias] : value->items()) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    // Spelled as numbers are, so that no token is named twice.
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || key != std::to_string(token)) {
      return fail(ErrorCode::invalid_argument, "'logit_bias' has the key {}; expected a token id", shown(json(key)));
    }
    const double number = bias.is_number() ? bias.get<double>() : 1e9;
    if (!(number >= -100 && number <= 100)) {
      return fail(ErrorCode::invalid_argument, "'logit_bias' of token {} is {}; expected -100 to 100", token,
                  shown(bias));
    }
    // -100 is documented as a ban, 100 as the only choice; large biases do both within f32.
    const double factor = number <= -100 || number >= 100 ? 1000 : 1;
    sampling.logit_bias.emplace_back(token, static_cast<float>(number * factor));
  }
  return {};
}

Expected<void> parse_sampling(Fields& fields, GenerationRequest& request) {
  SamplingParams& s = request.sampling;
  // OpenAI's defaults: the model's own distribution.
  s.temperature = 1;
  s.top_k = 0;
  s.top_p = 1;
  s.min_p = 0;
  s.penalty_window = -1;
  for (const char* name : {"temperature", "top_p", "min_p", "top_k"}) {
    if (request.token_filter.empty() && fields.take(name) != nullptr) request.token_filter = name;
  }
  COHORT_TRY(fields.number("temperature", 0, 100, s.temperature));
  COHORT_TRY(fields.number("top_p", 0, 1, s.top_p));
  COHORT_TRY(fields.number("min_p", 0, 1, s.min_p));
  COHORT_TRY(fields.integer("top_k", -1, 1 << 30, s.top_k));
  if (s.top_k == -1) s.top_k = 0;  // vLLM's spelling of "off"
  COHORT_TRY(fields.number("presence_penalty", -2, 2, s.presence_penalty));
  COHORT_TRY(fields.number("frequency_penalty", -2, 2, s.frequency_penalty));
  COHORT_TRY(fields.number("repeat_penalty", 0.01, 100, s.repeat_penalty));
  float same = s.repeat_penalty;
  COHORT_TRY(fields.number("repetition_penalty", 0.01, 100, same));  // vLLM's spelling
  if (same != s.repeat_penalty && fields.take("repeat_penalty") != nullptr) {
    return fail(ErrorCode::invalid_argument,
                "'repetition_penalty' is {} and 'repeat_penalty' is {}, which is the same; send one of them", same,
                s.repeat_penalty);
  }
  s.repeat_penalty = same;
  COHORT_TRY(parse_logit_bias(fields, s));
  COHORT_ASSIGN(const std::optional<int64_t> seed, fields.optional_integer("seed", 0, INT64_MAX));
  request.has_seed = seed.has_value();
  if (seed) s.seed = static_cast<uint64_t>(*seed);
  return {};
}

Expected<void> parse_logprobs(Fields& fields, GenerationRequest& request) {
  if (request.api == Api::completions) {
    int32_t logprobs = -1;
    if (const json* value = fields.take("logprobs"); value != nullptr && *value == false) return {};
    COHORT_TRY(fields.integer("logprobs", 0, kMaxTopLogprobs, logprobs));
    request.sampling.logprobs = logprobs;
    return {};
  }
  bool wanted = false;
  COHORT_TRY(fields.boolean("logprobs", wanted));
  COHORT_ASSIGN(const std::optional<int64_t> top, fields.optional_integer("top_logprobs", 0, kMaxTopLogprobs));
  if (top && *top > 0 && !wanted)
    return fail(ErrorCode::invalid_argument, "'top_logprobs' is {} but 'logprobs' is not true; set both", *top);
  if (wanted) request.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  return {};
}

Expected<void> parse_stream(Fields& fields, GenerationRequest& request) {
  COHORT_TRY(fields.boolean("stream", request.stream));
  const json* options = fields.take("stream_options");
  if (options == nullptr) return {};
  if (!options->is_object())
    return fail(ErrorCode::invalid_argument, "'stream_options' is {}; expected an object", shown(*options));
  if (!request.stream) return fail(ErrorCode::invalid_argument, "'stream_options' needs 'stream': true");
  Fields inner(*options, "stream_options.");
  COHORT_TRY(inner.boolean("include_usage", request.include_usage));
  bool padding = false;
  COHORT_TRY(inner.boolean("include_obfuscation", padding));  // hides lengths from listeners; never the text
  return inner.finish();
}

/// What other servers know and this one does not (yet).
Expected<void> refuse_unsupported(Fields& fields, Api api) {
  struct Refused {
    const char* name;
    json neutral;
  };
  for (const Refused& r :
       {Refused{"functions", json::array()}, Refused{"function_call", "none"}, Refused{"json_schema", nullptr},
        Refused{"service_tier", "auto"}, Refused{"modalities", json::array({"text"})}, Refused{"audio", nullptr},
        Refused{"prediction", nullptr}, Refused{"web_search_options", nullptr}}) {
    COHORT_TRY(fields.unsupported(r.name, r.neutral));
  }
  if (api == Api::completions) {
    COHORT_TRY(fields.unsupported("echo", false));
    COHORT_TRY(fields.unsupported("suffix", ""));
    COHORT_TRY(fields.unsupported("reasoning_effort", nullptr));
  }
  return {};
}

/// What says who asks and how the answer is filed: no token depends on it.
Expected<void> parse_labels(Fields& fields) {
  std::string text;
  for (const char* name : {"user", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
    COHORT_TRY(fields.string(name, text));
  bool store = false;
  COHORT_TRY(fields.boolean("store", store));
  const json* metadata = fields.take("metadata");
  if (metadata == nullptr) return {};
  if (!metadata->is_object())
    return fail(ErrorCode::invalid_argument, "'metadata' is {}; expected an object of strings", shown(*metadata));
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string())
      return fail(ErrorCode::invalid_argument, "'metadata' holds {} at {}; expected strings", shown(value),
                  shown(json(key)));
  }
  return {};
}

/// How much, how often and how soon.
Expected<void> parse_extent(Fields& fields, GenerationRequest& request) {
  COHORT_ASSIGN(std::optional<int64_t> tokens, fields.optional_integer("max_tokens", 1, INT32_MAX));
  COHORT_ASSIGN(const std::optional<int64_t> newer, fields.optional_integer("max_completion_tokens", 1, INT32_MAX));
  if (tokens && newer && *tokens != *newer) {
    return fail(ErrorCode::invalid_argument, "'max_tokens' is {} and 'max_completion_tokens' is {}; send one of them",
                *tokens, *newer);
  }
  if (!tokens) tokens = newer;
  if (tokens) request.max_tokens = static_cast<int32_t>(*tokens);
  COHORT_TRY(fields.integer("n", 1, kMaxChoices, request.choices));
  COHORT_ASSIGN(const std::optional<int64_t> best_of, fields.optional_integer("best_of", 1, kMaxChoices));
  if (best_of && *best_of != request.choices) {
    return fail(ErrorCode::unsupported, "'best_of' is {} and 'n' is {}; only equal values are supported", *best_of,
                request.choices);
  }
  COHORT_TRY(fields.boolean("ignore_eos", request.ignore_eos));
  COHORT_TRY(fields.integer("priority", -kMaxPriority, kMaxPriority, request.priority));
  return {};
}

}  // namespace

Expected<ordered_json> parse_template_variables(Fields& fields) {
  const json* variables = fields.take("chat_template_kwargs");
  if (variables == nullptr) return ordered_json::object();
  if (!variables->is_object())
    return fail(ErrorCode::invalid_argument, "'chat_template_kwargs' is {}; expected an object", shown(*variables));
  for (const char* own : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (variables->contains(own))
      return fail(ErrorCode::invalid_argument, "'chat_template_kwargs.{}' sets what the request or the server sets",
                  own);
  }
  return ordered_json(*variables);
}

namespace {

Expected<void> parse_effort(Fields& fields, std::string& effort) {
  constexpr std::array<std::string_view, 6> kEfforts{"none", "minimal", "low", "medium", "high", "xhigh"};
  COHORT_TRY(fields.string("reasoning_effort", effort));
  if (std::ranges::find(kEfforts, effort) != kEfforts.end()) return {};
  if (effort.empty() && fields.take("reasoning_effort") == nullptr) return {};
  return fail(ErrorCode::invalid_argument, "'reasoning_effort' is {}; expected one of {}", shown(json(effort)),
              fmt::join(kEfforts, ", "));
}

}  // namespace

Expected<GenerationRequest> parse_generation_request(Api api, std::string_view body) {
  COHORT_ASSIGN(const json root, parse_body(body));
  Fields fields(root, "");
  GenerationRequest request;
  request.api = api;
  COHORT_TRY(fields.string("model", request.model));
  if (api == Api::completions) {
    COHORT_ASSIGN(request.prompts, parse_prompts(fields.take("prompt")));
  } else {
    const json* messages = fields.take("messages");
    if (messages == nullptr) return fail(ErrorCode::invalid_argument, "'messages' is missing; give an array");
    COHORT_ASSIGN(request.messages, parse_messages(*messages, "messages"));
    COHORT_TRY(fields.boolean("add_generation_prompt", request.add_generation_prompt));
    COHORT_ASSIGN(request.template_variables, parse_template_variables(fields));
    COHORT_TRY(parse_effort(fields, request.reasoning_effort));
  }
  COHORT_TRY(parse_sampling(fields, request));
  COHORT_TRY(parse_logprobs(fields, request));
  COHORT_TRY(parse_extent(fields, request));
  COHORT_TRY(parse_stop(fields, request.stop));
  COHORT_TRY(parse_stream(fields, request));
  COHORT_TRY(parse_shape(fields, body, request));
  COHORT_TRY(refuse_unsupported(fields, api));
  COHORT_TRY(parse_labels(fields));
  COHORT_TRY(fields.finish());
  return request;
}

}  // namespace cohort::server
