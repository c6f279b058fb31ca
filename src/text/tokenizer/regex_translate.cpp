#include "text/tokenizer/regex_translate.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/regex_charset.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

constexpr int kMaxNesting = 64;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// A literal character, written so that PCRE2 takes it literally inside and outside of brackets.
std::string literal(char32_t c) {
  if (c < 0x80 && (is_digit(static_cast<char>(c)) || is_letter(static_cast<char>(c)))) {
    return std::string(1, static_cast<char>(c));
  }
  return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c));
}

class Translator {
 public:
  Translator(std::string_view pattern, bool additions) : pattern_(pattern), additions_(additions) {}

  Expected<std::string> run() {
    std::string out;
    COHORT_TRY(alternatives(out, false, 0));
    if (!done()) {
      return error("')' without '('");
    }
    return out;
  }

 private:
  bool done() const { return position_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const { return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0'; }
  bool at(std::string_view text) const { return pattern_.substr(position_, text.size()) == text; }
  bool take(std::string_view text) {
    if (!at(text)) {
      return false;
    }
    position_ += text.size();
    return true;
  }

  tl::unexpected<Error> error(std::string_view what) const {
    return fail(ErrorCode::unsupported, "regular expression: {} at byte {} of \"{}\"", what, position_,
                repair_utf8(pattern_.substr(0, 200)));
  }

  /// The next character of the pattern, which is valid UTF-8.
  Expected<char32_t> character() {
    const Utf8Char c = decode_utf8(pattern_.substr(position_));
    if (!c.valid) {
      return error("invalid UTF-8");
    }
    position_ += c.size;
    return c.value;
  }

  /// Up to the end of the group. `extended` is the state of (?x), which is resolved here.
  Expected<void> alternatives(std::string& out, bool extended, int depth) {
    if (depth > kMaxNesting) {
      return error("groups nested too deeply");
    }
    size_t atom = std::string::npos;  // where the last quantifiable atom starts in `out`
    bool quantified = false;
    while (!done() && peek() != ')') {
      if (extended && (peek() == ' ' || (peek() >= '\t' && peek() <= '\r'))) {
        ++position_;
        continue;
      }
      if (extended && peek() == '#') {
        const size_t end = pattern_.find('\n', position_);
        position_ = end == std::string_view::npos ? pattern_.size() : end + 1;
        continue;
      }
      if (take("|")) {
        out += '|';
        atom = std::string::npos;
        continue;
      }
      if (is_quantifier()) {
        if (atom == std::string::npos) {
          return error("a quantifier without anything to repeat");
        }
        COHORT_TRY(quantifier(out, atom, quantified));
        quantified = true;
        continue;
      }
      const size_t start = out.size();
      bool repeatable = true;
      COHORT_TRY(element(out, extended, depth, repeatable));
      atom = repeatable ? start : std::string::npos;
      quantified = false;
    }
    return {};
  }

  Expected<void> element(std::string& out, bool extended, int depth, bool& repeatable) {
    switch (peek()) {
      case '(':
        return group(out, extended, depth, repeatable);
      case '[': {
        COHORT_ASSIGN(const CharSet set, bracket(0));
        out += set.atom();
        return {};
      }
      case '\\':
        return escape(out);
      case '.':
        ++position_;
        out += '.';
        return {};
      case '^':  // the anchors are always those of lines
        ++position_;
        out += "(?m:^)";
        return {};
      case '$':
        ++position_;
        out += "(?m:$)";
        return {};
      default: {
        COHORT_ASSIGN(const char32_t c, character());
        out += literal(c);
        return {};
      }
    }
  }

  Expected<void> close(std::string& out) {
    if (!take(")")) {
      return error("'(' without ')'");
    }
    out += ')';
    return {};
  }

  Expected<void> group(std::string& out, bool extended, int depth, bool& repeatable) {
    if (take("(?#")) {
      const size_t end = pattern_.find(')', position_);
      if (end == std::string_view::npos) {
        return error("a comment without ')'");
      }
      position_ = end + 1;
      repeatable = false;
      return {};
    }
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (take(opening)) {
        out += opening;
        COHORT_TRY(alternatives(out, extended, depth + 1));
        return close(out);
      }
    }
    if (at("(?<")) {  // a named group: its name is of no use here, but \k<name> may refer to it
      const size_t end = pattern_.find('>', position_);
      if (end == std::string_view::npos) {
        return error("a group name without '>'");
      }
      out += pattern_.substr(position_, end + 1 - position_);
      position_ = end + 1;
    } else if (take("(?")) {
      return options(out, extended, depth, repeatable);
    } else {
      ++position_;
      out += '(';
    }
    COHORT_TRY(alternatives(out, extended, depth + 1));
    return close(out);
  }

  /// (?imx-imx:...) and (?imx-imx)..., whose m is PCRE2's s, and whose second form ends with the group, alternatives
  /// included.
  Expected<void> options(std::string& out, bool extended, int depth, bool& repeatable) {
    std::string translated = "(?";
    bool on = true;
    bool inner_extended = extended;
    while (!done() && peek() != ':' && peek() != ')') {
      const char c = pattern_[position_++];
      if (c == '-' && on) {
        on = false;
        translated += '-';
      } else if (c == 'i') {
        translated += 'i';
      } else if (c == 'm') {
        translated += 's';
      } else if (c == 'x') {
        inner_extended = on;
      } else {
        --position_;
        return error("an unknown group option");
      }
    }
    if (done()) {
      return error("'(' without ')'");
    }
    if (translated.back() == '-') {
      translated.pop_back();
    }
    out.append(translated).append(":");
    const bool enclosing = pattern_[position_++] == ')';
    COHORT_TRY(alternatives(out, inner_extended, depth + 1));
    if (enclosing) {
      out += ')';  // the ')' of the surrounding group stays for it
      repeatable = false;
      return {};
    }
    return close(out);
  }

  struct Interval {
    size_t size = 0;  // bytes in the pattern
    std::string text;
    bool fixed = false;
  };

  /// {n}, {n,}, {n,m} or {,m} at the current position.
  std::optional<Interval> interval() const {
    if (peek() != '{') {
      return std::nullopt;
    }
    size_t i = position_ + 1;
    std::string low, high;
    bool comma = false;
    for (; i < pattern_.size() && pattern_[i] != '}'; ++i) {
      if (pattern_[i] == ',' && !comma) {
        comma = true;
      } else if (is_digit(pattern_[i])) {
        (comma ? high : low) += pattern_[i];
      } else {
        return std::nullopt;
      }
    }
    if (i == pattern_.size() || (low.empty() && high.empty())) {
      return std::nullopt;
    }
    Interval result;
    result.size = i + 1 - position_;
    result.text = fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    result.fixed = !comma;
    return result;
  }

  bool is_quantifier() const {
    const char c = peek();
    return c == '*' || c == '+' || c == '?' || interval().has_value();
  }

  Expected<void> quantifier(std::string& out, size_t atom, bool quantified) {
    if (quantified) {
      out.insert(atom, "(?:");
      out += ')';
    }
    if (const auto braces = interval()) {
      position_ += braces->size;
      out += braces->text;
      if (peek() == '?') {
        if (braces->fixed) {
          return error("'?' after {n}");
        }
        ++position_;
        out += '?';
      }
      return {};  // a '+' that follows is one more quantifier, not a possessive mark
    }
    out += pattern_[position_++];
    if (peek() == '?' || peek() == '+') {
      out += pattern_[position_++];
    }
    return {};
  }

  /// \p{name}, \P{name}, after the backslash.
  Expected<CharSet> property() {
    const bool negated = peek() == 'P';
    ++position_;
    const size_t end = pattern_.find('}', position_);
    if (peek() != '{' || end == std::string_view::npos) {
      return error("\\p without {name}");
    }
    const std::string_view name = pattern_.substr(position_ + 1, end - position_ - 1);
    for (const char c : name) {
      if (!is_letter(c) && !is_digit(c) && c != '_' && c != '-' && c != ' ' && c != '^') {
        return error("an unknown property name");
      }
    }
    position_ = end + 1;
    CharSet set = property_set(name, false, additions_);
    set.negated = set.negated != negated;
    return set;
  }

  /// The code of an escape that stands for one character, after the backslash; nothing for other escapes.
  Expected<std::optional<char32_t>> escaped_character() {
    const char c = peek();
    switch (c) {
      case 't':
        ++position_;
        return U'\t';
      case 'n':
        ++position_;
        return U'\n';
      case 'r':
        ++position_;
        return U'\r';
      case 'f':
        ++position_;
        return U'\f';
      case 'v':
        ++position_;
        return U'\v';
      case 'a':
        ++position_;
        return U'\a';
      case 'e':
        ++position_;
        return char32_t{0x1B};
      case 'x':
      case 'u':
        return hexadecimal();
      default:
        break;
    }
    if (c == '0') {
      char32_t value = 0;
      for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i) {
        value = value * 8 + static_cast<char32_t>(pattern_[position_++] - '0');
      }
      return value;
    }
    return std::nullopt;
  }

  Expected<std::optional<char32_t>> hexadecimal() {
    const bool unicode = pattern_[position_++] == 'u';
    const bool braces = !unicode && take("{");
    const size_t limit = braces ? 8 : unicode ? 4 : 2;
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < limit && is_hex(peek()); ++digits) {
      const char c = pattern_[position_++];
      value = value * 16 + static_cast<uint64_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (digits == 0 || (unicode && digits < 4) || (braces && !take("}")) || value > 0x10FFFF ||
        (value >= 0xD800 && value <= 0xDFFF)) {
      return error("an invalid character code");
    }
    return static_cast<char32_t>(value);
  }

  Expected<void> escape(std::string& out) {
    ++position_;
    if (done()) {
      return error("'\\' at the end");
    }
    const char c = peek();
    if (c == 'p' || c == 'P') {
      COHORT_ASSIGN(const CharSet set, property());
      out += set.atom();
      return {};
    }
    if (const auto set = escape_set(c, additions_)) {
      ++position_;
      out += set->atom();
      return {};
    }
    COHORT_ASSIGN(const std::optional<char32_t> code, escaped_character());
    if (code) {
      out += literal(*code);
      return {};
    }
    ++position_;
    const std::string word = escape_set('w', additions_)->atom();
    switch (c) {
      case 'b':
        out += fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
        return {};
      case 'B':
        out += fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        return {};
      case 'N':
        out += "[^\\n]";
        return {};
      case 'O':
        out += "(?s:.)";
        return {};
      case 'R':
      case 'X':
      case 'A':
      case 'Z':
      case 'z':
        out += fmt::format("\\{}", c);
        return {};
      case 'G':
      case 'k':
      case 'g':
      case 'K':
      case 'y':
      case 'Y':
      case 'c':
      case 'C':
      case 'M':
        return error(fmt::format("the escape \\{}", c));
      default:
        break;
    }
    if (is_digit(c)) {
      return error("a back reference");
    }
    --position_;
    COHORT_ASSIGN(const char32_t other, character());
    out += literal(other);
    return {};
  }

  /// One end of a range, or a set: what stands next in a bracket class.
  struct BracketItem {
    std::optional<char32_t> character;
    CharSet set;
  };

  Expected<BracketItem> bracket_item(int depth) {
    BracketItem item;
    if (take("[:")) {
      const size_t end = pattern_.find(":]", position_);
      if (end == std::string_view::npos) {
        return error("'[:' without ':]'");
      }
      for (const char c : pattern_.substr(position_, end - position_)) {
        if (!is_letter(c) && c != '^') {
          return error("an unknown bracket class");
        }
      }
      item.set = property_set(pattern_.substr(position_, end - position_), true, additions_);
      position_ = end + 2;
      return item;
    }
    if (peek() == '[') {
      COHORT_ASSIGN(item.set, bracket(depth + 1));
      return item;
    }
    if (peek() != '\\') {
      COHORT_ASSIGN(item.character, character());
      return item;
    }
    ++position_;
    const char c = peek();
    if (c == 'p' || c == 'P') {
      COHORT_ASSIGN(item.set, property());
      return item;
    }
    if (auto set = escape_set(c, additions_)) {
      ++position_;
      item.set = std::move(*set);
      return item;
    }
    if (c == 'b') {
      ++position_;
      item.character = char32_t{8};
      return item;
    }
    COHORT_ASSIGN(item.character, escaped_character());
    if (!item.character) {
      if (is_digit(c)) {
        return error("an octal escape in a class");
      }
      COHORT_ASSIGN(item.character, character());
    }
    return item;
  }

  Expected<CharSet> bracket(int depth) {
    if (depth > kMaxNesting) {
      return error("classes nested too deeply");
    }
    ++position_;  // the '['
    const bool negated = take("^");
    CharSet current;
    std::vector<CharSet> operands;
    bool first = true;
    while (true) {
      if (done()) {
        return error("'[' without ']'");
      }
      if (!first && take("]")) {
        break;
      }
      if (!first && take("&&")) {
        operands.push_back(std::exchange(current, {}));
        continue;
      }
      first = false;
      COHORT_ASSIGN(BracketItem item, bracket_item(depth));
      if (!item.character) {
        current.add(std::move(item.set));
        continue;
      }
      std::string text = literal(*item.character);
      if (peek() == '-' && peek(1) != ']' && peek(1) != '\0' && !(peek(1) == '[') &&
          pattern_.substr(position_, 3) != "-&&") {
        ++position_;
        COHORT_ASSIGN(const BracketItem last, bracket_item(depth));
        if (!last.character || *last.character < *item.character) {
          return error("an invalid range");
        }
        text.append("-").append(literal(*last.character));
      }
      CharSet one;
      one.items = std::move(text);
      current.add(std::move(one));
    }
    if (operands.empty()) {
      if (!current.negated && current.alternatives.empty()) {
        current.negated = negated;
        return current;
      }
      CharSet outer;
      outer.alternatives.push_back(std::move(current));
      outer.negated = negated;
      return outer;
    }
    operands.push_back(std::move(current));
    CharSet result;
    result.intersection = std::move(operands);
    result.negated = negated;
    return result;
  }

  std::string_view pattern_;
  bool additions_;
  size_t position_ = 0;
};

}  // namespace

Expected<std::string> translate_oniguruma(std::string_view pattern, bool additions) {
  return Translator(pattern, additions).run();
}

}  // namespace cohort::text
