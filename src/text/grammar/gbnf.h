// GBNF, the grammar notation of llama.cpp:
//   name ::= "literal" [a-z] [^\n] . other-rule ( a | b ) x* x+ x? x{2} x{2,} x{2,5} <|token|> <[token id]>   # comment
// A rule ends at the end of its line, except inside parentheses and after ::= and |. Escapes: \n \r \t \\ \" \[ \] \^
// \- \/ \xHH \uHHHH \UHHHHHHHH. The text must be derived from the rule `root`.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "cohort/error.h"
#include "text/grammar/grammar.h"

namespace cohort::grammar {

/// The id of a token in the vocabulary's spelling.
using FindToken = std::function<std::optional<int32_t>(std::string_view)>;

/// Errors: invalid_argument with line and column (syntax, a rule that is not or twice defined, no `root`, an unknown
/// token), capacity (too long, too deep).
Expected<Grammar> parse_gbnf(std::string_view text, const FindToken& find_token);

}  // namespace cohort::grammar
