// Regular expressions of JSON Schema's `pattern`, as grammar expressions over the characters of a JSON string.
#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "text/grammar/json_parts.h"

namespace cohort::grammar {
namespace {

using Id = Grammar::Id;
using Ranges = std::vector<CodeRange>;

constexpr int kMaxDepth = 100;
constexpr int32_t kMaxCount = 100'000;

const Ranges kDigitRanges{{'0', '9'}};
const Ranges kWordRanges{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

/// Characters that \s matches in some dialect: \S is what matches it in none.
Ranges spaces() {
  return normalised({{9, 13},
                     {28, 32},
                     {0x85, 0x85},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000},
                     {0xFEFF, 0xFEFF}});
}

/// Those of `ranges` that are ASCII: dialects differ on what else is a digit or a letter.
Ranges ascii(const Ranges& ranges) {
  Ranges out;
  for (const CodeRange& r : ranges) {
    if (r.first < 0x80) out.emplace_back(r.first, std::min<uint32_t>(r.second, 0x7F));
  }
  return out;
}

class Parser {
 public:
  Parser(Grammar& grammar, JsonParts& parts, std::string_view text) : g_(grammar), parts_(parts), text_(text) {}

  Expected<Id> parse() {
    const Id any = g_.repeat(parts_.any_character(), 0, Grammar::kUnbounded);
    std::vector<Id> choices;
    do {
      std::vector<Id> parts;
      if (take('^')) {
        while (take('^')) {
        }
      } else {
        parts.push_back(any);
      }
      COHORT_TRY(sequence(parts, 0));
      bool anchored = false;
      while (take('$')) anchored = true;
      if (!anchored) parts.push_back(any);
      choices.push_back(g_.sequence(std::move(parts)));
    } while (take('|'));
    if (at_ < text_.size()) return unsupported(fmt::format("'{}'", text_[at_]));
    return g_.choice(std::move(choices));
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  tl::unexpected<Error> unsupported(std::string_view what) const {
    return fail(ErrorCode::unsupported, "byte {}: {} is not supported", at_, what);
  }
  tl::unexpected<Error> wrong(std::string_view what) const {
    return fail(ErrorCode::invalid_argument, "byte {}: {}", at_, what);
  }

  Expected<void> sequence(std::vector<Id>& out, int depth) {
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && peek() != '$') {
      COHORT_ASSIGN(const Id atom, element(depth));
      COHORT_ASSIGN(const Id repeated, quantified(atom));
      out.push_back(repeated);
    }
    return {};
  }

  Expected<Id> element(int depth) {
    if (depth > kMaxDepth) return wrong("groups are nested too deep");
    if (take('(')) {
      if (take('?') && !take(':')) return unsupported("a group that begins with '(?' other than '(?:'");
      std::vector<Id> choices;
      do {
        std::vector<Id> parts;
        COHORT_TRY(sequence(parts, depth + 1));
        choices.push_back(g_.sequence(std::move(parts)));
      } while (take('|'));
      if (peek() == '$') return unsupported("'$' inside of a group");
      if (!take(')')) return wrong("expected ')'");
      return g_.choice(std::move(choices));
    }
    if (peek() == '^') return unsupported("'^' that is not at the beginning");
    if (peek() == '*' || peek() == '+' || peek() == '?') return wrong("there is nothing to repeat");
    if (take('[')) {
      COHORT_ASSIGN(const Ranges ranges, characters());
      return parts_.string_character(ranges);
    }
    if (take('.')) return parts_.string_character(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (take('\\')) {
      COHORT_ASSIGN(const Ranges ranges, escape(false));
      return parts_.string_character(ranges);
    }
    const uint32_t c = character();
    return parts_.string_character({{c, c}});
  }

  Expected<Id> quantified(Id part) {
    int32_t low = 1, high = 1;
    if (take('*')) {
      low = 0;
      high = Grammar::kUnbounded;
    } else if (take('+')) {
      high = Grammar::kUnbounded;
    } else if (take('?')) {
      low = 0;
    } else if (peek() == '{' && peek(1) >= '0' && peek(1) <= '9') {
      ++at_;
      COHORT_ASSIGN(low, count());
      high = low;
      if (take(',')) {
        high = Grammar::kUnbounded;
        if (peek() != '}') {
          COHORT_ASSIGN(high, count());
        }
      }
      if (!take('}')) return wrong("expected '}'");
      if (high >= 0 && high < low) return wrong("the repetition has its bounds the wrong way round");
    } else {
      return part;
    }
    take('?');  // as few as possible: the same strings match
    if (peek() == '*' || peek() == '+' || peek() == '?') return unsupported("a repetition of a repetition");
    return g_.repeat(part, low, high);
  }

  Expected<int32_t> count() {
    int32_t value = 0;
    const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (code != std::errc() || value < 0 || value > kMaxCount)
      return wrong(fmt::format("expected a number up to {}", kMaxCount));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  uint32_t character() {
    const auto lead = static_cast<unsigned char>(text_[at_]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t value = size == 1 ? lead : lead & (0x7FU >> size);
    for (size_t i = 1; i < size && at_ + i < text_.size(); ++i)
      value = value << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
    at_ = std::min(at_ + size, text_.size());
    return value;
  }

  Expected<Ranges> hex(size_t digits) {
    uint32_t value = 0;
    const std::string_view number = text_.substr(at_, digits);
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value, 16);
    if (number.size() < digits || code != std::errc() || end != number.data() + digits)
      return wrong(fmt::format("expected {} hexadecimal digits", digits));
    at_ += digits;
    return Ranges{{value, value}};
  }

  /// After a backslash.
  Expected<Ranges> escape(bool in_class) {
    if (at_ >= text_.size()) return wrong("expected a character after '\\'");
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return kDigitRanges;
      case 'w':
        return kWordRanges;
      case 's':
        return Ranges{{9, 13}, {' ', ' '}};
      case 'D':
        return ascii(complement(kDigitRanges));
      case 'W':
        return ascii(complement(kWordRanges));
      case 'S':
        return complement(spaces());
      case 'n':
        return Ranges{{'\n', '\n'}};
      case 'r':
        return Ranges{{'\r', '\r'}};
      case 't':
        return Ranges{{'\t', '\t'}};
      case 'f':
        return Ranges{{'\f', '\f'}};
      case 'v':
        return Ranges{{'\v', '\v'}};
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || static_cast<unsigned char>(c) >= 0x80) {
      --at_;
      return unsupported(in_class ? "this escape in a class" : "this escape");
    }
    return Ranges{{static_cast<uint32_t>(c), static_cast<uint32_t>(c)}};
  }

  Expected<Ranges> member() {
    if (take('\\')) return escape(true);
    const uint32_t c = character();
    return Ranges{{c, c}};
  }

  Expected<Ranges> characters() {
    const bool negated = take('^');
    bool narrow = false;  // what is outside of \d or \w beyond ASCII differs between dialects
    Ranges out;
    while (peek() != ']') {
      if (at_ >= text_.size()) return wrong("expected ']'");
      if (peek() == '\\' && negated) {
        narrow |= peek(1) == 'd' || peek(1) == 'w';
        if (peek(1) == 's') {
          at_ += 2;
          const Ranges all = spaces();
          out.insert(out.end(), all.begin(), all.end());
          continue;
        }
      }
      COHORT_ASSIGN(const Ranges first, member());
      const bool range = peek() == '-' && peek(1) != ']' && peek(1) != '\0';
      if (!range) {
        out.insert(out.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      COHORT_ASSIGN(const Ranges last, member());
      const bool single =
          first.size() == 1 && last.size() == 1 && first[0].first == first[0].second && last[0].first == last[0].second;
      if (!single || last[0].first < first[0].first) return wrong("the range in the class is none");
      out.emplace_back(first[0].first, last[0].first);
    }
    ++at_;
    out = normalised(std::move(out));
    if (!negated) return out;
    return narrow ? ascii(complement(out)) : complement(out);
  }

  Grammar& g_;
  JsonParts& parts_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Expected<Id> string_pattern(Grammar& grammar, JsonParts& parts, std::string_view pattern) {
  return Parser(grammar, parts, pattern).parse();
}

}  // namespace cohort::grammar
