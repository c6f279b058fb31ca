#include "cli/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/memory.h"
#include "base/printable.h"
#include "text/tokenizer/utf8.h"

namespace cohort::cli {
namespace {

constexpr size_t kShownBytes = 80;  // of a value in a message

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Check whole_number(int64_t low, int64_t high) {
  return [low, high](const std::string& text) -> std::string {
    int64_t value = 0;
    // The parser of flags would read "010" as eight.
    const bool octal = text.size() > 1 && text[text.starts_with('-') ? 1 : 0] == '0';
    if (!octal && parse(text, value) && value >= low && value <= high) return {};
    return fmt::format("'{}' is no whole number from {} to {}", printable(text, kShownBytes), low, high);
  };
}

Check number(double low, double high) {
  return [low, high](const std::string& text) -> std::string {
    double value = 0;
    // Infinity compares as outside, a NaN as nothing.
    if (parse(text, value) && value >= low && value <= high) return {};
    return fmt::format("'{}' is no number from {} to {}", printable(text, kShownBytes), low, high);
  };
}

Check one_of(std::vector<std::string> names) {
  return [names = std::move(names)](const std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) return {};
    return fmt::format("'{}' is none of {}", printable(text, kShownBytes), fmt::join(names, ", "));
  };
}

Check byte_size() {
  return [](const std::string& text) -> std::string {
    if (parse_bytes(text)) return {};
    return fmt::format(
        "'{}' is no size; expected bytes, or for example 800M, 24G or 1.5GB (G and GiB are 2^30 bytes, "
        "GB are 10^9)",
        printable(text, kShownBytes));
  };
}

Check device_name() {
  return [](const std::string& text) -> std::string {
    if (text == "auto" || text == "cpu" || text == "cuda") return {};
    int32_t device = 0;
    if (text.starts_with("cuda:") && parse(std::string_view(text).substr(5), device) && device >= 0) return {};
    return fmt::format("'{}' is none of auto, cpu, cuda, cuda:N", printable(text, kShownBytes));
  };
}

Check file_or(std::vector<std::string_view> names) {
  return [names = std::move(names)](const std::string& text) -> std::string {
    std::error_code error;
    if (std::find(names.begin(), names.end(), text) != names.end() || std::filesystem::exists(text, error)) return {};
    return fmt::format("'{}' is neither a file nor one of {}", printable(text, kShownBytes), fmt::join(names, ", "));
  };
}

Check not_empty() {
  return [](const std::string& text) -> std::string {
    return text.empty() ? "the value is empty; give it at least one character" : "";
  };
}

Check yes_or_no() {
  return [](const std::string& text) -> std::string {
    constexpr std::array<std::string_view, 8> kValues{"true", "false", "yes", "no", "on", "off", "1", "0"};
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
    const auto same = [&](std::string_view value) { return std::ranges::equal(text, value, {}, lower); };
    if (std::ranges::any_of(kValues, same)) return {};
    return fmt::format("'{}' is none of {}", printable(text, kShownBytes), fmt::join(kValues, ", "));
  };
}

std::string first_invalid_byte(const std::string& text) {
  size_t line = 1, line_start = 0;
  for (size_t i = 0; i < text.size();) {
    const text::Utf8Char character = text::decode_utf8(std::string_view(text).substr(i));
    if (!character.valid) {
      const bool lines = text.find('\n') != std::string::npos;
      return fmt::format("{}byte {} (0x{:02x})", lines ? fmt::format("line {}, ", line) : "", i - line_start + 1,
                         static_cast<unsigned char>(text[i]));
    }
    if (text[i] == '\n') {
      ++line;
      line_start = i + 1;
    }
    i += character.size;
  }
  return {};
}

Check utf8_text() {
  return [](const std::string& text) -> std::string {
    const std::string where = first_invalid_byte(text);
    if (where.empty()) return {};
    return fmt::format("'{}' is not UTF-8: {} belongs to no character; {}", printable(text, kShownBytes), where,
                       kUtf8Fix);
  };
}

}  // namespace cohort::cli
