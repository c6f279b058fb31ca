#include "text/grammar/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace cohort::grammar {
namespace {

using Id = Grammar::Id;

constexpr int32_t kIndentation = 24;
constexpr int64_t kLargest = 999'999'999'999'999;  // of JsonParts::kDigits digits

}  // namespace

Id JsonParts::space() {
  if (space_ >= 0) return space_;
  const Id line = g_.sequence({g_.literal("\n"), g_.repeat(g_.characters({{' ', ' '}}), 0, kIndentation)});
  const Grammar::Rule rule = g_.add_rule("space");
  g_.define(rule, g_.optional(g_.choice({g_.literal(" "), line})));
  return space_ = g_.rule(rule);
}

Id JsonParts::string_character(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> plain;
  std::vector<Id> spellings;
  const auto contains = [&](uint32_t c) {
    return std::ranges::any_of(ranges, [c](const CodeRange& r) { return r.first <= c && c <= r.second; });
  };
  for (const CodeRange& range : complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})) {
    for (const CodeRange& wanted : ranges) {
      const CodeRange both{std::max(range.first, wanted.first), std::min(range.second, wanted.second)};
      if (both.first <= both.second) plain.push_back(both);
    }
  }
  if (!plain.empty()) spellings.push_back(g_.characters(std::move(plain)));
  for (uint32_t c = 0; c < 0x20; ++c) {
    if (!contains(c)) continue;
    constexpr std::string_view kShort = "\b\f\n\r\t", kLetters = "bfnrt";
    const size_t at = kShort.find(static_cast<char>(c));
    spellings.push_back(
        g_.literal(at == kShort.npos ? fmt::format("\\u{:04x}", c) : fmt::format("\\{}", kLetters[at])));
  }
  if (contains('"')) spellings.push_back(g_.literal("\\\""));
  if (contains('\\')) spellings.push_back(g_.literal("\\\\"));
  return g_.choice(std::move(spellings));
}

Id JsonParts::any_character() {
  if (any_character_ >= 0) return any_character_;
  const Id plain = g_.characters(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}));
  const Id hex = g_.characters({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  // No surrogates: half of a pair would be no character.
  const Id first = g_.characters({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}});
  const Id unicode =
      g_.sequence({g_.literal("u"),
                   g_.choice({g_.sequence({first, hex}),
                              g_.sequence({g_.characters({{'d', 'd'}, {'D', 'D'}}), g_.characters({{'0', '7'}})})}),
                   hex, hex});
  std::vector<CodeRange> letters;
  for (const char c : std::string_view("\"\\/bfnrt")) letters.emplace_back(c, c);
  const Id escape = g_.sequence({g_.literal("\\"), g_.choice({g_.characters(std::move(letters)), unicode})});
  const Grammar::Rule rule = g_.add_rule("character");
  g_.define(rule, g_.choice({plain, escape}));
  return any_character_ = g_.rule(rule);
}

Id JsonParts::quoted(Id inside) {
  return g_.sequence({g_.literal("\""), inside, g_.literal("\"")});
}

Id JsonParts::string(int32_t low, int32_t high) {
  return quoted(g_.repeat(any_character(), low, high));
}

Id JsonParts::fraction(int32_t digits) {
  return g_.sequence({g_.literal("."), g_.repeat(digit('0', '9'), 1, digits)});
}

Id JsonParts::integer() {
  const Id positive =
      g_.choice({g_.literal("0"), g_.sequence({digit('1', '9'), g_.repeat(digit('0', '9'), 0, kDigits - 1)})});
  return g_.sequence({g_.optional(g_.literal("-")), positive});
}

Id JsonParts::number() {
  const Id exponent =
      g_.sequence({g_.characters({{'e', 'e'}, {'E', 'E'}}), g_.optional(g_.characters({{'+', '+'}, {'-', '-'}})),
                   digit('0', '9'), g_.optional(digit('0', '9'))});
  return g_.sequence({integer(), g_.optional(fraction(kDigits)), g_.optional(exponent)});
}

/// Digit strings of one length from low to high.
Id JsonParts::digits(std::string_view low, std::string_view high) {
  if (low.empty()) return g_.literal("");
  const auto rest = static_cast<int32_t>(low.size() - 1);
  const bool whole = std::ranges::all_of(low.substr(1), [](char c) { return c == '0'; }) &&
                     std::ranges::all_of(high.substr(1), [](char c) { return c == '9'; });
  if (whole) return g_.sequence({digit(low[0], high[0]), g_.repeat(digit('0', '9'), rest, rest)});
  if (low[0] == high[0])
    return g_.sequence({g_.literal(std::string(1, low[0])), digits(low.substr(1), high.substr(1))});
  const std::string zeros(static_cast<size_t>(rest), '0'), nines(static_cast<size_t>(rest), '9');
  std::vector<Id> parts{g_.sequence({g_.literal(std::string(1, low[0])), digits(low.substr(1), nines)}),
                        g_.sequence({g_.literal(std::string(1, high[0])), digits(zeros, high.substr(1))})};
  if (high[0] - low[0] > 1) {
    parts.push_back(g_.sequence({digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                                 g_.repeat(digit('0', '9'), rest, rest)}));
  }
  return g_.choice(std::move(parts));
}

/// Whole numbers from 0 <= low to high, without leading zeros.
Id JsonParts::whole(int64_t low, int64_t high) {
  std::vector<Id> parts;
  while (low <= high) {
    const std::string first = std::to_string(low);
    // The largest number of as many digits.
    const int64_t last = std::min(high, static_cast<int64_t>(std::stoll(std::string(first.size(), '9'))));
    parts.push_back(digits(first, std::to_string(last)));
    low = last + 1;
  }
  return g_.choice(std::move(parts));
}

namespace {
/// The whole numbers within bounds, at most kLargest in size.
std::pair<int64_t, int64_t> whole_bounds(const NumberBounds& b) {
  constexpr auto kEnd = static_cast<double>(kLargest);
  double low = b.low ? std::ceil(*b.low) : -kEnd, high = b.high ? std::floor(*b.high) : kEnd;
  if (b.low && b.low_exclusive && low == *b.low) low += 1;
  if (b.high && b.high_exclusive && high == *b.high) high -= 1;
  return {static_cast<int64_t>(std::clamp(low, -kEnd, kEnd + 1)),
          static_cast<int64_t>(std::clamp(high, -kEnd - 1, kEnd))};
}
}  // namespace

Id JsonParts::integer(const NumberBounds& bounds) {
  const auto [low, high] = whole_bounds(bounds);
  std::vector<Id> parts;
  if (high >= 0 && low <= high) parts.push_back(whole(std::max<int64_t>(low, 0), high));
  if (low < 0 && low <= high) parts.push_back(g_.sequence({g_.literal("-"), whole(std::max<int64_t>(-high, 1), -low)}));
  return parts.empty() ? -1 : g_.choice(std::move(parts));
}

Id JsonParts::tens(const NumberBounds& bounds, int zeros) {
  if (zeros == 0) return integer(bounds);
  const double step = std::pow(10, zeros);
  NumberBounds scaled = bounds;
  constexpr auto kEnd = static_cast<double>(kLargest);
  scaled.low = std::max(bounds.low.value_or(-kEnd), -kEnd) / step;
  scaled.high = std::min(bounds.high.value_or(kEnd), kEnd) / step;
  const auto [low, high] = whole_bounds(scaled);
  std::vector<Id> parts;
  const Id end = g_.literal(std::string(static_cast<size_t>(zeros), '0'));
  if (low <= 0 && high >= 0) parts.push_back(g_.literal("0"));
  if (high >= 1 && low <= high) parts.push_back(g_.sequence({whole(std::max<int64_t>(low, 1), high), end}));
  if (low <= -1 && low <= high)
    parts.push_back(g_.sequence({g_.literal("-"), whole(std::max<int64_t>(-high, 1), -low), end}));
  return parts.empty() ? -1 : g_.choice(std::move(parts));
}

Id JsonParts::number(const NumberBounds& bounds, int32_t digits) {
  const auto [low, high] = whole_bounds(bounds);
  std::vector<Id> parts;
  if (const Id integers = integer(bounds); integers >= 0) parts.push_back(integers);
  // k.xxx lies from k to k + 1, which does not belong to it.
  const int64_t last =
      bounds.high ? std::min(kLargest, static_cast<int64_t>(std::floor(std::clamp(*bounds.high, -1e15, 1e15))) - 1)
                  : kLargest;
  if (const int64_t first = std::max<int64_t>(low, 0); first <= last)
    parts.push_back(g_.sequence({whole(first, last), fraction(digits)}));
  // -k.xxx lies from -k down to -(k + 1), which does not belong to it.
  const int64_t deepest =
      bounds.low ? std::min(kLargest, static_cast<int64_t>(std::floor(std::clamp(-*bounds.low, -1e15, 1e15))) - 1)
                 : kLargest;
  if (const int64_t first = std::max<int64_t>(-high, 0); first <= deepest)
    parts.push_back(g_.sequence({g_.literal("-"), whole(first, deepest), fraction(digits)}));
  return parts.empty() ? -1 : g_.choice(std::move(parts));
}

void JsonParts::value_rules() {
  if (value_ >= 0) return;
  value_ = g_.add_rule("value");
  object_ = g_.add_rule("object");
  array_ = g_.add_rule("array");
  const Id member = g_.sequence({string(0, Grammar::kUnbounded), space(), g_.literal(":"), space(), g_.rule(value_)});
  g_.define(object_, list("{", member, 0, Grammar::kUnbounded, "}"));
  g_.define(array_, list("[", g_.rule(value_), 0, Grammar::kUnbounded, "]"));
  g_.define(value_, g_.choice({g_.rule(object_), g_.rule(array_), string(0, Grammar::kUnbounded), number(), boolean(),
                               g_.literal("null")}));
}

Id JsonParts::value() {
  value_rules();
  return g_.rule(value_);
}
Id JsonParts::object() {
  value_rules();
  return g_.rule(object_);
}
Id JsonParts::array() {
  value_rules();
  return g_.rule(array_);
}

Id JsonParts::list(std::string_view open, Id item, int32_t low, int32_t high, std::string_view close) {
  const Id begin = g_.sequence({g_.literal(std::string(open)), space()});
  const Id end = g_.literal(std::string(close));
  if (high == 0) return g_.sequence({begin, end});
  const Id next = g_.sequence({g_.literal(","), space(), item, space()});
  const int32_t more = high < 0 ? high : high - 1;
  const Id filled = g_.sequence({item, space(), g_.repeat(next, std::max(low - 1, 0), more)});
  return g_.sequence({begin, low > 0 ? filled : g_.optional(filled), end});
}

Id JsonParts::other_key(const std::vector<std::string_view>& names) {
  if (names.empty()) return string(0, Grammar::kUnbounded);
  // A trie of the names: at each node, the key ends if no name does, goes on as a name, or leaves the names for good.
  // Without escapes, so that no name can come in another spelling.
  const auto plain = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const Grammar::Rule any = g_.add_rule("other");
  g_.define(any, g_.repeat(g_.characters(plain), 0, Grammar::kUnbounded));
  std::map<std::u32string, std::pair<bool, std::vector<uint32_t>>> nodes;  // by beginning: is a name, next characters
  for (const std::string_view name : names) {
    std::u32string beginning;
    nodes[beginning];
    for (size_t i = 0; i < name.size();) {
      const auto lead = static_cast<unsigned char>(name[i]);
      const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      uint32_t c = size == 1 ? lead : lead & (0x7FU >> size);
      for (size_t k = 1; k < size && i + k < name.size(); ++k)
        c = c << 6 | (static_cast<unsigned char>(name[i + k]) & 0x3F);
      i += size;
      auto& next = nodes[beginning].second;
      if (std::ranges::find(next, c) == next.end()) next.push_back(c);
      beginning += static_cast<char32_t>(c);
    }
    nodes[beginning].first = true;
  }
  std::map<std::u32string, Grammar::Rule> rules;
  for (const auto& [beginning, node] : nodes) rules[beginning] = g_.add_rule("other key");
  for (const auto& [beginning, node] : nodes) {
    std::vector<Id> parts;
    if (!node.first) parts.push_back(g_.literal(""));
    std::vector<CodeRange> taken{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    for (const uint32_t c : node.second) {
      taken.emplace_back(c, c);
      const Id rest = g_.rule(rules.at(beginning + static_cast<char32_t>(c)));
      // A name with characters that need escapes can only be spelled with them, which other keys never are.
      if (c >= 0x20 && c != '"' && c != '\\') parts.push_back(g_.sequence({g_.literal(utf8(c)), rest}));
    }
    parts.push_back(g_.sequence({g_.characters(complement(normalised(std::move(taken)))), g_.rule(any)}));
    g_.define(rules.at(beginning), g_.choice(std::move(parts)));
  }
  return quoted(g_.rule(rules.at(U"")));
}

}  // namespace cohort::grammar
