#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/tokenizer/unicode_additions.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

/// Of a character that utf8proc does not know yet (unicode_additions.h): "Lo", say; otherwise empty.
std::string_view added_category(char32_t c) {
  const auto after = std::upper_bound(kUnicodeAdditions.begin(), kUnicodeAdditions.end(), c,
                                      [](char32_t value, const UnicodeAddition& item) { return value < item.first; });
  const bool found = after != kUnicodeAdditions.begin() && c <= std::prev(after)->last;
  return found ? std::prev(after)->category : std::string_view();
}

// Punctuation that is younger than Unicode 8, which is all that the `tokenizers` package knows of punctuation.
struct Range {
  char32_t first, last;
};
// clang-format off
constexpr Range kNewPunctuation[] = {
    {0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77}, {0xC84, 0xC84}, {0x1B4E, 0x1B4F},
    {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F}, {0x2E52, 0x2E5D}, {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09},
    {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2},
    {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};
// clang-format on

bool in_range(char32_t c, char32_t low, char32_t high) {
  return c >= low && c <= high;
}

utf8proc_option_t decompose_options(NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
}

/// Puts runs of combining marks into canonical order. utf8proc's own pass is quadratic in the length of a run, which a
/// prompt controls; a stable sort by class gives the same order.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto marks = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < characters.size();) {
    if (marks(characters[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < characters.size() && marks(characters[end]) != 0) {
      ++end;
    }
    std::stable_sort(characters.begin() + static_cast<ptrdiff_t>(i), characters.begin() + static_cast<ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return marks(a) < marks(b); });
    i = end;
  }
}

void append_normalized_run(std::string& out, std::string_view text, NormalForm form) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  const utf8proc_option_t options = decompose_options(form);
  for (size_t i = 0; i < text.size();) {
    uint32_t size = 0;
    const auto c = static_cast<utf8proc_int32_t>(decode_valid_utf8(text.data() + i, size));
    i += size;
    utf8proc_int32_t buffer[32];  // the longest compatibility decomposition has 18 characters (U+FDFA)
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(c, buffer, 32, options, &boundary);
    if (count > 0 && count <= 32) {
      characters.insert(characters.end(), buffer, buffer + count);
    } else {
      characters.push_back(c);
    }
  }
  order_marks(characters);
  auto size = static_cast<utf8proc_ssize_t>(characters.size());
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    size = utf8proc_normalize_utf32(characters.data(), size,
                                    static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    append_utf8(out, static_cast<char32_t>(characters[static_cast<size_t>(i)]));
  }
}

}  // namespace

bool is_white_space(char32_t c) {
  return in_range(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || in_range(c, 0x2000, 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  const auto value = category(c);
  return value == UTF8PROC_CATEGORY_ND || value == UTF8PROC_CATEGORY_NL || value == UTF8PROC_CATEGORY_NO ||
         (value == UTF8PROC_CATEGORY_CN && added_category(c).substr(0, 1) == "N");
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return in_range(c, 0x21, 0x2F) || in_range(c, 0x3A, 0x40) || in_range(c, 0x5B, 0x60) || in_range(c, 0x7B, 0x7E);
  }
  if (c == 0x166D || c == 0x111C9) {  // were punctuation then
    return true;
  }
  const auto value = category(c);
  return value >= UTF8PROC_CATEGORY_PC && value <= UTF8PROC_CATEGORY_PO &&
         std::none_of(std::begin(kNewPunctuation), std::end(kNewPunctuation),
                      [&](const Range& range) { return in_range(c, range.first, range.last); });
}

bool is_mark(char32_t c) {
  const auto value = category(c);
  return value == UTF8PROC_CATEGORY_MN || value == UTF8PROC_CATEGORY_MC || value == UTF8PROC_CATEGORY_ME ||
         (value == UTF8PROC_CATEGORY_CN && added_category(c).substr(0, 1) == "M");
}

bool is_word(char32_t c) {
  const auto value = category(c);
  const bool letter = value >= UTF8PROC_CATEGORY_LU && value <= UTF8PROC_CATEGORY_LO;
  // Of Alphabetic, only the circled and squared letters are neither letters, marks nor letter numbers.
  const bool enclosed = in_range(c, 0x24B6, 0x24E9) || in_range(c, 0x1F130, 0x1F149) || in_range(c, 0x1F150, 0x1F169) ||
                        in_range(c, 0x1F170, 0x1F189);
  if (value == UTF8PROC_CATEGORY_CN) {
    const std::string_view added = added_category(c);
    return !added.empty() && (added[0] == 'L' || added[0] == 'M' || added == "Nd" || added == "Nl" || added == "Pc");
  }
  return letter || enclosed || is_mark(c) || value == UTF8PROC_CATEGORY_ND || value == UTF8PROC_CATEGORY_NL ||
         value == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D;
}

void append_normalized(std::string& out, std::string_view text, NormalForm form) {
  // ASCII is its own normal form and never joins a preceding character: only an ASCII character that stands before
  // others can change, so each run is one such character and the non-ASCII ones behind it.
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    if (is_ascii(i)) {
      ++i;
      continue;
    }
    const size_t start = i > done ? i - 1 : i;
    while (i < text.size() && !is_ascii(i)) {
      ++i;
    }
    out.append(text.substr(done, start - done));
    append_normalized_run(out, text.substr(start, i - start), form);
    done = i;
  }
  out.append(text.substr(done));
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one unconditional mapping to two characters: i and a combining dot
    out.append("i\xCC\x87");
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace cohort::text
