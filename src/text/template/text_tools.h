// What the filters and the methods of texts share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"

namespace cohort::jinja {

/// Where `wanted` begins in `text`, or npos; in time linear in the text, also for hostile ones.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view wanted);
/// str.replace(old, to, count); count < 0: all.
std::string replace_all(Runtime& runtime, std::string_view text, std::string_view old, std::string_view to, Int count);
/// str.splitlines(keep_ends).
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// str.strip(chars): removes characters of `chars`, or white space if there are none, from the chosen ends.
std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right);
/// `count` copies of `fill` on each side.
std::string padded(Runtime& runtime, std::string_view text, Int left, Int right, std::string_view fill);
/// Copies of the text's padding for str.center(width).
std::string centered(Runtime& runtime, std::string_view text, Int length, Int width, std::string_view fill);

}  // namespace cohort::jinja
