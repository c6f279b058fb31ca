#include "text/grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>

#include "base/printable.h"
#include "base/result.h"
#include "text/tokenizer/utf8.h"

namespace cohort::grammar {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxDepth = 200;
constexpr int kMaxQuantifiers = 8;  // after one element
constexpr size_t kShown = 60;       // bytes of the grammar in a message
constexpr int32_t kMaxRepeat = 1'000'000'000;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, const FindToken& find_token) : text_(text), find_token_(find_token) {}

  Expected<Grammar> parse() {
    if (text_.size() > kMaxBytes) {
      return cohort::fail(ErrorCode::capacity, "the grammar has {} bytes; at most {} are allowed", text_.size(),
                          kMaxBytes);
    }
    if (!text::is_valid_utf8(text_)) return cohort::fail(ErrorCode::invalid_argument, "the grammar is no valid UTF-8");
    skip(true);
    while (at_ < text_.size()) {
      COHORT_TRY(rule());
      skip(true);
    }
    for (const auto& [name, use] : rules_) {
      if (grammar_.rules()[static_cast<size_t>(use.rule)].body < 0)
        return error_at(use.first_use, fmt::format("the rule '{}' is not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return cohort::fail(ErrorCode::invalid_argument, "the grammar has no rule 'root'; its text begins there");
    grammar_.root = root->second.rule;
    return std::move(grammar_);
  }

 private:
  struct Use {
    Grammar::Rule rule;
    size_t first_use;
  };

  tl::unexpected<Error> error_at(size_t at, std::string_view what) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return cohort::fail(ErrorCode::invalid_argument, "grammar, line {}, column {}: {}", line, at - begin + 1, what);
  }
  tl::unexpected<Error> error(std::string_view what) const { return error_at(at_, what); }
  tl::unexpected<Error> expected(std::string_view what) const {
    if (at_ >= text_.size()) return error(fmt::format("expected {}, the grammar ends", what));
    return error(fmt::format("expected {}, not '{}'", what, here()));
  }

  /// The character at the place, for messages.
  std::string here() const {
    size_t end = at_ + 1;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) ++end;
    return printable(text_.substr(at_, end - at_), kShown);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Grammar::Rule rule_of(std::string_view name, size_t at) {
    const auto [found, added] = rules_.try_emplace(std::string(name), Use{0, at});
    if (added) found->second.rule = grammar_.add_rule(std::string(name));
    return found->second.rule;
  }

  Expected<void> rule() {
    const size_t begin = at_;
    const std::string_view rule_name = name();
    if (rule_name.empty()) return expected("the name of a rule");
    skip(false);
    if (!take("::=")) return expected("'::=' after the name of a rule");
    const Grammar::Rule rule = rule_of(rule_name, begin);
    if (grammar_.rules()[static_cast<size_t>(rule)].body >= 0)
      return error_at(begin, fmt::format("the rule '{}' is defined twice", rule_name));
    skip(true);
    COHORT_ASSIGN(const Grammar::Id body, alternatives(0));
    grammar_.define(rule, body);
    skip(false);
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') return expected("the end of the line");
    return {};
  }

  Expected<Grammar::Id> alternatives(int depth) {
    if (depth > kMaxDepth) return error(fmt::format("parentheses are nested more than {} deep", kMaxDepth));
    std::vector<Grammar::Id> parts;
    while (true) {
      COHORT_ASSIGN(const Grammar::Id one, sequence(depth));
      parts.push_back(one);
      skip(depth > 0);
      if (!take("|")) return grammar_.choice(std::move(parts));
      skip(true);
    }
  }

  Expected<Grammar::Id> sequence(int depth) {
    std::vector<Grammar::Id> parts;
    while (true) {
      skip(depth > 0);
      const char c = peek();
      if (at_ >= text_.size() || c == '|' || c == ')' || c == '\n' || c == '\r') break;
      COHORT_ASSIGN(const Grammar::Id primary, element(depth));
      COHORT_ASSIGN(const Grammar::Id whole, quantified(primary));
      parts.push_back(whole);
    }
    return grammar_.sequence(std::move(parts));
  }

  Expected<Grammar::Id> element(int depth) {
    const size_t begin = at_;
    if (take("\"")) return literal();
    if (take("[")) return characters();
    if (take(".")) return grammar_.characters({{0, kLastCodePoint}});
    if (take("<")) return token();
    if (take("(")) {
      COHORT_ASSIGN(const Grammar::Id inner, alternatives(depth + 1));
      skip(true);
      if (!take(")")) return expected("')'");
      return inner;
    }
    const std::string_view called = name();
    if (called.empty()) return expected("a literal, a class, a rule or '('");
    return grammar_.rule(rule_of(called, begin));
  }

  Expected<Grammar::Id> quantified(Grammar::Id part) {
    for (int i = 0; i <= kMaxQuantifiers; ++i) {
      if (take("*")) {
        part = grammar_.repeat(part, 0, Grammar::kUnbounded);
      } else if (take("+")) {
        part = grammar_.repeat(part, 1, Grammar::kUnbounded);
      } else if (take("?")) {
        part = grammar_.repeat(part, 0, 1);
      } else if (take("{")) {
        COHORT_ASSIGN(part, counted(part));
      } else {
        return part;
      }
    }
    return error(fmt::format("more than {} repetitions of repetitions", kMaxQuantifiers));
  }

  Expected<Grammar::Id> counted(Grammar::Id part) {
    skip(false);
    COHORT_ASSIGN(const int32_t low, count());
    int32_t high = low;
    skip(false);
    if (take(",")) {
      skip(false);
      high = Grammar::kUnbounded;
      if (peek() != '}') {
        COHORT_ASSIGN(high, count());
      }
      skip(false);
    }
    if (high != Grammar::kUnbounded && high < low)
      return error(fmt::format("the repetition {{{},{}}} has its bounds the wrong way round", low, high));
    if (!take("}")) return expected("'}'");
    return grammar_.repeat(part, low, high);
  }

  Expected<int32_t> count() {
    int32_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (end == begin || *begin == '-') return expected("a number");
    if (code != std::errc() || value > kMaxRepeat)
      return error(fmt::format("a repetition may have at most {} rounds", kMaxRepeat));
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  /// After a backslash.
  Expected<uint32_t> escape() {
    if (at_ >= text_.size()) return expected("a character after '\\'");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        break;
    }
    if (std::string_view("\\\"[]^-/").find(c) != std::string_view::npos) return static_cast<uint32_t>(c);
    --at_;
    return error(fmt::format("the escape '\\{}' is not known", here()));
  }

  Expected<uint32_t> hex(size_t digits) {
    uint32_t value = 0;
    const std::string_view number = text_.substr(at_, digits);
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value, 16);
    if (number.size() < digits || end != number.data() + digits || code != std::errc())
      return error(fmt::format("expected {} hexadecimal digits", digits));
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      return error(fmt::format("U+{:04X} is no character", value));
    at_ += digits;
    return value;
  }

  /// One character, written out or escaped.
  Expected<uint32_t> character() {
    if (take("\\")) return escape();
    const auto lead = static_cast<unsigned char>(text_[at_]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t value = size == 1 ? lead : lead & (0x7FU >> size);
    for (size_t i = 1; i < size; ++i) value = value << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
    at_ += size;
    return value;
  }

  Expected<Grammar::Id> literal() {
    std::string bytes;
    while (peek() != '"') {
      if (at_ >= text_.size() || peek() == '\n') return expected("'\"' at the end of a literal");
      COHORT_ASSIGN(const uint32_t c, character());
      bytes += utf8(c);
    }
    ++at_;
    return grammar_.literal(std::move(bytes));
  }

  Expected<Grammar::Id> characters() {
    const bool negated = take("^");
    std::vector<CodeRange> ranges;
    while (peek() != ']') {
      if (at_ >= text_.size() || peek() == '\n') return expected("']' at the end of a class");
      COHORT_ASSIGN(const uint32_t first, character());
      uint32_t last = first;
      if (peek() == '-' && text_.substr(at_ + 1, 1) != "]") {
        ++at_;
        if (at_ >= text_.size()) return expected("the end of a range");
        COHORT_ASSIGN(last, character());
        if (last < first) return error(fmt::format("the range U+{:04X} to U+{:04X} is empty", first, last));
      }
      ranges.emplace_back(first, last);
    }
    ++at_;
    ranges = normalised(std::move(ranges));
    return grammar_.characters(negated ? complement(ranges) : ranges);
  }

  /// After '<'.
  Expected<Grammar::Id> token() {
    const size_t begin = at_ - 1;
    if (take("[")) {
      COHORT_ASSIGN(const int32_t id, count());
      if (!take("]>")) return expected("']>'");
      return grammar_.token(id);
    }
    const size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) return expected("'>' at the end of a token");
    const std::string_view spelling = text_.substr(begin, end + 1 - begin);
    at_ = end + 1;
    const auto id = find_token_ ? find_token_(spelling) : std::nullopt;
    if (!id) return error_at(begin, fmt::format("the vocabulary has no token '{}'", printable(spelling, kShown)));
    return grammar_.token(*id);
  }

  std::string_view text_;
  const FindToken& find_token_;
  size_t at_ = 0;
  Grammar grammar_;
  std::unordered_map<std::string, Use> rules_;
};

}  // namespace

Expected<Grammar> parse_gbnf(std::string_view text, const FindToken& find_token) {
  return Parser(text, find_token).parse();
}

}  // namespace cohort::grammar
