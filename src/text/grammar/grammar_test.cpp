#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "text/grammar/gbnf.h"
#include "text/grammar/token_grammar.h"

namespace cohort::grammar {
namespace {

using Kind = Grammar::Expression::Kind;

std::shared_ptr<const TokenTrie> trie(const std::vector<std::string>& pieces) {
  const std::vector<std::string_view> views(pieces.begin(), pieces.end());
  return std::make_shared<const TokenTrie>(views);
}

/// All bytes, then some longer tokens.
std::vector<std::string> byte_vocabulary(std::vector<std::string> more = {}) {
  std::vector<std::string> pieces;
  for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

std::shared_ptr<const TokenGrammar> compile(std::string_view gbnf, const std::vector<std::string>& pieces) {
  auto grammar = parse_gbnf(gbnf, {});
  if (!grammar) throw std::runtime_error(grammar.error().message);
  auto compiled = TokenGrammar::create(*grammar, trie(pieces), {});
  if (!compiled) throw std::runtime_error(compiled.error().message);
  return *compiled;
}

bool bit(const std::vector<uint64_t>& mask, size_t token) {
  return (mask[token / 64] >> (token % 64) & 1) != 0;
}

std::vector<uint64_t> allowed(ConstraintState& state, size_t vocabulary) {
  std::vector<uint64_t> mask((vocabulary + 63) / 64);
  if (auto ok = state.allowed(mask); !ok) throw std::runtime_error(ok.error().message);
  return mask;
}

/// Reads a text byte by byte: 0 wrong, 1 a beginning, 2 complete.
int read(std::string_view gbnf, std::string_view text) {
  const auto pieces = byte_vocabulary();
  const auto state = compile(gbnf, pieces)->begin();
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!bit(allowed(*state, pieces.size()), byte)) return 0;
    state->advance(byte);
  }
  return state->may_end() ? 2 : 1;
}

std::string error_of(std::string_view gbnf) {
  auto grammar = parse_gbnf(gbnf, {});
  if (!grammar) return grammar.error().message;
  auto compiled = TokenGrammar::create(*grammar, trie(byte_vocabulary()), {});
  return compiled ? "" : compiled.error().message;
}

TEST(Gbnf, ReadsWhatItSays) {
  EXPECT_EQ(read(R"(root ::= "ab" | "ac" [0-9]+)", "ab"), 2);
  EXPECT_EQ(read(R"(root ::= "ab" | "ac" [0-9]+)", "ac"), 1);
  EXPECT_EQ(read(R"(root ::= "ab" | "ac" [0-9]+)", "ac12"), 2);
  EXPECT_EQ(read(R"(root ::= "ab" | "ac" [0-9]+)", "ad"), 0);
  EXPECT_EQ(read("root ::= x{2,3}\nx ::= [^a]", "bé"), 2);
  EXPECT_EQ(read("root ::= x{2,3}\nx ::= [^a]", "b日c"), 2);
  EXPECT_EQ(read("root ::= x{2,3}\nx ::= [^a]", "bbbb"), 0);
  EXPECT_EQ(read("root ::= x{2,3}\nx ::= [^a]", "ba"), 0);
  EXPECT_EQ(read("root ::= [α-ω]*  # Greek\n", "αβγ"), 2);
  EXPECT_EQ(read("root ::= [α-ω]*", "z"), 0);
  EXPECT_EQ(read("root ::= \"\\x41\\u00e9\\U0001F600\\\"\"", "Aé😀\""), 2);
  EXPECT_EQ(read("root ::= (\n \"a\" |\n \"b\"\n)? .", "ax"), 2);
  EXPECT_EQ(read("root ::=\n  pair |\n  \"x\"\npair ::= \"(\" root \")\"", "((x))"), 2);
  EXPECT_EQ(read("root ::= \"(\" root \")\" | \"x\"", "((x)"), 1);
  EXPECT_EQ(read("root ::= (\"a\"*)* \"b\"?", "aab"), 2) << "repetitions of what may be empty";
  EXPECT_EQ(read("root ::= (\"a\"?){5}", "aa"), 2);
  EXPECT_EQ(read("root ::= (\"a\"?){5}", "aaaaaa"), 0);
  EXPECT_EQ(read("root ::= a | b\na ::= \"x\" a \"y\" | \"xy\"\nb ::= \"x\" b | \"x\"", "xxx"), 2) << "two readings";
}

TEST(Gbnf, ErrorsSayWhere) {
  EXPECT_NE(error_of("root ::= \"a").find("line 1, column 12"), std::string::npos) << error_of("root ::= \"a");
  EXPECT_NE(error_of("root ::= a\nb ::= \"c\"").find("'a' is not defined"), std::string::npos);
  EXPECT_NE(error_of("x ::= \"a\"").find("no rule 'root'"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\"\nroot ::= \"b\"").find("defined twice"), std::string::npos);
  EXPECT_NE(error_of("root ::= ( \"a\"").find("expected ')'"), std::string::npos);
  EXPECT_NE(error_of("root ::= [b-a]").find("is empty"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\"{3,2}").find("wrong way round"), std::string::npos);
  EXPECT_NE(error_of("root ::= \"\\q\"").find("escape"), std::string::npos);
  EXPECT_NE(error_of("root ::= root \"a\" | \"b\"").find("begins with itself"), std::string::npos);
  EXPECT_NE(error_of("root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"").find("begins with itself"),
            std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\" root").find("no text at all"), std::string::npos);
  EXPECT_NE(error_of("root ::= <no-such-token>").find("no token"), std::string::npos);
  EXPECT_NE(error_of("root ::= <[99999]>").find("vocabulary has"), std::string::npos);
  EXPECT_NE(error_of("root ::= (\"a\"?){5000}").find("may be empty"), std::string::npos);
  EXPECT_NE(error_of(std::string(300, '(')).size(), 0U);
  EXPECT_NE(error_of("root ::= \"a\"" + std::string(100, '*')).size(), 0U);
  EXPECT_NE(error_of("root ::= \"\xFF\"").find("UTF-8"), std::string::npos);
}

TEST(TokenGrammar, ATokenThatNoTextEndsWithIsNeverAllowed) {
  // "b" leads nowhere: after it only rules without an end come.
  const auto pieces = byte_vocabulary({"bx"});
  const auto state = compile("root ::= \"a\" | \"b\" x\nx ::= \"x\" x", pieces)->begin();
  const auto mask = allowed(*state, pieces.size());
  EXPECT_TRUE(bit(mask, 'a'));
  EXPECT_FALSE(bit(mask, 'b'));
  EXPECT_FALSE(bit(mask, 256));
}

TEST(TokenGrammar, WhatTheVocabularyCannotSpellIsNotBegun) {
  const std::vector<std::string> pieces{"a", "b", "ac"};  // no token "c"
  const auto state = compile("root ::= \"a\" (\"b\" | \"c\") | \"ac\" \"c\"", pieces)->begin();
  const auto mask = allowed(*state, pieces.size());
  EXPECT_TRUE(bit(mask, 0));
  EXPECT_FALSE(bit(mask, 2));
}

TEST(TokenGrammar, TokensByName) {
  auto pieces = byte_vocabulary({"", "<call>"});
  const auto find = [](std::string_view text) {
    return text == "<|go|>" ? std::optional(256) : text == "<call>" ? std::optional(257) : std::nullopt;
  };
  const auto grammar = parse_gbnf("root ::= <|go|> \"x\" | <call> \"y\"", find);
  ASSERT_TRUE(grammar);
  const auto compiled = TokenGrammar::create(*grammar, trie(pieces), {});
  ASSERT_TRUE(compiled);
  auto state = (*compiled)->begin();
  auto mask = allowed(*state, pieces.size());
  EXPECT_TRUE(bit(mask, 256));
  EXPECT_TRUE(bit(mask, 257));
  EXPECT_FALSE(bit(mask, '<')) << "the token, not its spelling";
  state->advance(256);
  EXPECT_TRUE(bit(allowed(*state, pieces.size()), 'x'));
  EXPECT_FALSE(bit(allowed(*state, pieces.size()), 'y'));
  state->advance('x');
  EXPECT_TRUE(state->must_end());
  const std::vector<int32_t> ends{256};
  EXPECT_FALSE(TokenGrammar::create(*grammar, trie(pieces), ends)) << "an end token in the middle";
}

TEST(TokenGrammar, TooAmbiguousIsAnErrorNotAFreeze) {
  // Every split of the text into parts of 1 to 3 rounds is another reading, with counts.
  std::string gbnf = "root ::= a{0,1000000} \"z\"\na ::= (\"x\"{1,1000} | \"x\"{1,900} \"x\"){1,1000}\n";
  const auto pieces = byte_vocabulary({std::string(60, 'x')});
  const auto state = compile(gbnf, pieces)->begin();
  std::vector<uint64_t> mask((pieces.size() + 63) / 64);
  for (int i = 0; i < 60; ++i) {
    if (auto ok = state->allowed(mask); !ok) {
      EXPECT_NE(ok.error().message.find("too many ways"), std::string::npos);
      return;
    }
    state->advance('x');
  }
}

/// A random grammar as text; rules with higher numbers only, except after a literal.
std::string random_grammar(std::mt19937& random) {
  const unsigned rules = 1 + random() % 4;
  std::string out;
  for (unsigned r = 0; r < rules; ++r) {
    const std::function<std::string(int)> part = [&](int depth) -> std::string {
      const unsigned low = random() % 3;
      switch (random() % (depth > 2 ? 3 : 8)) {
        case 0:
          return fmt::format("\"{}\"", static_cast<char>('a' + random() % 3));
        case 1:
          return fmt::format("[{}é]", static_cast<char>('a' + random() % 2));
        case 2:
          return r + 1 < rules ? fmt::format("r{}", r + 1 + random() % (rules - r - 1)) : "\"c\"";
        case 3:
          return fmt::format("({} | {})", part(depth + 1), part(depth + 1));
        case 4:
          return fmt::format("({}){}", part(depth + 1), "*+?"[random() % 3]);
        case 5:
          return fmt::format("({}){{{},{}}}", part(depth + 1), low, low + random() % 3);
        case 6:
          return fmt::format("\"a\" {} \"b\"", random() % 2 == 0 ? std::string("root") : part(depth + 1));
        default:
          return fmt::format("{} {}", part(depth + 1), part(depth + 1));
      }
    };
    out += fmt::format("{} ::= {} | {}\n", r == 0 ? std::string("root") : fmt::format("r{}", r), part(0), part(1));
  }
  return out;
}

/// The oracle: all texts of at most `limit` bytes that an expression derives, by brute force.
class Language {
 public:
  Language(const Grammar& grammar, size_t limit) : grammar_(grammar), limit_(limit), rules_(grammar.rules().size()) {
    for (bool grew = true; grew;) {
      grew = false;
      for (size_t r = 0; r < rules_.size(); ++r) {
        std::set<std::string> now = texts(grammar.rules()[r].body);
        grew |= now.size() != rules_[r].size();
        rules_[r] = std::move(now);
      }
    }
  }
  const std::set<std::string>& root() const { return rules_[static_cast<size_t>(grammar_.root)]; }

 private:
  std::set<std::string> joined(const std::set<std::string>& a, const std::set<std::string>& b) const {
    std::set<std::string> out;
    for (const auto& x : a) {
      for (const auto& y : b) {
        if (x.size() + y.size() <= limit_) out.insert(x + y);
      }
    }
    return out;
  }
  std::set<std::string> texts(Grammar::Id id) const {
    const auto& e = grammar_.expression(id);
    std::set<std::string> out;
    switch (e.kind) {
      case Kind::literal:
        if (e.bytes.size() <= limit_) out.insert(e.bytes);
        break;
      case Kind::characters:
        for (const auto& range : e.ranges) {
          for (uint32_t c = range.first; c <= range.second; ++c) out.insert(utf8(c));
        }
        break;
      case Kind::sequence:
        out = {""};
        for (const auto part : e.parts) out = joined(out, texts(part));
        break;
      case Kind::choice:
        for (const auto part : e.parts) out.merge(texts(part));
        break;
      case Kind::repeat: {
        const auto one = texts(e.parts.front());
        std::set<std::string> rounds{""};
        for (int i = 0; i <= (e.high < 0 ? static_cast<int>(limit_) + e.low : e.high); ++i) {
          if (i >= e.low) out.insert(rounds.begin(), rounds.end());
          rounds = joined(rounds, one);
        }
        break;
      }
      case Kind::rule:
        out = rules_[static_cast<size_t>(e.index)];
        break;
      case Kind::token:
        break;
    }
    return out;
  }
  const Grammar& grammar_;
  size_t limit_;
  std::vector<std::set<std::string>> rules_;
};

TEST(TokenGrammar, AgreesWithBruteForceOnRandomGrammars) {
  std::mt19937 random(5);
  const auto pieces = byte_vocabulary({"aa", "ab", "ba", "bb", "abc", "caé", "éa", "aab", "bca", "ccc", "abab"});
  constexpr size_t kLimit = 7;
  int checked = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string gbnf = random_grammar(random);
    const auto grammar = parse_gbnf(gbnf, {});
    ASSERT_TRUE(grammar) << gbnf << grammar.error().message;
    auto compiled = TokenGrammar::create(*grammar, trie(pieces), {});
    if (!compiled) continue;  // left recursion, or nothing to derive
    const Language language(*grammar, kLimit);
    std::set<std::string> beginnings;
    for (const auto& text : language.root()) {
      for (size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
    }
    const auto state = (*compiled)->begin();
    std::string text;
    for (int step = 0; step < 5; ++step) {
      EXPECT_EQ(state->may_end(), language.root().contains(text)) << gbnf << text;
      const auto mask = allowed(*state, pieces.size());
      std::vector<size_t> choices;
      for (size_t t = 0; t < pieces.size(); ++t) {
        const std::string after = text + pieces[t];
        if (bit(mask, t)) choices.push_back(t);
        // Texts near the limit may go on beyond what the oracle lists.
        if (after.size() + 2 > kLimit) continue;
        if (beginnings.contains(after)) {
          EXPECT_TRUE(bit(mask, t)) << gbnf << "'" << text << "' + '" << pieces[t] << "'";
        }
      }
      ASSERT_TRUE(!choices.empty() || state->may_end()) << "a dead end: " << gbnf << text;
      EXPECT_EQ(state->must_end(), state->may_end() && choices.empty()) << gbnf << text;
      if (choices.empty()) break;
      const size_t token = choices[random() % choices.size()];
      text += pieces[token];
      state->advance(static_cast<int32_t>(token));
      ++checked;
      if (text.size() + 2 > kLimit) break;
    }
  }
  EXPECT_GT(checked, 300);
}

TEST(TokenGrammar, MasksEqualWalkingEveryTokenByteByByte) {
  // Long counted runs: places share what a token cannot tell apart.
  std::mt19937 random(9);
  std::vector<std::string> more;
  for (int i = 0; i < 400; ++i) {
    std::string piece;
    for (unsigned k = 0; k < 2 + random() % 5; ++k) piece += "ab\",}1"[random() % 6];
    more.push_back(piece);
  }
  const auto pieces = byte_vocabulary(more);
  const auto compiled =
      compile("root ::= \"{\" (s (\",\" s)*)? \"}\"\ns ::= \"\\\"\" [ab]{3,40} \"\\\"\" | [1-9]{2,} | root", pieces);
  for (int round = 0; round < 20; ++round) {
    auto state = compiled->begin();
    std::string text;
    for (int step = 0; step < 60 && !state->must_end(); ++step) {
      const auto mask = allowed(*state, pieces.size());
      std::vector<size_t> choices;
      for (size_t t = 0; t < pieces.size() && step % 10 == 0; ++t) {
        auto again = compiled->begin();
        bool fits = true;
        for (const char c : text + pieces[t]) {
          const auto byte = static_cast<unsigned char>(c);
          fits = fits && bit(allowed(*again, pieces.size()), byte);
          if (fits) again->advance(byte);
        }
        ASSERT_EQ(bit(mask, t), fits) << text << " + " << pieces[t];
      }
      for (size_t t = 0; t < pieces.size(); ++t) {
        if (bit(mask, t)) choices.push_back(t);
      }
      ASSERT_FALSE(choices.empty());
      const size_t token = choices[random() % choices.size()];
      text += pieces[token];
      state->advance(static_cast<int32_t>(token));
    }
  }
}

}  // namespace
}  // namespace cohort::grammar
