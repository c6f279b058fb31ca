// A grammar as it is written: named rules over characters, tokens and each other. Parsers (gbnf.h, json_schema.h)
// build it; rules.h makes of it what the automaton runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::grammar {

/// Code points from first to second.
using CodeRange = std::pair<uint32_t, uint32_t>;
inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

/// Sorted, without overlaps and without surrogates (which UTF-8 cannot spell).
std::vector<CodeRange> normalised(std::vector<CodeRange> ranges);
/// All code points that are not in normalised `ranges`.
std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);
/// The UTF-8 spelling of a code point.
std::string utf8(uint32_t code_point);

class Grammar {
 public:
  using Id = int32_t;    // of an expression
  using Rule = int32_t;  // of a rule
  static constexpr int32_t kUnbounded = -1;

  struct Expression {
    enum class Kind { literal, characters, sequence, choice, repeat, rule, token };
    Kind kind = Kind::literal;
    std::string bytes;              // of a literal
    std::vector<CodeRange> ranges;  // of characters
    std::vector<Id> parts;
    int32_t low = 0, high = 0;  // of a repeat; high may be kUnbounded
    int32_t index = 0;          // of a rule, or a token's id
  };
  struct Named {
    std::string name;
    Id body = -1;  // -1: not defined
  };

  Id literal(std::string bytes);
  /// One character of `ranges` (in any order).
  Id characters(std::vector<CodeRange> ranges);
  Id sequence(std::vector<Id> parts);
  /// One of `parts`; none of them: nothing matches.
  Id choice(std::vector<Id> parts);
  Id repeat(Id part, int32_t low, int32_t high);
  Id optional(Id part) { return repeat(part, 0, 1); }
  Id rule(Rule rule);
  Id token(int32_t token);

  Rule add_rule(std::string name);
  void define(Rule rule, Id body) { rules_[static_cast<size_t>(rule)].body = body; }

  const Expression& expression(Id id) const { return expressions_[static_cast<size_t>(id)]; }
  const std::vector<Named>& rules() const { return rules_; }
  size_t size() const { return expressions_.size(); }

  Rule root = 0;

 private:
  Id add(Expression expression);
  std::vector<Expression> expressions_;
  std::vector<Named> rules_;
};

}  // namespace cohort::grammar
