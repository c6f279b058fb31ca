#include "server/openai/choice.h"

#include <algorithm>

namespace cohort::server {
namespace {

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    matched_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // Keep the longest end of the text that begins a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).substr(held_.size() - length) == std::string_view(stop).substr(0, length)) {
        keep = length;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() {
  return matched_ ? std::string() : std::exchange(held_, {});
}

Delta Choice::push(const TokenEvent& event) {
  Delta delta;
  if (ended_) return delta;
  reused_ = std::max(reused_, event.reused);
  if (event.finish == FinishReason::failed || event.finish == FinishReason::cancelled) {
    ended_ = delta.ended = true;
    reason_ = "error";
    error_ = event.error;
    return delta;
  }
  ++tokens_;
  const bool end_token = event.finish == FinishReason::end_token;
  std::string piece;
  if (!end_token) piece = detokenizer_.push(event.sample.token);
  if (!end_token && std::ranges::find(spoken_, event.sample.token) != spoken_.end())
    piece += tokenizer_.token_text(event.sample.token);
  if (event.finish != FinishReason::none) piece += detokenizer_.finish();
  if (logprobs_) delta.tokens.push_back({event.sample, characters_});
  characters_ += count_characters(piece);
  delta.text = stops_.push(piece);
  if (stops_.matched()) {
    ended_ = delta.ended = true;
    ended_early_ = event.finish == FinishReason::none;
    reason_ = "stop";
    return delta;
  }
  if (event.finish == FinishReason::none) return delta;
  delta.text += stops_.finish();
  ended_ = delta.ended = true;
  reason_ = end_token || event.finish == FinishReason::complete ? "stop" : "length";
  return delta;
}

}  // namespace cohort::server
