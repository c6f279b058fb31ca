// Grammars that requests ask for, compiled for the model's vocabulary. Compiled ones are kept: clients send the same
// schema again and again.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/constraint.h"
#include "server/openai/tools.h"
#include "text/grammar/token_grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort::server {

class Constraints {
 public:
  explicit Constraints(const text::Tokenizer& tokenizer);

  using Result = Expected<std::shared_ptr<const Constraint>>;
  /// Errors: those of parse_gbnf.
  Result of_grammar(std::string_view gbnf);
  /// Errors: those of grammar_of_schema. `start`: what comes before that.
  Result of_schema(const nlohmann::ordered_json& schema, AnswerStart start);
  Result of_json_object(AnswerStart start);
  Result of_tools(const ToolGrammarRequest& request);

 private:
  template <class Make>
  Result find_or_make(std::string key, Make&& make);
  std::optional<int32_t> find_special(std::string_view text) const;

  text::Tokenizer tokenizer_;
  std::shared_ptr<const grammar::TokenTrie> vocabulary_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Constraint>>> kept_;  // the latest first
};

}  // namespace cohort::server
