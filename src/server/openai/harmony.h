// Harmony, the format of gpt-oss: an answer is several messages, each with a channel in front and perhaps a recipient,
//   <|channel|>analysis<|message|>a thought<|end|><|start|>assistant<|channel|>final<|message|>the answer
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer_part.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"

namespace cohort::server {

/// From the template's source.
bool speaks_harmony(std::string_view source);

/// The conversation as the template reads it: thoughts are `thinking`, and a content that is missing is an empty text.
nlohmann::ordered_json harmony_messages(const nlohmann::ordered_json& messages);

/// Messages on the channel `analysis` are reasoning, those to a function are its call, all others are content. Text
/// that does not begin like a message is content, too.
class HarmonyParser {
 public:
  /// `tools`: there are functions to call; without them, what is written to a recipient is content.
  explicit HarmonyParser(bool tools) : tools_(tools) {}
  std::vector<AnswerPart> push(std::string_view text);
  /// As AnswerParser::finish.
  std::vector<AnswerPart> finish(bool cut);
  size_t calls() const { return calls_; }

 private:
  enum class State { header, body, plain };
  bool step();
  bool step_header();
  bool step_body();
  bool may_be_header() const;
  void open(std::string_view header);
  void close();
  void emit(std::string_view text);

  bool tools_;
  State state_ = State::header;
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;  // of the message that is open
  std::string held_;                                   // not decided yet
  std::vector<AnswerPart> parts_;
  size_t calls_ = 0;
  bool empty_ = true;  // nothing of the open message has come
  bool any_content_ = false, any_reasoning_ = false;
};

/// Thoughts or none: any messages on the channel `analysis`, each with the beginning of the next one.
grammar::Grammar::Id harmony_thoughts(grammar::Grammar& grammar, const grammar::FindToken& find_special);
/// `answer` as the message on the channel `final`.
grammar::Grammar::Id harmony_final(grammar::Grammar& grammar, grammar::Grammar::Id answer,
                                   const grammar::FindToken& find_special);
/// A message to the function `name` whose text is `arguments`.
grammar::Grammar::Id harmony_call(grammar::Grammar& grammar, const std::string& name, grammar::Grammar::Id arguments,
                                  const grammar::FindToken& find_special);

}  // namespace cohort::server
