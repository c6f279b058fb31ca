#include "text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

using Strings = std::vector<std::string>;

Expected<Strings> try_matches(std::string_view pattern, std::string_view text, const TokenizerLimits& limits = {}) {
  auto compiled = Pattern::compile(pattern, limits);
  if (!compiled) {
    return tl::unexpected<Error>(compiled.error());
  }
  MatchScratch scratch(limits, text.size());
  scratch.has_additions = has_unicode_additions(text);
  MatchIterator iterator(*compiled, text, scratch);
  Strings out;
  Match match;
  while (true) {
    const auto found = iterator.next(match);
    if (!found) {
      return tl::unexpected<Error>(found.error());
    }
    if (!*found) {
      return out;
    }
    out.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
}

Strings matches(std::string_view pattern, std::string_view text) {
  auto result = try_matches(pattern, text);
  return result ? *result : Strings{"error: " + result.error().message};
}

// All expected values below were produced by `tokenizers` 0.23.3: Split(Regex(pattern), "removed", invert=True).
TEST(Regex, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(matches(R"(\s)", "\u180E\u0085\u00A0\u200B\x1C"), (Strings{"\u0085", "\u00A0"}));
  EXPECT_EQ(matches(R"(\v)", "\x0B\n"), (Strings{"\x0B"}));
  EXPECT_EQ(matches(R"(\h)", "af \u00A0g"), (Strings{"a", "f"}));
  EXPECT_EQ(matches(R"(^b)", "a\nb"), (Strings{"b"}));
  EXPECT_EQ(matches(R"(a$)", "a\nb"), (Strings{"a"}));
  EXPECT_EQ(matches(R"(a.b)", "a\nb"), (Strings{}));
  EXPECT_EQ(matches(R"(a.b)", "a\rb"), (Strings{"a\rb"}));
  EXPECT_EQ(matches(R"((?m:a.b))", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(matches(R"(a{,2})", "aaaa"), (Strings{"aa", "aa"}));
  EXPECT_EQ(matches(R"(a{1,2}+b)", "aaab"), (Strings{"aaab"}));
  EXPECT_EQ(matches(R"([a-z&&[^b]]+)", "abc"), (Strings{"a", "c"}));
  EXPECT_EQ(matches(R"([[a-c][x-z]]+)", "abxz"), (Strings{"abxz"}));
  EXPECT_EQ(matches(R"((?i:'s))", "'\u017F 'S"), (Strings{"'\u017F", "'S"}));
  EXPECT_EQ(matches(R"(\p{Han}+)", "\u3005\u6F22\u5B57\u3001\u3007"), (Strings{"\u3005\u6F22\u5B57", "\u3007"}));
  EXPECT_EQ(matches(R"(\p{letter}+)", "ab1"), (Strings{"ab"}));
  EXPECT_EQ(matches(R"(\p{^L}+)", "ab1"), (Strings{"1"}));
  EXPECT_EQ(matches(R"(\P{L}+)", "ab1"), (Strings{"1"}));
  EXPECT_EQ(matches(R"(\w+)", "a\u00E9\u0308_1\u00B2\u2167\u24D0\u203F-"),
            (Strings{"a\u00E9\u0308_1\u00B2\u2167\u24D0\u203F"}));
  EXPECT_EQ(matches(R"(\d+)", "12\u00B2\u0663"), (Strings{"12", "\u0663"}));
  EXPECT_EQ(matches(R"(\bab)", "\u00E4ab ab"), (Strings{"ab"}));
  EXPECT_EQ(matches(R"([[:punct:]]+)", "a!$+^~\u00AB\u00BB"), (Strings{"!$+^~\u00AB\u00BB"}));
  EXPECT_EQ(matches(R"(\p{Punct}+)", "a!$+^~\u00AB\u00BB"), (Strings{"!", "\u00AB\u00BB"}));
  EXPECT_EQ(matches(R"(\x{41}\u0042)", "AB"), (Strings{"AB"}));
  EXPECT_EQ(matches(R"(\Qa\E)", "QaE"), (Strings{"QaE"}));
  EXPECT_EQ(matches(R"(\R)", "\r\n\n"), (Strings{"\r\n", "\n"}));
  EXPECT_EQ(matches(R"([]a]+)", "]a"), (Strings{"]a"}));
  EXPECT_EQ(matches(R"([^]a]+)", "]ab"), (Strings{"b"}));
  EXPECT_EQ(matches(R"((?x: a b ))", "ab"), (Strings{"ab"}));
  EXPECT_EQ(matches(R"(a# b)", "a# b"), (Strings{"a# b"}));
  EXPECT_EQ(matches(R"([\b])", "\x08z"), (Strings{"\x08"}));
  EXPECT_EQ(matches(R"(\07)", "\x07"), (Strings{"\x07"}));
  EXPECT_EQ(matches(R"((a|aa)+b)", " aaab"), (Strings{"aaab"}));
}

TEST(Regex, ClassOperations) {
  EXPECT_EQ(matches(R"([^a-z&&[^b]]+)", "abcA"), (Strings{"b", "A"}));
  EXPECT_EQ(matches(R"([\P{L}a]+)", "ab1 a"), (Strings{"a", "1 a"}));
  EXPECT_EQ(matches(R"([^\P{L}a]+)", "ab1 ac"), (Strings{"b", "c"}));
  EXPECT_EQ(matches(R"([\S&&[^\d]]+)", "ab12 c"), (Strings{"ab", "c"}));
  EXPECT_EQ(matches(R"([a\-z]+)", "a-zb"), (Strings{"a-z"}));
  EXPECT_EQ(matches(R"([a-]+)", "a-b"), (Strings{"a-"}));
}

TEST(Regex, OptionsReachToTheEndOfTheirGroup) {
  // As Oniguruma has it: what follows (?i) is one group, alternatives included.
  EXPECT_EQ(matches(R"(a(?i)b|c)", "aB aC c"), (Strings{"aB", "aC"}));
  EXPECT_EQ(matches(R"((a(?i)b)c)", "aBc aBC"), (Strings{"aBc"}));
}

TEST(Regex, KnowsCharactersNewerThanTheLibrary) {
  // U+10D4A is a letter of Unicode 16, U+31350 a Han character of Unicode 15.
  EXPECT_EQ(matches(R"(\p{L}+)", "a\U00010D4A\U00031350 1"), (Strings{"a\U00010D4A\U00031350"}));
  EXPECT_EQ(matches(R"([^\p{L}]+)", "a\U00010D4A 1"), (Strings{" 1"}));
  EXPECT_EQ(matches(R"(\p{Han}+)", "a\U00031350"), (Strings{"\U00031350"}));
  EXPECT_EQ(matches(R"(\P{N}+)", "a\U00010D40"), (Strings{"a"}));
}

TEST(Regex, EmptyMatchesMoveOn) {
  EXPECT_EQ(matches("x*", "axxb"), (Strings{"", "xx", ""}));
  EXPECT_EQ(matches("", "\u00E9a"), (Strings{"", "", ""}));
  EXPECT_EQ(matches("(?=b)", "abb"), (Strings{"", ""}));
  EXPECT_EQ(matches("a", ""), (Strings{}));
}

TEST(Regex, FindsMatchesFarApart) {
  std::string text(100000, 'a');
  text += "\u4E2D" + std::string(50001, 'b');
  EXPECT_EQ(matches("\u4E2D", text), (Strings{"\u4E2D"}));
  EXPECT_EQ(matches("c", text), (Strings{}));
}

TEST(Regex, RefusesWhatItCannotTranslate) {
  for (const char* pattern : {"(",         ")",        "a)",       "[a",        "*a",           "(?<n",
                              "(?z:a)",    R"(\k<n>)", R"((a)\1)", R"(\p{L)",   R"([[:alpha])", R"(\x{110000})",
                              R"(\uD800)", "a{2}?",    R"([b-a])", R"([a-\d])", "\\",           R"(\p{No Such Script})",
                              R"(\G)",     "(?~a)",    "\xFF"}) {
    const auto result = try_matches(pattern, "a");
    ASSERT_FALSE(result) << pattern;
    EXPECT_EQ(result.error().code, ErrorCode::unsupported) << pattern;
    EXPECT_NE(result.error().message.find("regular expression"), std::string::npos) << result.error().message;
  }
  EXPECT_FALSE(Pattern::compile(std::string(100, '(') + std::string(100, ')'), {}));
  EXPECT_FALSE(Pattern::compile(std::string(20000, 'a'), {}));
}

TEST(Regex, CostlyPatternsAreErrorsNotMisses) {
  // Exponential: the step limit.
  auto result = try_matches("(?:a|aa|a+)+b|c", std::string(60, 'a') + "c");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::capacity);
  // Each match is cheap, all of them together are not (a limit that no machine can keep: time must not decide a test).
  TokenizerLimits limits;
  limits.pattern_seconds = 1e-9;
  limits.pattern_seconds_per_megabyte = 0;
  result = try_matches("a", std::string(1000000, 'a'), limits);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::capacity);
}

TEST(Regex, LongRunsMatchWhole) {
  const std::string run(3000000, 'x');
  EXPECT_TRUE(matches(R"(\p{L}+)", run) == (Strings{run}));
  // A group in each round needs a stack: it must suffice, or the interpreter must take over.
  EXPECT_TRUE(matches(R"((?:\p{Lu}|\p{Ll})+)", run) == (Strings{run}));
  EXPECT_TRUE(matches(R"([\p{L}&&[^\p{Han}]]+y?)", run) == (Strings{run}));
}

}  // namespace
}  // namespace cohort::text
