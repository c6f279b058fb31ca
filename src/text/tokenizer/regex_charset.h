// Sets of characters as PCRE2 text: what stands in brackets, alternatives that do not fit there, intersections.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::text {

/// A character set while it is translated. The members are `items` (the inside of a bracket class) and all of
/// `alternatives`, complemented if `negated`; or, if `intersection` is not empty, what all of its sets share.
struct CharSet {
  std::string items;
  std::vector<CharSet> alternatives;
  std::vector<CharSet> intersection;
  bool negated = false;

  void add(CharSet other);
  /// As a PCRE2 atom that consumes one character.
  std::string atom() const;
};

/// \s, \w, \d, \h of Oniguruma, or nothing for another letter (upper case: the complement).
std::optional<CharSet> escape_set(char letter, bool additions);

/// \p{name}, [:name:]: a general category, a POSIX name or a script. `posix` selects the bracket meaning of "punct".
/// The name is not checked for existence: PCRE2 refuses an unknown one.
CharSet property_set(std::string_view name, bool posix, bool additions);

}  // namespace cohort::text
