// One answer in the making: tokens become text that is fit to send, stop strings are found, log probabilities kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort::server {

/// Finds stop strings in text that arrives in pieces. What could be the beginning of one is kept back.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  /// Text that is certainly before any stop string. After a match nothing comes any more.
  std::string push(std::string_view text);
  /// The rest, when generation ended otherwise.
  std::string finish();
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

/// A token with what the request asked to know of it.
struct TokenInfo {
  Sample sample;
  size_t text_offset = 0;  // characters of this answer before the token
};

/// What one event adds to an answer.
struct Delta {
  std::string text;
  std::vector<TokenInfo> tokens;  // only with logprobs
  bool ended = false;
};

class Choice {
 public:
  /// `spoken`: special tokens whose spelling is part of the text all the same (markers of calls, say).
  Choice(const text::Tokenizer& tokenizer, std::vector<std::string> stops, bool logprobs,
         std::vector<int32_t> spoken = {})
      : detokenizer_(tokenizer, {.skip_special = true, .at_start = false}),
        tokenizer_(tokenizer),
        stops_(std::move(stops)),
        logprobs_(logprobs),
        spoken_(std::move(spoken)) {}

  /// Events in order; those after the end are ignored. An end token adds no text.
  Delta push(const TokenEvent& event);

  bool ended() const { return ended_; }
  /// The engine still generates although the answer has ended at a stop string.
  bool ended_early() const { return ended_early_; }
  /// A stop string ended it, wherever in the answer that was.
  bool cut_by_stop() const { return stops_.matched(); }
  /// "stop", "length", or "error"; empty before the end.
  std::string_view finish_reason() const { return reason_; }
  const Error& error() const { return error_; }
  int64_t tokens() const { return tokens_; }  // generated, end token included
  int32_t reused() const { return reused_; }  // of the prompt, from the prefix cache

 private:
  text::Detokenizer detokenizer_;
  text::Tokenizer tokenizer_;
  StopMatcher stops_;
  bool logprobs_;
  std::vector<int32_t> spoken_;
  bool ended_ = false, ended_early_ = false;
  std::string_view reason_;
  Error error_;
  int64_t tokens_ = 0;
  int32_t reused_ = 0;
  size_t characters_ = 0;
};

}  // namespace cohort::server
