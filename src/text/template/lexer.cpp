#include "text/template/lexer.h"

#include <algorithm>
#include <cctype>

#include "text/template/ast.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Lines end in "\n", whatever the source uses; one line break at the very end does not count.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_data();
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag : uint8_t { none, raw, comment, block, variable };

  [[noreturn]] void fail(std::string message) const {
    throw ParseFailure{ErrorCode::corrupt, line_, std::move(message)};
  }
  std::string_view rest() const { return source_.substr(position_); }
  bool looking_at(std::string_view text, size_t at) const { return source_.substr(at, text.size()) == text; }
  size_t skip_space(size_t at) const { return source_.size() - strip_left(source_.substr(at)).size(); }

  void add(TokenType type, std::string_view text) { tokens_.push_back({type, line_, std::string(text)}); }

  /// Moves to `end`, counting lines; remembers whether a line ended there.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + position_, source_.begin() + end, '\n'));
    if (end > position_) line_starting_ = source_[end - 1] == '\n';
    position_ = end;
  }

  /// The end of a raw tag that begins at `at`, or 0: {% raw %} with any white space and signs.
  size_t end_of_raw_begin(size_t at) const {
    at += 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = skip_space(at);
    if (!looking_at("raw", at)) return 0;
    at = skip_space(at + 3);
    if (looking_at("-%}", at)) return skip_space(at + 3);
    return looking_at("%}", at) ? at + 2 : 0;
  }

  /// Text up to the next tag, and the begin of that tag.
  void lex_data() {
    size_t at = position_;
    Tag tag = Tag::none;
    size_t raw_end = 0;
    for (; tag == Tag::none; ++at) {
      at = source_.find('{', at);
      if (at == std::string_view::npos || at + 1 >= source_.size()) break;
      char next = source_[at + 1];
      if (next == '%') tag = (raw_end = end_of_raw_begin(at)) != 0 ? Tag::raw : Tag::block;
      if (next == '#') tag = Tag::comment;
      if (next == '{') tag = Tag::variable;
      if (tag != Tag::none) break;
    }
    if (tag == Tag::none) {
      add(TokenType::data, rest());
      advance(source_.size());
      return;
    }
    char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    add_data(source_.substr(position_, at - position_), sign, tag != Tag::variable);
    advance(at + 2 + (sign != '\0' ? 1 : 0));
    switch (tag) {
      case Tag::raw:
        advance(raw_end);
        return lex_raw();
      case Tag::comment:
        return lex_comment();
      case Tag::block:
        add(TokenType::block_begin, "{%");
        return lex_code("%}", TokenType::block_end, true);
      default:
        add(TokenType::variable_begin, "{{");
        return lex_code("}}", TokenType::variable_end, false);
    }
  }

  /// Text before a tag with `sign`: "-" strips its white space, else the indentation of a tag that starts its line is
  /// dropped.
  void add_data(std::string_view text, char sign, bool strip_indentation) {
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && strip_indentation) {
      size_t line_begin = text.rfind('\n') + 1;  // 0 without a line break
      if ((line_begin > 0 || line_starting_) && strip_left(text.substr(line_begin)).empty())
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(TokenType::data, text);
  }

  /// The end of a tag that closes with `close` at `at`: sign, white space and (trim_blocks) the line break behind it; 0
  /// if none.
  size_t end_of_close(std::string_view close, size_t at, bool block) const {
    if (source_[at] == '-' && looking_at(close, at + 1)) return skip_space(at + 1 + close.size());
    if (block && source_[at] == '+' && looking_at(close, at + 1)) return at + 1 + close.size();
    if (!looking_at(close, at)) return 0;
    at += close.size();
    return block && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
  }

  void lex_comment() {
    if (position_ == source_.size()) return;  // nothing to miss, as in Jinja
    for (size_t at = position_; at < source_.size(); ++at) {
      if (size_t end = end_of_close("#}", at, true); end != 0) return advance(end);
    }
    fail("a comment is not closed: '#}' is missing");
  }

  void lex_raw() {
    if (position_ == source_.size()) return;
    for (size_t at = source_.find("{%", position_); at != std::string_view::npos; at = source_.find("{%", at + 1)) {
      size_t name = at + 2;
      char sign = name < source_.size() ? source_[name] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      name = skip_space(name + (sign != '\0' ? 1 : 0));
      if (!looking_at("endraw", name)) continue;
      size_t close = skip_space(name + 6);
      size_t end = close < source_.size() ? end_of_close("%}", close, true) : 0;
      if (end == 0) continue;
      add_data(source_.substr(position_, at - position_), sign, true);
      return advance(end);
    }
    fail("a raw block is not closed: '{% endraw %}' is missing");
  }

  /// Tokens up to `close`, which counts only outside of brackets.
  void lex_code(std::string_view close, TokenType close_type, bool block) {
    std::string brackets;
    while (position_ < source_.size()) {
      if (size_t end = brackets.empty() ? end_of_close(close, position_, block) : 0; end != 0) {
        add(close_type, close);
        return advance(end);
      }
      size_t next = position_;
      char32_t c = decode(source_, next);
      if (is_space(c)) {
        advance(skip_space(position_));
      } else if (is_ascii_digit(source_[position_])) {
        lex_number();
      } else if (is_identifier_part(c)) {
        lex_name();
      } else if (c == '\'' || c == '"') {
        lex_string();
      } else {
        lex_symbol(brackets);
      }
    }
  }

  /// The end of a run of `is_digit` from `at`, with single underscores between them.
  template <class IsDigit>
  size_t end_of_digits(size_t at, IsDigit is_digit) const {
    while (at < source_.size()) {
      size_t digit = source_[at] == '_' ? at + 1 : at;
      if (digit >= source_.size() || !is_digit(source_[digit])) break;
      at = digit + 1;
    }
    return at;
  }

  void lex_number() {
    size_t end = end_of_float();
    TokenType type = TokenType::floating;
    if (end == 0 || (position_ > 0 && source_[position_ - 1] == '.')) {
      type = TokenType::integer;
      end = end_of_integer();
    }
    std::string digits(source_.substr(position_, end - position_));
    std::erase(digits, '_');
    add(type, digits);
    advance(end);
  }

  /// The end of a number with a fraction or an exponent, or 0.
  size_t end_of_float() const {
    size_t at = end_of_digits(position_, is_ascii_digit);
    bool is_float = false;
    if (at + 1 < source_.size() && source_[at] == '.' && is_ascii_digit(source_[at + 1])) {
      at = end_of_digits(at + 1, is_ascii_digit);
      is_float = true;
    }
    if (at < source_.size() && (source_[at] | 0x20) == 'e') {
      size_t exponent = at + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_ascii_digit(source_[exponent]))
        return end_of_digits(exponent, is_ascii_digit);
    }
    return is_float ? at : 0;
  }

  size_t end_of_integer() const {
    auto prefixed = [&](char letter, auto is_digit) {
      size_t at = position_ + 2;
      if (at > source_.size() || source_[position_] != '0' || (source_[position_ + 1] | 0x20) != letter)
        return size_t{0};
      size_t end = end_of_digits(at, is_digit);
      return end > at ? end : 0;
    };
    size_t end = prefixed('b', [](char c) { return c == '0' || c == '1'; });
    if (end == 0) end = prefixed('o', [](char c) { return c >= '0' && c <= '7'; });
    if (end == 0) end = prefixed('x', [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    if (end != 0) return end;
    if (source_[position_] != '0') return end_of_digits(position_, is_ascii_digit);
    return end_of_digits(position_, [](char c) { return c == '0'; });
  }

  void lex_name() {
    size_t end = position_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_identifier_part(decode(source_, next))) break;
      end = next;
    }
    size_t first = position_;
    if (!is_identifier_start(decode(source_, first))) fail("invalid character in identifier");
    add(TokenType::name, source_.substr(position_, end - position_));
    advance(end);
  }

  void lex_string() {
    char quote = source_[position_];
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(fmt::format("a string that starts with {} is not closed", quote));
    add(TokenType::string, unescaped(source_.substr(position_ + 1, end - position_ - 1)));
    advance(end + 1);
  }

  /// The text of a string literal with Python's escapes.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out += text[i++];
        continue;
      }
      size_t next = i + 1;
      char32_t c = decode(text, next);
      i = next;
      constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
      if (size_t k = c < 0x80 ? kLetters.find(static_cast<char>(c)) : std::string_view::npos;
          k != std::string_view::npos) {
        out += kMeanings[k];
      } else if (c >= '0' && c <= '7') {
        char32_t value = c - '0';
        for (int n = 1; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n)
          value = value * 8 + (text[i++] - '0');
        append_utf8(out, value);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, hex_escape(text, i, digits));
        i += digits;
      } else if (c == 'N') {
        fail(
            "the escape \\N{...} (a character by its name) is not supported; write the character or \\u with its "
            "number");
      } else if (c >= 0x80) {
        // Jinja turns the character into an escape first, whose backslash the one before it then protects.
        out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
               : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                             : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
      } else if (c != '\n') {
        out += '\\', out += static_cast<char>(c);  // no escape: both characters stay
      }
    }
    return out;
  }

  char32_t hex_escape(std::string_view text, size_t at, size_t digits) const {
    char32_t value = 0;
    for (size_t i = at; i < at + digits; ++i) {
      if (i >= text.size() || std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
        fail(fmt::format("an escape in a string needs {} hexadecimal digits", digits));
      }
      value = value * 16 + static_cast<char32_t>(text[i] <= '9' ? text[i] - '0' : (text[i] | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail(fmt::format("the escape for U+{:X} in a string names no character", static_cast<uint32_t>(value)));
    }
    return value;
  }

  void lex_symbol(std::string& brackets) {
    constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                             "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (std::string_view symbol : kSymbols) {
      if (!looking_at(symbol, position_)) continue;
      char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty()) fail(fmt::format("unexpected '{}'", c));
        if (brackets.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
        brackets.pop_back();
      }
      add(TokenType::symbol, symbol);
      return advance(position_ + symbol.size());
    }
    size_t next = position_;
    decode(source_, next);
    fail(fmt::format("unexpected character '{}'", source_.substr(position_, next - position_)));
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::string text = normalized(source);
  return Lexer(text).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::data:
      return "template data / text";
    case TokenType::variable_begin:
      return "begin of print statement";
    case TokenType::variable_end:
      return "end of print statement";
    case TokenType::block_begin:
      return "begin of statement block";
    case TokenType::block_end:
      return "end of statement block";
    case TokenType::string:
      return "string";
    case TokenType::end:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace cohort::jinja
