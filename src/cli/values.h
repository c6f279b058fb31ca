// Checks of flag values. The parser itself would cut a number that does not fit, or say only that it "could not
// convert"; these name the value and the limits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::cli {

/// For CLI::Option::check(): the empty string when the text is fine, else what is wrong with it.
using Check = std::function<std::string(const std::string&)>;

/// A decimal integer from `low` to `high`.
Check whole_number(int64_t low, int64_t high);
/// A finite decimal number from `low` to `high`.
Check number(double low, double high);
/// One of `names`.
Check one_of(std::vector<std::string> names);
/// What parse_bytes (base/memory.h) reads.
Check byte_size();
/// auto, cpu, cuda or cuda:N.
Check device_name();
/// One of `names`, or a file or folder that exists.
Check file_or(std::vector<std::string_view> names);
Check not_empty();
/// A flag's own value ("--flag=no", or that of its environment variable): true, false, yes, no, on, off, 1 or 0.
Check yes_or_no();
/// Valid UTF-8; the message names the first byte that is not.
Check utf8_text();

/// Where and what the first byte is that is not UTF-8 ("line 3, byte 7 (0xe9)", lines and bytes from 1); empty for
/// valid text. The line is left out when the text has only one.
std::string first_invalid_byte(const std::string& text);
/// What to do about text that is not UTF-8.
inline constexpr const char* kUtf8Fix = "convert it, for example with: iconv -f LATIN1 -t UTF-8";

}  // namespace cohort::cli
