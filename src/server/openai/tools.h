// Tools (function calling): how a model's template spells them, what the model is told, and the grammar of calls.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/error.h"
#include "server/openai/answer_parser.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"

namespace cohort::server {

enum class ToolChoice { none, automatic, required };

/// What a chat template does with tools.
struct TemplateTools {
  ToolFormat format = ToolFormat::hermes;
  /// The template renders the list itself; otherwise the model is told in a system message, and calls and results of
  /// the conversation are written into texts.
  bool native = false;
};
/// From the template's source.
TemplateTools tools_of_template(std::string_view source);
/// The template writes or reads thoughts: <think> blocks, or those of channels.
bool reasons(std::string_view source);
/// Thoughts stand between <|channel>thought and <channel|> (Gemma 4).
bool thinks_in_channels(std::string_view source);

/// The conversation for a template that knows no tools: a system message with `tools` (if any), assistants' calls and
/// tools' results as text.
nlohmann::ordered_json generic_tool_messages(const nlohmann::ordered_json& messages,
                                             const nlohmann::ordered_json& tools);

struct ToolGrammarRequest {
  nlohmann::ordered_json tools;  // as the request has them, those that may be called
  ToolFormat format = ToolFormat::hermes;
  bool several = true;           // more than one call
  bool after_reasoning = false;  // the prompt has opened <think>
  // What the answer may be instead of calls; neither: it must be calls.
  std::optional<nlohmann::ordered_json> schema;
  bool json_object = false;
};
/// How an answer begins that must keep to a grammar.
enum class AnswerStart {
  plain,
  thought,  // the prompt has opened <think>
  harmony   // with a channel
};
/// `grammar`'s texts where an answer has them: after the rest of a thought, or as the message on the channel `final`.
void put_at_start(grammar::Grammar& grammar, AnswerStart start, const grammar::FindToken& find_special);

/// Answers that are calls, or keep to the request's schema when it has one, and nothing else. `find_special` gives the
/// id of a marker that is a special token. Errors: those of grammar_of_schema.
Expected<grammar::Grammar> tool_grammar(const ToolGrammarRequest& request, const grammar::FindToken& find_special);

/// A marker of a format: its special token where it is one (markers that are ordinary tokens are spelled like text).
grammar::Grammar::Id tool_marker(grammar::Grammar& grammar, std::string_view text,
                                 const grammar::FindToken& find_special);
/// The calls of ToolFormat::gemma. Errors: unsupported for schemas beyond types, enum, properties and items.
Expected<grammar::Grammar::Id> gemma_calls(grammar::Grammar& grammar, const ToolGrammarRequest& request,
                                           const grammar::FindToken& find_special);

}  // namespace cohort::server
