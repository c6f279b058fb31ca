// Tables of characters whose properties go beyond their general category; sorted by code point.
#pragma once

#include <span>
#include <string_view>

namespace cohort::jinja {

struct CaseException {
  char32_t code_point;
  std::string_view text;  // UTF-8 of the full mapping, more than one character
};

struct CodePointRange {
  char32_t first, last;
};

std::span<const CaseException> upper_exceptions();
std::span<const CaseException> lower_exceptions();
std::span<const CaseException> title_exceptions();
std::span<const CodePointRange> digit_ranges();      // digits outside Nd (superscripts, circled, ...)
std::span<const CodePointRange> numeric_ranges();    // numerals outside N* (ideographs)
std::span<const CodePointRange> uppercase_ranges();  // upper case outside Lu
std::span<const CodePointRange> lowercase_ranges();  // lower case outside Ll

}  // namespace cohort::jinja
