#include "text/grammar/grammar.h"

#include <algorithm>

namespace cohort::grammar {
namespace {
constexpr CodeRange kSurrogates{0xD800, 0xDFFF};
}

std::vector<CodeRange> normalised(std::vector<CodeRange> ranges) {
  std::ranges::sort(ranges);
  std::vector<CodeRange> joined;
  for (const CodeRange& range : ranges) {
    if (range.first > range.second) continue;
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  std::vector<CodeRange> out;
  for (const CodeRange& range : joined) {
    if (range.second < kSurrogates.first || range.first > kSurrogates.second) {
      out.push_back(range);
      continue;
    }
    if (range.first < kSurrogates.first) out.emplace_back(range.first, kSurrogates.first - 1);
    if (range.second > kSurrogates.second) out.emplace_back(kSurrogates.second + 1, range.second);
  }
  return out;
}

std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) out.emplace_back(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= kLastCodePoint) out.emplace_back(next, kLastCodePoint);
  return normalised(std::move(out));
}

std::string utf8(uint32_t c) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
}

Grammar::Id Grammar::add(Expression expression) {
  expressions_.push_back(std::move(expression));
  return static_cast<Id>(expressions_.size() - 1);
}

Grammar::Id Grammar::literal(std::string bytes) {
  Expression e;
  e.kind = Expression::Kind::literal;
  e.bytes = std::move(bytes);
  return add(std::move(e));
}

Grammar::Id Grammar::characters(std::vector<CodeRange> ranges) {
  Expression e;
  e.kind = Expression::Kind::characters;
  e.ranges = normalised(std::move(ranges));
  return add(std::move(e));
}

Grammar::Id Grammar::sequence(std::vector<Id> parts) {
  if (parts.size() == 1) return parts.front();
  Expression e;
  e.kind = Expression::Kind::sequence;
  e.parts = std::move(parts);
  return add(std::move(e));
}

Grammar::Id Grammar::choice(std::vector<Id> parts) {
  if (parts.size() == 1) return parts.front();
  Expression e;
  e.kind = Expression::Kind::choice;
  e.parts = std::move(parts);
  return add(std::move(e));
}

Grammar::Id Grammar::repeat(Id part, int32_t low, int32_t high) {
  Expression e;
  e.kind = Expression::Kind::repeat;
  e.parts = {part};
  e.low = low;
  e.high = high;
  return add(std::move(e));
}

Grammar::Id Grammar::rule(Rule rule) {
  Expression e;
  e.kind = Expression::Kind::rule;
  e.index = rule;
  return add(std::move(e));
}

Grammar::Id Grammar::token(int32_t token) {
  Expression e;
  e.kind = Expression::Kind::token;
  e.index = token;
  return add(std::move(e));
}

Grammar::Rule Grammar::add_rule(std::string name) {
  rules_.push_back({std::move(name), -1});
  return static_cast<Rule>(rules_.size() - 1);
}

}  // namespace cohort::grammar
