#include "text/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "text/template/unicode_tables.h"

namespace cohort::jinja {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3;

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool contains(std::span<const CodePointRange> ranges, char32_t c) {
  auto at = std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t v, const auto& r) { return v < r.first; });
  return at != ranges.begin() && c <= std::prev(at)->last;
}

const CaseException* find(std::span<const CaseException> table, char32_t c) {
  auto at = std::lower_bound(table.begin(), table.end(), c, [](const auto& e, char32_t v) { return e.code_point < v; });
  return at != table.end() && at->code_point == c ? &*at : nullptr;
}

bool is_cased(char32_t c) {
  return is_uppercase(c) || is_lowercase(c) || is_titlecase(c);
}

/// Characters that the final-sigma rule looks through (Unicode's Case_Ignorable).
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr char32_t kMidLetters[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                      0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kMidLetters), std::end(kMidLetters), c) != std::end(kMidLetters);
}

/// Whether the capital sigma in text[begin, end) ends a word, so that its small form is U+03C2.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    char32_t c = decode_before(text, begin);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    char32_t c = decode(text, end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_upper(std::string& out, char32_t c) {
  if (const CaseException* e = find(upper_exceptions(), c)) {
    out += e->text;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const CaseException* e = find(title_exceptions(), c)) {
    out += e->text;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

/// Appends the small form of the character in text[begin, end).
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == kCapitalSigma) {
    append_utf8(out, is_final_sigma(text, begin, end) ? kFinalSigma : kSmallSigma);
  } else if (const CaseException* e = find(lower_exceptions(), c)) {
    out += e->text;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

/// Calls visit(code point, first byte, end byte) for each character.
template <class Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (size_t position = 0; position < text.size();) {
    size_t begin = position;
    char32_t c = decode(text, position);
    visit(c, begin, position);
  }
}

}  // namespace

char32_t decode(std::string_view text, size_t& position) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(position);
  size_t begin = position++;
  if (lead < 0x80) return lead;
  size_t extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || begin + extra >= text.size()) return kReplacement;
  char32_t c = lead & (0x3F >> extra);
  for (size_t i = 1; i <= extra; ++i) {
    if (!continues(text[begin + i])) return kReplacement;
    c = c << 6 | (byte(begin + i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  if (c < kSmallest[extra] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return kReplacement;
  position = begin + extra + 1;
  return c;
}

char32_t decode_before(std::string_view text, size_t& position) {
  size_t end = position--;
  while (position > 0 && continues(text[position]) && end - position < 4) --position;
  size_t next = position;
  char32_t c = decode(text, next);
  if (next == end) return c;
  position = end - 1;  // malformed: one byte at a time
  return kReplacement;
}

void append_utf8(std::string& text, char32_t c) {
  auto byte = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) {
    byte(c);
  } else if (c < 0x800) {
    byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F));
  } else {
    byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    size_t begin = position;
    if (decode(text, position) == kReplacement && text.substr(begin, position - begin) != "\xEF\xBF\xBD") return false;
  }
  return true;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t position = 0;
  for (; index > 0 && position < text.size(); --index) {
    ++position;
    while (position < text.size() && continues(text[position])) ++position;
  }
  return position;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || contains(digit_ranges(), c);
}

bool is_numeric(char32_t c) {
  auto kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) || contains(numeric_ranges(), c);
}

bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;  // Zs, Zl, Zp, Cc, Cf, Cs, Co follow
}

bool is_uppercase(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || contains(uppercase_ranges(), c);
}
bool is_lowercase(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || contains(lowercase_ranges(), c);
}
bool is_titlecase(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_identifier_start(char32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  auto kind = category(c);
  return is_identifier_start(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_MN ||
         kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_PC;
}

std::string_view strip_left(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    size_t next = position;
    if (!is_space(decode(text, next))) break;
    position = next;
  }
  return text.substr(position);
}

std::string_view strip_right(std::string_view text) {
  size_t position = text.size();
  while (position > 0) {
    size_t before = position;
    if (!is_space(decode_before(text, before))) break;
    position = before;
  }
  return text.substr(0, position);
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t, size_t) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t begin, size_t end) { append_lower(out, text, begin, end, c); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for_each_code_point(text, [&](char32_t c, size_t begin, size_t end) {
    if (inside_word) {
      append_lower(out, text, begin, end, c);
    } else {
      append_title(out, c);
    }
    inside_word = is_cased(c);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t begin, size_t end) {
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, end, c);
    }
  });
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t begin, size_t end) {
    if (is_uppercase(c)) {
      append_lower(out, text, begin, end, c);
    } else if (is_lowercase(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  });
  return out;
}

std::string to_folded(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                           static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  std::string out(size > 0 ? reinterpret_cast<const char*>(folded) : "", size > 0 ? static_cast<size_t>(size) : 0);
  std::free(folded);
  return out;
}

}  // namespace cohort::jinja
