#include "server/openai/answer_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace cohort::server {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>";
constexpr std::string_view kGemmaCall = "<|tool_call>", kGemmaCallEnd = "<tool_call|>";
constexpr std::string_view kMistral = "[TOOL_CALLS]";
constexpr std::string_view kPythonTag = "<|python_tag|>";

bool is_space(char c) {
  return kSpace.find(c) != std::string_view::npos;
}

/// The length of the longest end of `text` that `word` begins with, but not all of it.
size_t partial(std::string_view text, std::string_view word) {
  for (size_t length = std::min(word.size() - 1, text.size()); length > 0; --length) {
    if (text.substr(text.size() - length) == word.substr(0, length)) return length;
  }
  return 0;
}

size_t without_trailing_space(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

bool CallScanner::push(char c) {
  if (done() || broken()) return false;
  raw_ += c;
  switch (state_) {
    case State::object:
      if (!is_space(c)) state_ = c == '{' ? State::key : State::broken;
      break;
    case State::key:
      if (in_string_) {
        token_ += c;
        in_string_ = c != '"' || escaped_;
        escaped_ = c == '\\' && !escaped_;
        if (!in_string_) {
          const auto key = nlohmann::json::parse(token_, nullptr, false);
          key_ = key.is_string() ? key.get<std::string>() : std::string();
          state_ = key.is_string() ? State::colon : State::broken;
        }
      } else if (c == '"') {
        token_ = c;
        in_string_ = true;
        first_member_ = false;
      } else if (c == '}' && first_member_) {
        state_ = State::done;
      } else if (!is_space(c)) {
        state_ = State::broken;
      }
      break;
    case State::colon:
      if (!is_space(c)) state_ = c == ':' ? State::value : State::broken;
      token_.clear();
      break;
    case State::value:
      value_byte(c);
      break;
    case State::after:
      if (c == ',') {
        state_ = State::key;
      } else if (c == '}') {
        state_ = State::done;
      } else if (!is_space(c)) {
        state_ = State::broken;
      }
      break;
    case State::done:
    case State::broken:
      break;
  }
  return !broken();
}

bool CallScanner::value_byte(char c) {
  if (token_.empty() && is_space(c)) return true;
  if (token_.empty()) streaming_ = c == '{' && (key_ == "arguments" || key_ == "parameters");
  // A number or word ends with what follows it.
  if (!in_string_ && depth_ == 0 && !token_.empty() && (c == ',' || c == '}')) {
    end_value();
    state_ = broken() ? State::broken : c == ',' ? State::key : State::done;
    return true;
  }
  token_ += c;
  if (streaming_) {
    arguments_ += c;
    has_arguments_ = true;
  }
  if (in_string_) {
    in_string_ = c != '"' || escaped_;
    escaped_ = c == '\\' && !escaped_;
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
  }
  if (depth_ < 0) {
    state_ = State::broken;
  } else if (!in_string_ && depth_ == 0 && (c == '"' || c == '}' || c == ']')) {
    end_value();
    if (!broken()) state_ = State::after;
  }
  return true;
}

void CallScanner::end_value() {
  const auto value = nlohmann::json::parse(token_, nullptr, false);
  if (value.is_discarded()) {
    state_ = State::broken;
  } else if (key_ == "name" && value.is_string() && name_.empty()) {
    name_ = value.get<std::string>();
  } else if ((key_ == "arguments" || key_ == "parameters") && !streaming_) {
    // Some models write the arguments as a string that holds JSON, or null for none.
    arguments_ += value.is_string() ? value.get<std::string>() : value.is_null() ? "{}" : token_;
    has_arguments_ = true;
  }
  streaming_ = false;
  token_.clear();
}

std::string CallScanner::take_arguments() {
  return std::exchange(arguments_, {});
}

AnswerParser::AnswerParser(AnswerSyntax syntax) : syntax_(std::move(syntax)) {
  if (syntax_.harmony) harmony_.emplace(syntax_.tools != ToolFormat::none);
  if (syntax_.begins_reasoning) {
    state_ = State::reasoning;
    trim_ = true;
  }
}

std::string_view AnswerParser::opener() const {
  switch (syntax_.tools) {
    case ToolFormat::hermes:
      return kToolCall;
    case ToolFormat::mistral:
      return kMistral;
    case ToolFormat::gemma:
      return kGemmaCall;
    default:
      return "";
  }
}

void AnswerParser::emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  any_content_ |= kind == Kind::content;
  if (!parts_.empty() && parts_.back().kind == kind && kind != Kind::call) {
    parts_.back().text += text;
  } else {
    parts_.push_back({kind, std::string(text), calls_ == 0 ? 0 : calls_ - 1});
  }
}

void AnswerParser::skip_space() {
  held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
}

std::vector<AnswerPart> AnswerParser::push(std::string_view text) {
  if (harmony_) return harmony_->push(text);
  held_ += text;
  while (!held_.empty() && step()) {
  }
  return std::exchange(parts_, {});
}

/// Whether the text that a call was looked for in reads like one so far.
bool AnswerParser::may_become_call() const {
  if (!scanner_.name().empty()) return false;  // of no tool, or it would have been told of
  if (syntax_.tools != ToolFormat::llama || opener_.find(kPythonTag) != std::string::npos) return true;
  // Without a marker: any JSON object could be an answer, but not one that begins with a name.
  std::string text = scanner_.raw();
  std::erase_if(text, is_space);
  constexpr std::string_view kBegin = R"({"name":")";
  return text.starts_with(kBegin) || kBegin.starts_with(text);
}

/// The text ended in the middle: forgets what was held back of a marker.
void AnswerParser::drop_unfinished() {
  std::string_view marker = opener();
  switch (state_) {
    case State::start:
    case State::reasoning:
      marker = state_ == State::start ? syntax_.thought : syntax_.thought_end;
      break;
    case State::content:
      if (syntax_.tools == ToolFormat::llama && !any_content_) marker = kPythonTag;
      break;
    case State::call:
      break;
    case State::after_call:
      marker = syntax_.tools == ToolFormat::hermes  ? kToolCallEnd
               : syntax_.tools == ToolFormat::gemma ? kGemmaCallEnd
                                                    : std::string_view();
      break;
  }
  const size_t unfinished = marker.empty() ? 0 : partial(held_, marker);
  if (unfinished == 0) return;
  held_.resize(held_.size() - unfinished);
  held_.resize(without_trailing_space(held_));  // space before a marker is no content, either
}

std::vector<AnswerPart> AnswerParser::finish(bool cut) {
  if (harmony_) return harmony_->finish(cut);
  if (cut) drop_unfinished();
  if (state_ == State::call) {
    if (announced_) {
      emit(Kind::arguments, scanner_.take_arguments());
    } else if (!cut || !may_become_call()) {
      abandon_call();
    }
  }
  const std::string_view rest = held_;
  const bool blank = without_trailing_space(rest) == 0;
  if (state_ == State::reasoning) {
    emit(Kind::reasoning, rest.substr(0, without_trailing_space(rest)));
  } else if (!(blank && calls_ > 0)) {
    emit(Kind::content, rest);
  }
  held_.clear();
  return std::exchange(parts_, {});
}

/// One decision; false when more text is needed for the next one.
bool AnswerParser::step() {
  switch (state_) {
    case State::start:
      return step_start();
    case State::reasoning:
      return step_reasoning();
    case State::content:
      return step_content();
    case State::call:
      return step_call();
    case State::after_call:
      break;
  }
  return step_after_call();
}

bool AnswerParser::step_start() {
  if (syntax_.reasoning) {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return false;
    const std::string_view text = std::string_view(held_).substr(first);
    if (text.size() < syntax_.thought.size() && syntax_.thought.starts_with(text)) return false;
    if (text.starts_with(syntax_.thought)) {
      held_.erase(0, first + syntax_.thought.size());
      trim_ = true;
      state_ = State::reasoning;
      return true;
    }
  }
  state_ = State::content;
  return true;
}

bool AnswerParser::step_reasoning() {
  if (trim_) skip_space();
  if (held_.empty()) return false;
  trim_ = false;
  const size_t end = held_.find(syntax_.thought_end);
  const std::string_view text = std::string_view(held_).substr(0, end);
  const size_t kept = end != std::string::npos ? 0 : partial(text, syntax_.thought_end);
  const size_t sent = without_trailing_space(text.substr(0, text.size() - kept));
  emit(Kind::reasoning, text.substr(0, sent));
  if (end == std::string::npos) {
    held_.erase(0, sent);
    return false;
  }
  held_.erase(0, end + syntax_.thought_end.size());
  trim_ = true;
  state_ = State::content;
  return true;
}

bool AnswerParser::step_content() {
  if (trim_) skip_space();
  if (held_.empty()) return false;
  if (syntax_.tools == ToolFormat::llama && !any_content_) {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return false;
    const std::string_view text = std::string_view(held_).substr(first);
    if (text.size() < kPythonTag.size() && kPythonTag.starts_with(text)) return false;
    const bool tagged = text.starts_with(kPythonTag);
    if (tagged || text.starts_with('{')) {
      begin_call(held_.substr(0, first + (tagged ? kPythonTag.size() : 0)));
      return true;
    }
  }
  trim_ = false;
  const std::string_view word = opener();
  if (word.empty()) {
    emit(Kind::content, std::exchange(held_, {}));
    return false;
  }
  const size_t found = held_.find(word);
  const std::string_view text = std::string_view(held_).substr(0, found);
  // Space before a call is not content; before anything else it is.
  const size_t kept = found != std::string::npos ? 0 : partial(text, word);
  const size_t sent = without_trailing_space(text.substr(0, text.size() - kept));
  emit(Kind::content, text.substr(0, sent));
  if (found == std::string::npos) {
    held_.erase(0, sent);
    return false;
  }
  held_.erase(0, sent);
  begin_call(held_.substr(0, found - sent + word.size()));
  return true;
}

void AnswerParser::begin_call(std::string opener) {
  held_.erase(0, opener.size());
  opener_ = std::move(opener);
  scanner_ = CallScanner();
  gemma_ = GemmaCall();
  announced_ = false;
  state_ = State::call;
}

/// Tells of the call as soon as its name is known, then of its arguments as they come.
void AnswerParser::report_call() {
  const std::string& name = scanner_.name();
  if (name.empty()) return;
  if (!announced_) {
    const bool known = std::ranges::find(syntax_.tool_names, name) != syntax_.tool_names.end();
    if (syntax_.tools == ToolFormat::llama && !known) return;
    announced_ = true;
    ++calls_;
    parts_.push_back({Kind::call, name, calls_ - 1});
  }
  emit(Kind::arguments, scanner_.take_arguments());
  if (scanner_.done() && !scanner_.has_arguments()) emit(Kind::arguments, "{}");
}

/// It was no call: what it looked like is content.
void AnswerParser::abandon_call() {
  emit(Kind::content, opener_ + (syntax_.tools == ToolFormat::gemma ? gemma_.raw() : scanner_.raw()));
  state_ = State::content;
}

bool AnswerParser::step_call() {
  size_t used = 0;
  // A list of calls begins, goes on, and ends around the objects.
  if (syntax_.tools == ToolFormat::mistral && scanner_.raw().empty()) {
    while (used < held_.size() && (is_space(held_[used]) || held_[used] == '[' || held_[used] == ',')) ++used;
    opener_ += held_.substr(0, used);
    if (used < held_.size() && held_[used] == ']' && calls_ > 0) {
      held_.erase(0, used + 1);
      trim_ = true;
      state_ = State::content;
      return true;
    }
  }
  const bool gemma = syntax_.tools == ToolFormat::gemma;
  while (used < held_.size() && !scanner_.done() && !scanner_.broken() && !gemma_.broken()) {
    const char c = held_[used++];
    if (!gemma) {
      scanner_.push(c);
      continue;
    }
    for (const char json : gemma_.push(c)) scanner_.push(json);
  }
  held_.erase(0, used);
  report_call();
  if (scanner_.broken() || gemma_.broken() || (scanner_.done() && !announced_)) {
    if (announced_) {
      state_ = State::after_call;
    } else {
      abandon_call();
    }
    return true;
  }
  if (!scanner_.done()) return false;
  state_ = State::after_call;
  return true;
}

bool AnswerParser::step_after_call() {
  if (syntax_.tools == ToolFormat::hermes || syntax_.tools == ToolFormat::gemma) {
    const std::string_view end_tag = syntax_.tools == ToolFormat::hermes ? kToolCallEnd : kGemmaCallEnd;
    // Only space may come before the end tag; anything else is content, and the tag then was forgotten.
    const size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view text = std::string_view(held_).substr(first);
    if (text.size() < end_tag.size() && end_tag.starts_with(text)) return false;
    held_.erase(0, first + (text.starts_with(end_tag) ? end_tag.size() : 0));
    state_ = State::content;
    trim_ = true;
    return true;
  }
  if (syntax_.tools == ToolFormat::mistral) {
    begin_call({});
    return true;
  }
  const size_t next = held_.find_first_not_of(" \t\r\n;,");
  if (next == std::string::npos) return false;
  if (held_[next] == '{') {
    begin_call(held_.substr(0, next));
  } else {
    state_ = State::content;
    trim_ = true;
    any_content_ = true;
  }
  return true;
}

}  // namespace cohort::server
