// The bodies that OpenAI's clients expect. Pure functions of what was generated.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "server/openai/answer_parser.h"
#include "server/openai/choice.h"
#include "server/openai/request.h"

namespace cohort::server {

/// What all bodies of one answer share.
struct AnswerHead {
  Api api = Api::completions;
  std::string id, model;
  int64_t created = 0;  // Unix seconds
  bool usage = false;   // the stream ends with the usage, which is null before
  std::string chunk;    // how every chunk of a stream begins, up to its choices; prepare_chunks() writes it
};
/// Once, after the other members have been set.
void prepare_chunks(AnswerHead& head);

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

/// A finished choice of an answer that is not streamed.
struct ToolCall {
  std::string id, name, arguments;
};

struct FinishedChoice {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<TokenInfo> tokens;
  std::string_view finish_reason;
};

nlohmann::ordered_json usage_json(const Usage& usage);
/// The whole answer.
std::string answer_body(const AnswerHead& head, const std::vector<FinishedChoice>& choices, bool logprobs,
                        const Usage& usage, const text::Tokenizer& tokenizer);

/// Chunks of a stream, each with "data: " in front and an empty line behind.
std::string role_chunk(const AnswerHead& head, int32_t choice);
/// The most frequent one, of text alone; written without building the object, which would cost more than all else that
/// a token needs here.
std::string text_chunk(const AnswerHead& head, int32_t choice, std::string_view text);
std::string delta_chunk(const AnswerHead& head, int32_t choice, const Delta& delta, std::string_view finish_reason,
                        bool logprobs, const text::Tokenizer& tokenizer);
/// The same for a part of a chat answer; `id` names the call that a part begins.
std::string part_chunk(const AnswerHead& head, int32_t choice, const AnswerPart& part, std::string_view id);
std::string usage_chunk(const AnswerHead& head, const Usage& usage);
std::string error_chunk(const Error& error);
inline constexpr std::string_view kDoneChunk = "data: [DONE]\n\n";

/// HTTP status of an error: 400, 404, 503, 500.
int status_of(const Error& error);
/// {"error": {message, type, param, code}}; `param` is the field whose quoted name the message of a 400
/// or 404 begins with.
std::string error_body(int status, std::string_view message);

/// JSON text; broken UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace cohort::server
