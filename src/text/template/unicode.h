// Text as Python sees it: strings are sequences of code points, stored as UTF-8; case, classes and white space are
// Python's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::jinja {

/// The code point at byte `position`, which is moved behind it. Malformed bytes read as U+FFFD, one at a time.
char32_t decode(std::string_view text, size_t& position);
/// The code point that ends at byte `position` (> 0), which is moved to its first byte.
char32_t decode_before(std::string_view text, size_t& position);
void append_utf8(std::string& text, char32_t code_point);
bool is_valid_utf8(std::string_view text);

/// Number of code points.
size_t count_code_points(std::string_view text);
/// The byte at which code point `index` starts; the size of the text if it has no more than `index` code points.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t c);
bool is_line_break(char32_t c);  // as str.splitlines; "\r\n" counts once, which is the caller's business
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alphanumeric(char32_t c);
bool is_printable(char32_t c);
bool is_uppercase(char32_t c);
bool is_lowercase(char32_t c);
bool is_titlecase(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title: each word
std::string to_capitalized(std::string_view text);  // str.capitalize: the first character only
std::string to_swapped_case(std::string_view text);
std::string to_folded(std::string_view text);

}  // namespace cohort::jinja
