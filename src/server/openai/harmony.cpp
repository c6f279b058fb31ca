#include "server/openai/harmony.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/tools.h"

namespace cohort::server {

using grammar::Grammar;
using nlohmann::ordered_json;

namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>", kEnd = "<|end|>";
constexpr std::string_view kConstrain = "<|constrain|>", kTo = "to=", kFunctions = "functions.";
/// What ends a message; <|start|> belongs to the next one.
constexpr std::array<std::string_view, 4> kEnds{kEnd, "<|call|>", "<|return|>", kStart};
/// Names of channels and functions are short.
constexpr size_t kLongestHeader = 512;

std::string_view without_space(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

/// The word after `mark` in a header: up to a space or the next mark.
std::string_view word_after(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

/// The length of the longest end of `text` that begins one of the marks that end a message, but is none.
size_t partial_end(std::string_view text) {
  size_t longest = 0;
  for (const std::string_view mark : kEnds) {
    for (size_t length = std::min(mark.size() - 1, text.size()); length > longest; --length) {
      if (!text.ends_with(mark.substr(0, length))) continue;
      longest = length;
      break;
    }
  }
  return longest;
}

}  // namespace

bool speaks_harmony(std::string_view source) {
  return std::ranges::all_of(std::array{kStart, kChannel, kMessage},
                             [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; });
}

ordered_json harmony_messages(const ordered_json& messages) {
  ordered_json out = messages;
  for (ordered_json& message : out) {
    if (message.contains("content") && message["content"].is_null()) message["content"] = "";
    const auto thought = message.find("reasoning_content");
    if (thought != message.end() && !message.contains("thinking")) message["thinking"] = *thought;
  }
  return out;
}

std::vector<AnswerPart> HarmonyParser::push(std::string_view text) {
  held_ += text;
  while (!held_.empty() && step()) {
  }
  return std::exchange(parts_, {});
}

std::vector<AnswerPart> HarmonyParser::finish(bool cut) {
  if (cut && state_ == State::header && may_be_header()) held_.clear();
  if (cut && state_ == State::body) held_.resize(held_.size() - partial_end(held_));
  if (state_ == State::header) {
    if (without_space(held_).empty()) held_.clear();
    kind_ = Kind::content;
    empty_ = true;
  }
  emit(held_);
  held_.clear();
  if (state_ == State::body && !cut) close();
  return std::exchange(parts_, {});
}

/// One decision; false when more text is needed for the next one.
bool HarmonyParser::step() {
  if (state_ == State::header) return step_header();
  if (state_ == State::body) return step_body();
  emit(std::exchange(held_, {}));
  return false;
}

bool HarmonyParser::may_be_header() const {
  const std::string_view text = without_space(held_);
  if (text.size() > kLongestHeader) return false;
  return std::ranges::any_of(std::array{kStart, kChannel, kTo, kMessage},
                             [&](std::string_view mark) { return text.starts_with(mark) || mark.starts_with(text); });
}

bool HarmonyParser::step_header() {
  if (!may_be_header()) {
    kind_ = Kind::content;
    empty_ = true;
    state_ = State::plain;
    return true;
  }
  const size_t end = held_.find(kMessage);
  if (end == std::string::npos) return false;
  const std::string header = held_.substr(0, end);
  held_.erase(0, end + kMessage.size());
  open(header);
  return true;
}

void HarmonyParser::open(std::string_view header) {
  state_ = State::body;
  empty_ = true;
  std::string_view recipient = word_after(header, kTo);
  if (tools_ && !recipient.empty()) {
    if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
    kind_ = Kind::arguments;
    parts_.push_back({Kind::call, std::string(recipient), calls_++});
    return;
  }
  kind_ = word_after(header, kChannel) == "analysis" ? Kind::reasoning : Kind::content;
}

/// A call without arguments has none, as an object.
void HarmonyParser::close() {
  if (kind_ == Kind::arguments && empty_) emit("{}");
  state_ = State::header;
}

bool HarmonyParser::step_body() {
  size_t end = std::string::npos;
  std::string_view found;
  for (const std::string_view mark : kEnds) {
    const size_t at = held_.find(mark);
    if (at >= end) continue;
    end = at;
    found = mark;
  }
  if (end == std::string::npos) {
    const size_t sent = held_.size() - partial_end(held_);
    emit(std::string_view(held_).substr(0, sent));
    held_.erase(0, sent);
    return false;
  }
  emit(std::string_view(held_).substr(0, end));
  held_.erase(0, end + (found == kStart ? 0 : found.size()));
  close();
  return true;
}

/// Messages of one kind are paragraphs of one text.
void HarmonyParser::emit(std::string_view text) {
  if (text.empty()) return;
  bool& any = kind_ == Kind::reasoning ? any_reasoning_ : any_content_;
  std::string piece = empty_ && kind_ != Kind::arguments && any ? "\n\n" : "";
  piece += text;
  if (kind_ != Kind::arguments) any = true;
  empty_ = false;
  if (!parts_.empty() && parts_.back().kind == kind_) {
    parts_.back().text += piece;
  } else {
    parts_.push_back({kind_, std::move(piece), calls_ == 0 ? 0 : calls_ - 1});
  }
}

Grammar::Id harmony_thoughts(Grammar& g, const grammar::FindToken& find_special) {
  // Without '<', so that a thought's end is found also where the marks are no tokens of their own.
  const Grammar::Id anything = g.repeat(g.characters(grammar::complement({{'<', '<'}})), 0, Grammar::kUnbounded);
  const Grammar::Id thought = g.sequence(
      {tool_marker(g, kChannel, find_special), g.literal("analysis"), tool_marker(g, kMessage, find_special), anything,
       tool_marker(g, kEnd, find_special), tool_marker(g, kStart, find_special), g.literal("assistant")});
  return g.repeat(thought, 0, Grammar::kUnbounded);
}

Grammar::Id harmony_final(Grammar& g, Grammar::Id answer, const grammar::FindToken& find_special) {
  return g.sequence(
      {tool_marker(g, kChannel, find_special), g.literal("final"), tool_marker(g, kMessage, find_special), answer});
}

Grammar::Id harmony_call(Grammar& g, const std::string& name, Grammar::Id arguments,
                         const grammar::FindToken& find_special) {
  return g.sequence(
      {tool_marker(g, kChannel, find_special), g.literal("commentary to=" + std::string(kFunctions) + name + " "),
       tool_marker(g, kConstrain, find_special), g.literal("json"), tool_marker(g, kMessage, find_special), arguments});
}

}  // namespace cohort::server
