#include "text/template/format_number.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/operations.h"
#include "text/template/text_tools.h"
#include "text/template/unicode.h"

namespace cohort::jinja {

std::string float_digits(Runtime& runtime, double magnitude, char type, Int precision, bool alternate) {
  bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(magnitude)) {
    std::string name = std::isnan(magnitude) ? "nan" : "inf";
    return upper ? to_upper(name) : name;
  }
  constexpr Int kMaxPrecision = 100'000;
  if (precision > kMaxPrecision) refuse("a precision of {} is too large", integer_text(precision));
  runtime.spend_bytes(static_cast<size_t>(precision) * 64);
  const char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  int size = std::snprintf(nullptr, 0, format, static_cast<int>(precision), magnitude);
  std::string digits(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format, static_cast<int>(precision), magnitude);
  digits.pop_back();
  return digits;
}

std::string_view sign_of(bool negative, char option) {
  if (negative) return "-";
  return option == '+' ? "+" : option == ' ' ? " " : "";
}

std::string character_of(const Value& value) {
  if (value.is_string() && value.as<StringObject>().length == 1) return text_of(value);
  if (!value.is_integral()) refuse("%c requires int or char");
  Int code = value.integer();
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("%c arg not in range(0x110000)");
  std::string text;
  append_utf8(text, static_cast<char32_t>(code));
  return text;
}

std::string aligned(Runtime& runtime, std::string_view sign, std::string_view text, Int width, char align,
                    std::string_view fill) {
  Int missing = width - static_cast<Int>(count_code_points(sign) + count_code_points(text));
  if (missing <= 0) return std::string(sign) + std::string(text);
  if (align == '=') return std::string(sign) + padded(runtime, text, missing, 0, fill);
  Int left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  return padded(runtime, std::string(sign) + std::string(text), left, missing - left, fill);
}

std::string ascii_repr(Runtime& runtime, const Value& value) {
  Text shown(runtime);
  append_repr(shown, value);
  std::string text = shown.take(), escaped;
  for (size_t position = 0; position < text.size();) {
    char32_t c = decode(text, position);
    if (c < 0x80) {
      escaped += static_cast<char>(c);
    } else {
      escaped += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
                 : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                               : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return escaped;
}

std::string_view first_code_points(std::string_view text, Int count) {
  auto wanted = static_cast<size_t>(std::clamp<Int>(count, 0, static_cast<Int>(text.size())));
  return text.substr(0, byte_offset(text, wanted));
}

}  // namespace cohort::jinja
