#include "base/ordered_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace cohort {
namespace {

TEST(OrderedJson, KeepsTheOrderAndRepeatedNames) {
  for (const char* text : {R"({"b":1,"a":[{"z":null,"c":2.5},[],{}],"":"x"})", "[]", "5", R"("a")", "null"})
    EXPECT_EQ(parse_ordered_json(text, "x")->dump(), text);
  const auto twice = parse_ordered_json(R"({"a":1,"a":2})", "x");
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->size(), 2U);
  EXPECT_EQ(twice->at("a"), 1);
}

TEST(OrderedJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1,", "{\"a\"}", "nul", "[1] x", "\"\xff\""}) {
    const auto result = parse_ordered_json(text, "the text");
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ErrorCode::corrupt);
    EXPECT_NE(result.error().message.find("the text"), std::string::npos);
  }
  EXPECT_TRUE(parse_ordered_json(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']'), "x"));
  EXPECT_FALSE(parse_ordered_json(std::string(100000, '['), "x"));
}

TEST(OrderedJson, LargeObjectsTakeATimeThatGrowsWithTheirSize) {
  std::string text = "{";
  constexpr int kNames = 300000;
  for (int i = 0; i < kNames; ++i) text += "\"name" + std::to_string(i) + "\":0,";
  text += "\"end\":{}}";
  const auto begin = std::chrono::steady_clock::now();
  const auto result = parse_ordered_json(text, "x");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->size(), kNames + 1U);
  // Looking every name up among those before it would take more than a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

}  // namespace
}  // namespace cohort
