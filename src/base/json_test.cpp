#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cohort {
namespace {

using nlohmann::json;

std::string error_of(std::string_view text) {
  auto parsed = parse_json(text, "x.json");
  return parsed ? "" : parsed.error().message;
}

TEST(ParseJson, BuildsTheSameDocumentAsTheLibrary) {
  std::string text =
      R"({"a":[1,-2,3.5,true,null,"x\u00e9",[],{}],"b":{"c":{"d":[{"e":1},{"e":2}]}},"z":18446744073709551615})";
  auto parsed = parse_json(text, "x.json");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(*parsed, json::parse(text));
  EXPECT_EQ(*parse_json("3", "x.json"), json(3));
}

TEST(ParseJson, NamesFileAndPosition) {
  EXPECT_NE(error_of("{\"a\": 1,}").find("'x.json': invalid JSON at byte 9"), std::string::npos)
      << error_of("{\"a\": 1,}");
  for (const char* bad : {"", "{", "[1", "nul", "{\"a\"}", "1 2", "\"\xff\"", "{\"a\":1e999}", "[1,]"}) {
    EXPECT_NE(error_of(bad), "") << bad;
  }
}

TEST(ParseJson, RefusesDuplicateKeys) {
  EXPECT_NE(error_of(R"({"a":{"k":1,"k":2}})").find("key 'k' occurs twice"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a":{"k":1},"b":{"k":2}})"), "");
}

TEST(ParseJson, LimitsNesting) {
  auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(kMaxJsonDepth)), "");
  EXPECT_NE(error_of(nested(kMaxJsonDepth + 1)).find("deeper than 256"), std::string::npos);
  EXPECT_NE(error_of(std::string(1000000, '[')), "");
}

TEST(JsonObject, TypedLookups) {
  json document = json::parse(R"({"i":-3,"u":18446744073709551615,"f":2.5,"s":"t","b":true,"n":null,"o":{"k":7}})");
  JsonObject object(document, "config.json");
  EXPECT_EQ(*object.get_int("i"), -3);
  EXPECT_EQ(*object.get_number("f"), 2.5);
  EXPECT_EQ(*object.get_number("i"), -3.0);
  EXPECT_EQ(*object.get_string("s"), "t");
  EXPECT_EQ(*object.get_bool("b"), true);
  EXPECT_EQ(*object.get_object("o")->get_int("k"), 7);
  EXPECT_EQ(*object.get_int("n", 5), 5);
  EXPECT_EQ(*object.get_int("absent", 6), 6);
  EXPECT_EQ(object.get_int("n").error().code, ErrorCode::not_found);
  EXPECT_EQ(object.get_int("absent").error().message, "config.json: key 'absent' is missing");
  EXPECT_EQ(object.get_int("s", 1).error().message, "config.json: key 's' has type string; an integer is needed");
  EXPECT_EQ(object.get_int("f").error().code, ErrorCode::corrupt);
  EXPECT_EQ(object.get_int("u").error().code, ErrorCode::corrupt);
  EXPECT_EQ(object.get_bool("i").error().code, ErrorCode::corrupt);
  EXPECT_EQ(object.get_object("o")->get_bool("k").error().message,
            "config.json: o: key 'k' has type number; true or false is needed");
}

}  // namespace
}  // namespace cohort
