#include "server/constraints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"

namespace cohort::server {

using grammar::Grammar;

namespace {
constexpr size_t kKept = 32;
}

Constraints::Constraints(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  std::vector<std::string_view> pieces(tokenizer.vocab_size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    // Special tokens are no text, and those that end an answer come when it is complete.
    if (!tokenizer.is_special(id) && !tokenizer.is_end(id)) pieces[i] = tokenizer.piece(id);
  }
  vocabulary_ = std::make_shared<const grammar::TokenTrie>(pieces);
}

template <class Make>
Constraints::Result Constraints::find_or_make(std::string key, Make&& make) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find(kept_, key, [](const auto& entry) { return entry.first; });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return found->second;
    }
  }
  COHORT_ASSIGN(const Grammar grammar, make());
  COHORT_ASSIGN(std::shared_ptr<const Constraint> made,
                grammar::TokenGrammar::create(grammar, vocabulary_, tokenizer_.end_ids()));
  const std::scoped_lock lock(mutex_);
  kept_.emplace_front(std::move(key), made);
  if (kept_.size() > kKept) kept_.pop_back();
  return made;
}

Constraints::Result Constraints::of_grammar(std::string_view gbnf) {
  auto made = find_or_make("gbnf " + std::string(gbnf), [&] {
    return grammar::parse_gbnf(gbnf, [this](std::string_view text) { return tokenizer_.token_id(text); });
  });
  if (made) return made;
  return fail(made.error().code, "'grammar': {}", made.error().message);
}

std::optional<int32_t> Constraints::find_special(std::string_view text) const {
  const auto id = tokenizer_.token_id(text);
  return id && tokenizer_.is_special(*id) ? id : std::nullopt;
}

Constraints::Result Constraints::of_schema(const nlohmann::ordered_json& schema, AnswerStart start) {
  auto made =
      find_or_make(fmt::format("schema {} {}", static_cast<int>(start), schema.dump()), [&]() -> Expected<Grammar> {
        COHORT_ASSIGN(Grammar grammar, grammar::grammar_of_schema(schema, "response_format.json_schema.schema"));
        put_at_start(grammar, start, [this](std::string_view text) { return find_special(text); });
        return grammar;
      });
  if (made || made.error().message.starts_with('\'')) return made;
  return fail(made.error().code, "'response_format.json_schema.schema': {}", made.error().message);
}

Constraints::Result Constraints::of_json_object(AnswerStart start) {
  return find_or_make(fmt::format("object {}", static_cast<int>(start)), [&]() -> Expected<Grammar> {
    Grammar grammar = grammar::grammar_of_json_object();
    put_at_start(grammar, start, [this](std::string_view text) { return find_special(text); });
    return grammar;
  });
}

Constraints::Result Constraints::of_tools(const ToolGrammarRequest& request) {
  const std::string key =
      fmt::format("tools {} {} {} {} {} {}", static_cast<int>(request.format), request.several, request.after_reasoning,
                  request.json_object, request.tools.dump(), request.schema ? request.schema->dump() : "");
  auto made = find_or_make(
      key, [&] { return tool_grammar(request, [this](std::string_view text) { return find_special(text); }); });
  if (made || made.error().message.starts_with('\'')) return made;
  return fail(made.error().code, "'tools': {}", made.error().message);
}

}  // namespace cohort::server
