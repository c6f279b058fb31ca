#include "server/openai/gemma_call.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace cohort::server {
namespace {

constexpr std::string_view kHead = "call:";
constexpr std::string_view kQuote = "<|\"|>";
constexpr size_t kMaxDepth = 256;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// One byte of a JSON string.
std::string escaped(char c) {
  if (c == '"' || c == '\\') return {'\\', c};
  if (static_cast<unsigned char>(c) < ' ') return fmt::format("\\u{:04x}", c);
  return {c};
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) out += escaped(c);
  return out + "\"";
}

/// A word without quotes: a number, true, false, null (also as Python spells them), or else a text.
std::string json_of(std::string_view word) {
  while (!word.empty() && is_space(word.back())) word.remove_suffix(1);
  if (word == "None") return "null";
  if (word == "True") return "true";
  if (word == "False") return "false";
  return nlohmann::json::accept(word) ? std::string(word) : json_string(word);
}

}  // namespace

std::string GemmaCall::push(char c) {
  if (done() || broken()) return {};
  raw_ += c;
  switch (state_) {
    case State::head:
      if (token_.empty() && is_space(c)) return {};
      token_ += c;
      if (!kHead.starts_with(token_)) state_ = State::broken;
      if (token_ == kHead) {
        token_.clear();
        state_ = State::name;
      }
      return {};
    case State::name: {
      if (c != '{') {
        token_ += c;
        const bool part = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                          c == '-' || c == '.';
        if (!part) state_ = State::broken;
        return {};
      }
      if (token_.empty()) {
        state_ = State::broken;
        return {};
      }
      closers_.push_back('}');
      state_ = State::key;
      return fmt::format("{{\"name\": {}, \"arguments\": {{", json_string(std::exchange(token_, {})));
    }
    case State::key:
    case State::bare_key:
    case State::quoted_key:
      return key_byte(c);
    case State::value:
    case State::word:
      return value_byte(c);
    case State::text:
      return text_byte(c);
    case State::after:
      return after(c);
    case State::done:
    case State::broken:
      break;
  }
  return {};
}

/// Whether c belongs to a quotation mark that has begun or begins; complete when quote_ is all of it.
bool GemmaCall::quote_goes_on(char c) {
  if (!kQuote.starts_with(quote_ + c)) return false;
  quote_ += c;
  return true;
}

std::string GemmaCall::key_byte(char c) {
  if (state_ == State::quoted_key) {
    if (quote_goes_on(c)) {
      if (quote_ != kQuote) return {};
      quote_.clear();
      state_ = State::bare_key;  // the colon follows
      return {};
    }
    token_ += std::exchange(quote_, {});
    if (!quote_goes_on(c)) token_ += c;
    return {};
  }
  if (state_ == State::key) {
    if (quote_.empty() && is_space(c)) return {};
    if (quote_goes_on(c)) {
      if (quote_ == kQuote) {
        quote_.clear();
        state_ = State::quoted_key;
      }
      return {};
    }
    if (quote_.empty() && c == '}') return close();
    token_ = std::exchange(quote_, {});
    state_ = State::bare_key;
  }
  if (c != ':') {
    token_ += c;
    return {};
  }
  state_ = State::value;
  return json_string(std::exchange(token_, {})) + ": ";
}

std::string GemmaCall::value_byte(char c) {
  if (state_ == State::value) {
    if (quote_.empty() && is_space(c)) return {};
    if (quote_goes_on(c)) {
      if (quote_ != kQuote) return {};
      quote_.clear();
      state_ = State::text;
      return "\"";
    }
    token_ = std::exchange(quote_, {});
    if (token_.empty() && (c == '{' || c == '[')) {
      if (closers_.size() >= kMaxDepth) {
        state_ = State::broken;
        return {};
      }
      closers_.push_back(c == '{' ? '}' : ']');
      state_ = c == '{' ? State::key : State::value;
      return {c};
    }
    if (token_.empty() && c == ']' && closers_.back() == ']') return close();
    state_ = State::word;
  }
  if (c != ',' && c != '}' && c != ']') {
    token_ += c;
    return {};
  }
  return json_of(std::exchange(token_, {})) + after(c);
}

std::string GemmaCall::text_byte(char c) {
  if (quote_goes_on(c)) {
    if (quote_ != kQuote) return {};
    quote_.clear();
    state_ = State::after;
    return "\"";
  }
  std::string out;
  for (const char held : std::exchange(quote_, {})) out += escaped(held);
  if (!quote_goes_on(c)) out += escaped(c);
  return out;
}

std::string GemmaCall::after(char c) {
  if (is_space(c)) return {};
  if (c == ',') {
    state_ = closers_.back() == '}' ? State::key : State::value;
    return ", ";
  }
  if (c == closers_.back()) return close();
  state_ = State::broken;
  return {};
}

std::string GemmaCall::close() {
  std::string out{closers_.back()};
  closers_.pop_back();
  state_ = State::after;
  if (!closers_.empty()) return out;
  state_ = State::done;
  return out + "}";
}

}  // namespace cohort::server
