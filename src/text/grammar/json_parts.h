// The parts of JSON texts as grammar expressions: strings, numbers, white space, values of any kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/grammar/grammar.h"

namespace cohort::grammar {

/// Bounds of a number; absent: none. Exclusive ones do not belong to it themselves.
struct NumberBounds {
  std::optional<double> low, high;
  bool low_exclusive = false, high_exclusive = false;
};

class JsonParts {
 public:
  explicit JsonParts(Grammar& grammar) : g_(grammar) {}

  /// Between tokens: nothing, a space, or a new line and its indentation.
  Grammar::Id space();
  /// One character inside of a string, from `ranges`, escaped where JSON wants that.
  Grammar::Id string_character(const std::vector<CodeRange>& ranges);
  /// Any character inside of a string, in every spelling.
  Grammar::Id any_character();
  Grammar::Id string(int32_t low, int32_t high);
  /// The characters of a string between its quotes, as an expression.
  Grammar::Id quoted(Grammar::Id inside);
  Grammar::Id number();
  Grammar::Id integer();
  /// Integers within bounds; -1 when there is none.
  Grammar::Id integer(const NumberBounds& bounds);
  /// Numbers within bounds, as far as whole numbers and whole numbers with a fraction go; -1 when there is none.
  Grammar::Id number(const NumberBounds& bounds) { return number(bounds, kDigits); }
  /// The same with at most so many digits after the point.
  Grammar::Id number(const NumberBounds& bounds, int32_t digits);
  /// Whole multiples of 10^zeros within bounds; -1 when there is none.
  Grammar::Id tens(const NumberBounds& bounds, int zeros);
  Grammar::Id boolean() { return g_.choice({g_.literal("true"), g_.literal("false")}); }
  Grammar::Id value();
  Grammar::Id object();
  Grammar::Id array();
  /// "key": any key but `names`.
  Grammar::Id other_key(const std::vector<std::string_view>& names);
  /// open, items with commas between, close. `low` to `high` items.
  Grammar::Id list(std::string_view open, Grammar::Id item, int32_t low, int32_t high, std::string_view close);

 private:
  Grammar::Id whole(int64_t low, int64_t high);
  Grammar::Id digits(std::string_view low, std::string_view high);
  Grammar::Id digit(char low, char high) {
    return g_.characters({{static_cast<uint32_t>(low), static_cast<uint32_t>(high)}});
  }
  static constexpr int32_t kDigits = 15;  // those are exact in every reader
  Grammar::Id fraction(int32_t digits);
  void value_rules();

  Grammar& g_;
  Grammar::Id space_ = -1, any_character_ = -1;
  Grammar::Rule value_ = -1, object_ = -1, array_ = -1;
};

/// The characters of strings that match a regular expression (as ECMA-262 has them; anywhere in the string unless
/// anchored). Supported: characters, classes, groups, alternatives, repetitions, ^ at the beginning and $ at the end of
/// an alternative. Errors: unsupported, invalid_argument, with the place in the pattern.
Expected<Grammar::Id> string_pattern(Grammar& grammar, JsonParts& parts, std::string_view pattern);

}  // namespace cohort::grammar
