#include "text/tokenizer/regex_charset.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "text/tokenizer/unicode_additions.h"

namespace cohort::text {
namespace {

// White_Space, spelled out: PCRE2's own \s also has U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kBlank = R"(\x{9}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
// Alphabetic characters that are neither letters, marks nor numbers: circled and squared letters.
constexpr std::string_view kEnclosed = R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// Oniguruma's \w takes these numbers of Latin-1 (superscripts and fractions), and no other numbers of category No.
constexpr std::string_view kLatin1Numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

bool in_category(const UnicodeAddition& addition, std::string_view category) {
  return category.size() == 1 ? addition.category[0] == category[0] : category == addition.category;
}

/// \p{category} and, if asked for, the later additions to it.
std::string category_items(std::string_view category, bool additions) {
  std::string items = fmt::format("\\p{{{}}}", category);
  if (!additions) {
    return items;
  }
  for (size_t i = 0; i < kUnicodeAdditions.size(); ++i) {
    if (!in_category(kUnicodeAdditions[i], category)) {
      continue;
    }
    const char32_t first = kUnicodeAdditions[i].first;
    while (i + 1 < kUnicodeAdditions.size() && in_category(kUnicodeAdditions[i + 1], category) &&
           kUnicodeAdditions[i + 1].first == kUnicodeAdditions[i].last + 1) {
      ++i;
    }
    items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(first),
                         static_cast<uint32_t>(kUnicodeAdditions[i].last));
  }
  return items;
}

std::string categories(std::initializer_list<std::string_view> names, bool additions) {
  std::string items;
  for (const auto name : names) {
    items += category_items(name, additions);
  }
  return items;
}

std::string word_items(bool additions) {
  return categories({"L", "M", "Nd", "Nl", "Pc"}, additions) + std::string(kEnclosed);
}

std::string alphabetic_items(bool additions) {
  return additions ? R"(\p{Alphabetic})" + category_items("L", true) : R"(\p{Alphabetic})";
}

/// Property names compare without case, spaces, hyphens and underscores.
std::string folded_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') {
      out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  }
  return out;
}

constexpr std::pair<std::string_view, std::string_view> kCategoryNames[] = {{"letter", "L"},
                                                                            {"mark", "M"},
                                                                            {"number", "N"},
                                                                            {"punctuation", "P"},
                                                                            {"symbol", "S"},
                                                                            {"separator", "Z"},
                                                                            {"other", "C"},
                                                                            {"uppercaseletter", "Lu"},
                                                                            {"lowercaseletter", "Ll"},
                                                                            {"titlecaseletter", "Lt"},
                                                                            {"modifierletter", "Lm"},
                                                                            {"otherletter", "Lo"},
                                                                            {"nonspacingmark", "Mn"},
                                                                            {"spacingmark", "Mc"},
                                                                            {"enclosingmark", "Me"},
                                                                            {"decimalnumber", "Nd"},
                                                                            {"letternumber", "Nl"},
                                                                            {"othernumber", "No"},
                                                                            {"connectorpunctuation", "Pc"},
                                                                            {"dashpunctuation", "Pd"},
                                                                            {"openpunctuation", "Ps"},
                                                                            {"closepunctuation", "Pe"},
                                                                            {"initialpunctuation", "Pi"},
                                                                            {"finalpunctuation", "Pf"},
                                                                            {"otherpunctuation", "Po"},
                                                                            {"mathsymbol", "Sm"},
                                                                            {"currencysymbol", "Sc"},
                                                                            {"modifiersymbol", "Sk"},
                                                                            {"othersymbol", "So"},
                                                                            {"spaceseparator", "Zs"},
                                                                            {"lineseparator", "Zl"},
                                                                            {"paragraphseparator", "Zp"},
                                                                            {"control", "Cc"},
                                                                            {"format", "Cf"},
                                                                            {"unassigned", "Cn"},
                                                                            {"privateuse", "Co"},
                                                                            {"surrogate", "Cs"},
                                                                            {"l", "L"},
                                                                            {"m", "M"},
                                                                            {"n", "N"},
                                                                            {"p", "P"},
                                                                            {"s", "S"},
                                                                            {"z", "Z"},
                                                                            {"c", "C"},
                                                                            {"lu", "Lu"},
                                                                            {"ll", "Ll"},
                                                                            {"lt", "Lt"},
                                                                            {"lm", "Lm"},
                                                                            {"lo", "Lo"},
                                                                            {"mn", "Mn"},
                                                                            {"mc", "Mc"},
                                                                            {"me", "Me"},
                                                                            {"nd", "Nd"},
                                                                            {"nl", "Nl"},
                                                                            {"no", "No"},
                                                                            {"pc", "Pc"},
                                                                            {"pd", "Pd"},
                                                                            {"ps", "Ps"},
                                                                            {"pe", "Pe"},
                                                                            {"pi", "Pi"},
                                                                            {"pf", "Pf"},
                                                                            {"po", "Po"},
                                                                            {"sm", "Sm"},
                                                                            {"sc", "Sc"},
                                                                            {"sk", "Sk"},
                                                                            {"so", "So"},
                                                                            {"zs", "Zs"},
                                                                            {"zl", "Zl"},
                                                                            {"zp", "Zp"},
                                                                            {"cc", "Cc"},
                                                                            {"cf", "Cf"},
                                                                            {"cn", "Cn"},
                                                                            {"co", "Co"},
                                                                            {"cs", "Cs"}};

// Scripts, which need PCRE2's "sc:" because \p{Han} alone would mean script extensions there. `added` holds the
// characters of the script that are newer than Unicode 14.
struct Script {
  std::string_view name, added;
};
constexpr Script kScripts[] = {
    {"arabic", R"(\x{897}\x{10ec2}-\x{10ec4}\x{10efc}-\x{10eff})"},
    {"cyrillic", R"(\x{1c89}\x{1c8a}\x{1e030}-\x{1e06d}\x{1e08f})"},
    {"devanagari", R"(\x{11b00}-\x{11b09})"},
    {"han", R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"hiragana", R"(\x{1b132})"},
    {"kannada", R"(\x{cf3})"},
    {"katakana", R"(\x{1b155})"},
    {"lao", R"(\x{ece})"},
    {"latin", R"(\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{1df25}-\x{1df2a})"},
    {"myanmar", R"(\x{116d0}-\x{116e3})"},
    {"armenian", ""},
    {"bengali", ""},
    {"bopomofo", ""},
    {"common", ""},
    {"ethiopic", ""},
    {"georgian", ""},
    {"greek", ""},
    {"gujarati", ""},
    {"gurmukhi", ""},
    {"hangul", ""},
    {"hebrew", ""},
    {"inherited", ""},
    {"khmer", ""},
    {"malayalam", ""},
    {"mongolian", ""},
    {"oriya", ""},
    {"sinhala", ""},
    {"tamil", ""},
    {"telugu", ""},
    {"thai", ""},
    {"tibetan", ""},
    {"yi", ""},
};

CharSet flat(std::string items, bool negated = false) {
  CharSet set;
  set.items = std::move(items);
  set.negated = negated;
  return set;
}

}  // namespace

void CharSet::add(CharSet other) {
  if (!other.negated && other.alternatives.empty() && other.intersection.empty()) {
    items += other.items;
  } else {
    alternatives.push_back(std::move(other));
  }
}

std::string CharSet::atom() const {
  if (alternatives.empty() && intersection.empty()) {
    if (items.empty()) {  // an empty set, or its complement
      return negated ? "(?s:.)" : "(?!)";
    }
    return fmt::format("[{}{}]", negated ? "^" : "", items);
  }
  std::string out;
  if (!intersection.empty()) {
    for (size_t i = 0; i + 1 < intersection.size(); ++i) {
      out.append("(?=").append(intersection[i].atom()).append(")");
    }
    out.append(intersection.back().atom());
  } else {
    for (const CharSet& alternative : alternatives) {
      out.append(out.empty() ? "" : "|").append(alternative.atom());
    }
    if (!items.empty()) {
      out.append("|[").append(items).append("]");
    }
  }
  return negated ? fmt::format("(?:(?!{})(?s:.))", out) : fmt::format("(?:{})", out);
}

std::optional<CharSet> escape_set(char letter, bool additions) {
  switch (letter) {
    case 's':
    case 'S':
      return flat(std::string(kWhiteSpace), letter == 'S');
    case 'w':
    case 'W':
      return flat(word_items(additions) + std::string(kLatin1Numbers), letter == 'W');
    case 'd':
    case 'D':
      return flat(category_items("Nd", additions), letter == 'D');
    case 'h':
    case 'H':
      return flat(std::string(kHexDigits), letter == 'H');
    default:
      return std::nullopt;
  }
}

CharSet property_set(std::string_view name, bool posix, bool additions) {
  bool negated = false;
  if (!name.empty() && name.front() == '^') {
    negated = true;
    name.remove_prefix(1);
  }
  const std::string folded = folded_name(name);
  const auto is = [&](std::string_view other) { return folded == other; };
  for (const auto& [long_name, category] : kCategoryNames) {
    if (!posix && is(long_name)) {
      return flat(category_items(category, additions), negated);
    }
  }
  if (is("alpha") || is("alphabetic")) {
    return flat(alphabetic_items(additions), negated);
  }
  if (is("alnum")) {
    return flat(alphabetic_items(additions).append(categories({"Nd"}, additions)), negated);
  }
  if (is("upper") || is("uppercase")) {
    return flat(additions ? R"(\p{Uppercase})" + category_items("Lu", true) : R"(\p{Uppercase})", negated);
  }
  if (is("lower") || is("lowercase")) {
    return flat(additions ? R"(\p{Lowercase})" + category_items("Ll", true) : R"(\p{Lowercase})", negated);
  }
  if (is("digit")) {
    return flat(category_items("Nd", additions), negated);
  }
  if (is("space") || is("whitespace")) {
    return flat(std::string(kWhiteSpace), negated);
  }
  if (is("blank")) {
    return flat(std::string(kBlank), negated);
  }
  if (is("punct")) {  // the property is P; the bracket has the symbols as well
    return flat(posix ? categories({"P", "S"}, additions) : categories({"P"}, additions), negated);
  }
  if (is("cntrl")) {
    return flat(R"(\p{Cc})", negated);
  }
  if (is("xdigit")) {
    return flat(std::string(kHexDigits), negated);
  }
  if (is("word")) {
    return flat(word_items(additions), negated);
  }
  if (is("ascii")) {
    return flat(R"(\x{0}-\x{7f})", negated);
  }
  if (is("any")) {
    return flat(R"(\x{0}-\x{10ffff})", negated);
  }
  for (const auto& script : kScripts) {
    if (is(script.name)) {
      return flat(fmt::format("\\p{{sc:{}}}{}", script.name, additions ? script.added : ""), negated);
    }
  }
  return flat(fmt::format("\\p{{{}}}", folded), negated);
}

}  // namespace cohort::text
