// JSON Schema's `format` of strings and of numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/grammar/json_parts.h"

namespace cohort::grammar {

struct StringFormat {
  std::string pattern;                // as string_pattern reads it
  int32_t shortest = 0, longest = 0;  // characters of what matches; longest < 0: without limit
};
/// A pattern all of whose strings have the format; nullopt for a format that no pattern can say, or that is not known.
/// It allows nothing that the standard does not; what it leaves out of it (long names, quoted parts of e-mail
/// addresses, leap seconds) is said where it is. `longest` (< 0: none) shortens formats that can be shortened.
std::optional<StringFormat> string_format(std::string_view format, int32_t longest);
/// The names of these formats, for messages.
std::string known_formats();

/// OpenAPI's formats of numbers (int32, float, ...) as bounds; nullopt: not known.
std::optional<NumberBounds> bounds_of_format(std::string_view format, bool integer);

}  // namespace cohort::grammar
