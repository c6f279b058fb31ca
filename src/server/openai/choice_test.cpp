#include "server/openai/choice.h"

#include <gtest/gtest.h>

#include <random>

namespace cohort::server {
namespace {

/// The text that comes out when `text` goes in cut at `cuts`.
std::string through(std::string_view text, const std::vector<std::string>& stops, const std::vector<size_t>& cuts) {
  StopMatcher matcher(stops);
  std::string out;
  size_t at = 0;
  for (const size_t cut : cuts) {
    out += matcher.push(text.substr(at, cut - at));
    at = cut;
  }
  out += matcher.push(text.substr(at));
  return out + matcher.finish();
}

TEST(StopMatcher, EndsBeforeTheStopString) {
  EXPECT_EQ(through("one two three", {"two"}, {}), "one ");
  EXPECT_EQ(through("one two three", {"two"}, {5}), "one ");
  EXPECT_EQ(through("one two three", {"two"}, {5, 6}), "one ");
  EXPECT_EQ(through("one tw", {"two"}, {5}), "one tw") << "a beginning alone is no stop string";
  EXPECT_EQ(through("aaab", {"aab"}, {1, 2, 3}), "a");
  EXPECT_EQ(through("abcabd", {"abd"}, {1, 2, 3, 4, 5}), "abc");
}

TEST(StopMatcher, NothingComesAfterAMatch) {
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.push("axb"), "a");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, OneStopStringMatchesAtTheSamePlaceHoweverTheTextIsCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text, stop;
    for (unsigned i = 0; i < random() % 30; ++i) text += static_cast<char>('a' + random() % 2);
    for (unsigned i = 0; i < 1 + random() % 4; ++i) stop += static_cast<char>('a' + random() % 2);
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) {
      if (random() % 2 == 0) cuts.push_back(i);
    }
    EXPECT_EQ(through(text, {stop}, cuts), text.substr(0, text.find(stop))) << text << " " << stop;
  }
}

}  // namespace
}  // namespace cohort::server
