// Splits a template into text and tokens, with the white space rules of trim_blocks, lstrip_blocks and the - and +
// signs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::jinja {

enum class TokenType : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  symbol,
  end,
};

struct Token {
  TokenType type = TokenType::end;
  int line = 0;
  std::string text;  // data; the name; the string without quotes and escapes; the number or symbol as written
};

/// All tokens of `source` and an end token. Throws a ParseFailure.
std::vector<Token> tokenize(std::string_view source);

/// How an error shows a token.
std::string describe(const Token& token);

}  // namespace cohort::jinja
