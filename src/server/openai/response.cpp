#include "server/openai/response.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "numerics/version.h"
#include "text/tokenizer/utf8.h"

namespace cohort::server {

using nlohmann::ordered_json;

namespace {

std::string fingerprint() {
  return fmt::format("cohort-{}-numerics-{}", COHORT_VERSION, numerics::kNumericsVersion);
}

/// The bytes of a token as a JSON string. Tokens that are parts of characters are written as OpenAI does:
/// "bytes:\xe2\x80".
std::string token_string(std::string_view piece) {
  if (text::is_valid_utf8(piece)) return std::string(piece);
  std::string out = "bytes:";
  for (const char c : piece) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

ordered_json token_bytes(std::string_view piece) {
  ordered_json bytes = ordered_json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

/// A special token has no piece of text; its spelling says what it is.
std::string_view piece_of(const text::Tokenizer& tokenizer, int32_t token) {
  const std::string_view piece = tokenizer.piece(token);
  return piece.empty() ? tokenizer.token_text(token) : piece;
}

ordered_json chat_logprobs(const std::vector<TokenInfo>& tokens, const text::Tokenizer& tokenizer) {
  const auto entry = [&](int32_t token, float logprob) {
    const std::string_view piece = piece_of(tokenizer, token);
    return ordered_json{{"token", token_string(piece)}, {"logprob", logprob}, {"bytes", token_bytes(piece)}};
  };
  ordered_json content = ordered_json::array();
  for (const TokenInfo& info : tokens) {
    ordered_json one = entry(info.sample.token, info.sample.logprob);
    one["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob& top : info.sample.top) one["top_logprobs"].push_back(entry(top.token, top.logprob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

ordered_json completion_logprobs(const std::vector<TokenInfo>& tokens, const text::Tokenizer& tokenizer) {
  ordered_json out{{"tokens", ordered_json::array()},
                   {"token_logprobs", ordered_json::array()},
                   {"top_logprobs", ordered_json::array()},
                   {"text_offset", ordered_json::array()}};
  for (const TokenInfo& info : tokens) {
    out["tokens"].push_back(token_string(piece_of(tokenizer, info.sample.token)));
    out["token_logprobs"].push_back(info.sample.logprob);
    ordered_json top = ordered_json::object();
    for (const TokenLogprob& t : info.sample.top) top[token_string(piece_of(tokenizer, t.token))] = t.logprob;
    // OpenAI's have the token that came, too.
    top.emplace(token_string(piece_of(tokenizer, info.sample.token)), info.sample.logprob);
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(info.text_offset);
  }
  return out;
}

ordered_json logprobs_json(Api api, bool wanted, const std::vector<TokenInfo>& tokens,
                           const text::Tokenizer& tokenizer) {
  if (!wanted) return nullptr;
  return api == Api::chat ? chat_logprobs(tokens, tokenizer) : completion_logprobs(tokens, tokenizer);
}

ordered_json head_json(const AnswerHead& head, bool chunk) {
  const char* object = head.api == Api::completions ? "text_completion"
                       : chunk                      ? "chat.completion.chunk"
                                                    : "chat.completion";
  ordered_json out{{"id", head.id},
                   {"object", object},
                   {"created", head.created},
                   {"model", head.model},
                   {"system_fingerprint", fingerprint()}};
  if (chunk && head.usage) out["usage"] = nullptr;
  return out;
}

ordered_json message_json(const FinishedChoice& c) {
  ordered_json message{{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}};
  if (c.text.empty() && !c.calls.empty()) message["content"] = nullptr;
  if (!c.reasoning.empty()) message["reasoning_content"] = c.reasoning;
  for (const ToolCall& call : c.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

std::string as_event(const ordered_json& json) {
  return "data: " + dump(json) + "\n\n";
}

}  // namespace

std::string dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

std::string answer_body(const AnswerHead& head, const std::vector<FinishedChoice>& choices, bool logprobs,
                        const Usage& usage, const text::Tokenizer& tokenizer) {
  ordered_json out = head_json(head, false);
  out["choices"] = ordered_json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const FinishedChoice& c = choices[i];
    ordered_json one{{"index", i}};
    if (head.api == Api::chat) {
      one["message"] = message_json(c);
    } else {
      one["text"] = c.text;
    }
    one["logprobs"] = logprobs_json(head.api, logprobs, c.tokens, tokenizer);
    one["finish_reason"] = c.finish_reason;
    out["choices"].push_back(std::move(one));
  }
  out["usage"] = usage_json(usage);
  return dump(out);
}

std::string role_chunk(const AnswerHead& head, int32_t choice) {
  ordered_json out = head_json(head, true);
  out["choices"] = {{{"index", choice},
                     {"delta", {{"role", "assistant"}, {"content", ""}}},
                     {"logprobs", nullptr},
                     {"finish_reason", nullptr}}};
  return as_event(out);
}

void prepare_chunks(AnswerHead& head) {
  head.chunk = "data: " + dump(head_json(head, true));
  head.chunk.pop_back();
  head.chunk += ",\"choices\":[{\"index\":";
}

namespace {

/// As dump() of a string. Nearly every token needs no escape.
void append_json(std::string& out, std::string_view text) {
  const bool plain = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (!plain) {
    out += dump(ordered_json(text));
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

}  // namespace

std::string text_chunk(const AnswerHead& head, int32_t choice, std::string_view text) {
  const bool chat = head.api == Api::chat;
  std::string out;
  out.reserve(head.chunk.size() + text.size() + 100);
  out += head.chunk;
  fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), choice);
  out += chat ? R"(,"delta":{"content":)" : R"(,"text":)";
  append_json(out, text);
  out += chat ? "}" : "";
  out += ",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
  return out;
}

std::string delta_chunk(const AnswerHead& head, int32_t choice, const Delta& delta, std::string_view finish_reason,
                        bool logprobs, const text::Tokenizer& tokenizer) {
  if (finish_reason.empty() && !delta.text.empty() && delta.tokens.empty()) return text_chunk(head, choice, delta.text);
  ordered_json out = head_json(head, true);
  ordered_json one{{"index", choice}};
  if (head.api == Api::chat) {
    one["delta"] = ordered_json::object();
    if (!delta.text.empty()) one["delta"]["content"] = delta.text;
  } else {
    one["text"] = delta.text;
  }
  one["logprobs"] = logprobs_json(head.api, logprobs && !delta.tokens.empty(), delta.tokens, tokenizer);
  one["finish_reason"] = finish_reason.empty() ? ordered_json(nullptr) : ordered_json(finish_reason);
  out["choices"] = ordered_json::array({std::move(one)});
  return as_event(out);
}

std::string part_chunk(const AnswerHead& head, int32_t choice, const AnswerPart& part, std::string_view id) {
  if (part.kind == AnswerPart::Kind::content) return text_chunk(head, choice, part.text);
  ordered_json delta = ordered_json::object();
  switch (part.kind) {
    case AnswerPart::Kind::content:
      break;
    case AnswerPart::Kind::reasoning:
      delta["reasoning_content"] = part.text;
      break;
    case AnswerPart::Kind::call:
      delta["tool_calls"] = ordered_json::array({{{"index", part.call},
                                                  {"id", id},
                                                  {"type", "function"},
                                                  {"function", {{"name", part.text}, {"arguments", ""}}}}});
      break;
    case AnswerPart::Kind::arguments:
      delta["tool_calls"] = ordered_json::array({{{"index", part.call}, {"function", {{"arguments", part.text}}}}});
      break;
  }
  ordered_json out = head_json(head, true);
  out["choices"] = ordered_json::array(
      {{{"index", choice}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
  return as_event(out);
}

std::string usage_chunk(const AnswerHead& head, const Usage& usage) {
  ordered_json out = head_json(head, true);
  out["choices"] = ordered_json::array();
  out["usage"] = usage_json(usage);
  return as_event(out);
}

std::string error_chunk(const Error& error) {
  return "data: " + error_body(status_of(error), error.message) + "\n\n";
}

int status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::corrupt:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::capacity:
      // A full queue passes; a prompt that does not fit never will.
      return error.message.starts_with("the queue") ? 503 : 400;
    case ErrorCode::cancelled:
      return 503;
    case ErrorCode::io:
    case ErrorCode::internal:
      break;
  }
  return 500;
}

std::string error_body(int status, std::string_view message) {
  const char* type = status == 401   ? "authentication_error"
                     : status >= 500 ? "server_error"
                     : status == 404 ? "not_found_error"
                                     : "invalid_request_error";
  ordered_json param = nullptr;
  const size_t close = message.starts_with('\'') ? message.find('\'', 1) : message.npos;
  if ((status == 400 || status == 404) && close != message.npos) param = std::string(message.substr(1, close - 1));
  return dump({{"error", {{"message", message}, {"type", type}, {"param", param}, {"code", status}}}});
}

}  // namespace cohort::server
