#include "text/grammar/string_formats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/grammar/json_schema.h"
#include "text/grammar/token_grammar.h"

namespace cohort::grammar {
namespace {

using Json = nlohmann::ordered_json;

Expected<std::shared_ptr<const TokenGrammar>> compile(const Json& schema) {
  static const auto trie = [] {
    static std::vector<std::string> bytes;
    for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
    return std::make_shared<const TokenTrie>(std::vector<std::string_view>(bytes.begin(), bytes.end()));
  }();
  auto grammar = grammar_of_schema(schema, "schema");
  if (!grammar) return tl::unexpected<Error>(grammar.error());
  return TokenGrammar::create(*grammar, trie, {});
}

/// Whether the schema's grammar has this text, byte by byte.
bool accepts(const Json& schema, std::string_view text) {
  const auto grammar = compile(schema);
  if (!grammar) throw std::runtime_error(grammar.error().message);
  const auto state = (*grammar)->begin();
  for (const char c : text) {
    std::vector<uint64_t> mask(4);
    if (const auto made = state->allowed(mask); !made) throw std::runtime_error(made.error().message);
    const auto byte = static_cast<unsigned char>(c);
    if ((mask[byte / 64] >> (byte % 64) & 1) == 0) return false;
    state->advance(byte);
  }
  return state->may_end();
}

bool has_format(const char* format, const char* text) {
  return accepts({{"type", "string"}, {"format", format}}, Json(text).dump());
}

TEST(StringFormats, AcceptWhatTheStandardsDo) {
  const std::pair<const char*, std::vector<const char*>> kGood[] = {
      {"date", {"2026-01-31", "2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30", "0000-02-29"}},
      {"time", {"23:59:59Z", "00:00:00.123456789+14:00"}},
      {"date-time", {"2024-02-29T12:00:00Z", "2026-10-31T12:00:00.5-03:30"}},
      {"duration", {"P1Y", "P1Y2M3DT4H5M6S", "PT36H", "P3W", "P2M10D", "PT5M", "P1DT1S"}},
      {"email", {"a@b.cc", "john.o'neil+x@mail.Example.org"}},
      {"hostname", {"a", "Example.org", "a-b.c9.example.co.uk", "127.0.0.1"}},
      {"ipv4", {"0.0.0.0", "255.249.99.1"}},
      {"ipv6",
       {"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
        "::ffff:192.0.2.1", "1:2:3:4:5:6:1.2.3.4", "1::8", "fe80::1:2:3.4.5.6"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-42661417400F"}},
      {"uri",
       {"https://example.org/a/b?c=d#e", "mailto:a@example.org", "urn:isbn:0451450523", "a:", "http://u:p@h:80",
        "http://[::1]:8080/x", "file:///etc/hosts", "ftp://h/%7Ea//", "x://h?/?#/?", "data:,A%20b"}},
      {"uri-reference", {"", "../a/b", "?q", "#f", "//host/x", "/abs", "a/b:c", "https://example.org/"}},
      {"json-pointer", {"", "/", "/a/0/~0~1", "/é \"x\""}},
      {"relative-json-pointer", {"0", "1/a", "12#"}},
  };
  for (const auto& [format, texts] : kGood) {
    for (const char* text : texts) EXPECT_TRUE(has_format(format, text)) << format << " " << text;
  }
}

TEST(StringFormats, RefuseEverythingElse) {
  const std::pair<const char*, std::vector<const char*>> kBad[] = {
      {"date", {"2023-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-00-10", "2026-1-1", "x2026-01-01"}},
      {"time", {"24:00:00Z", "12:60:00Z", "12:00:00", "12:00:00.Z", "12:00Z"}},
      {"date-time", {"2026-10-31 12:00:00Z", "2026-10-32T12:00:00Z"}},
      {"duration", {"P", "PT", "P1H", "P1Y1D", "PT1H1S", "P1W1D", "1D", "P1S"}},
      {"email", {"a@b", "@b.cc", ".a@b.cc", "a.@b.cc", "a@-b.cc", "a b@c.dd", "a@b.c1"}},
      {"hostname", {"", "-a", "a-", "a..b", ".a", "a.", "a_b"}},
      {"ipv4", {"256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"}},
      {"ipv6",
       {"", ":", "1", ":::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7:8::", "12345::", "::1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.256", "g::"}},
      {"uuid", {"123e4567-e89b-12d3-a456-42661417400", "123e4567e89b12d3a456426614174000"}},
      {"uri",
       {"", "//host", "example.org/x y", "1a:b", ":a", "http://h:8x/", "a:b#c#d", "a:%2", "http://[1]/", "a:\"b\"",
        "http://a\\b", "a/b:c"}},
      {"uri-reference", {"1a:b", "a b", "%", "a#b#c", ":a"}},
      {"json-pointer", {"a", "/~", "/~2"}},
      {"relative-json-pointer", {"", "01", "/a", "-1"}},
  };
  for (const auto& [format, texts] : kBad) {
    for (const char* text : texts) EXPECT_FALSE(has_format(format, text)) << format << " " << text;
  }
}

TEST(StringFormats, LengthsThatAFormatKeepsToAnyway) {
  const auto with = [](const char* format, int low, int high) {
    return Json{{"type", "string"}, {"format", format}, {"minLength", low}, {"maxLength", high}};
  };
  EXPECT_TRUE(accepts(with("date", 1, 10), "\"2026-01-31\""));
  EXPECT_TRUE(accepts(with("email", 3, 320), "\"a@b.cc\""));
  for (const auto& [schema, word] : {std::pair{with("date", 0, 9), "maxLength"},
                                     {with("uuid", 37, 40), "minLength"},
                                     {with("json-pointer", 0, 100), "maxLength"},
                                     {with("uri", 1, 50), "maxLength"}}) {
    const auto grammar = compile(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_NE(grammar.error().message.find(word), std::string::npos) << grammar.error().message;
  }
  // URIs become shorter in each of their parts.
  for (const int longest : {100, 150, 300, 2083}) {
    const Json schema = with("uri", 1, longest);
    EXPECT_TRUE(accepts(schema, "\"https://example.org/a?b#c\"")) << longest;
    EXPECT_TRUE(accepts(schema, "\"http://[2001:db8:aaaa:bbbb:cccc:dddd:192.168.100.100]/\"")) << longest;
    const auto grammar = compile(schema);
    ASSERT_TRUE(grammar);
    // As long as it gets, always with what takes most room.
    const auto state = (*grammar)->begin();
    std::string text;
    for (const char* wanted = "\"%:/?#"; text.size() < 10000;) {
      std::vector<uint64_t> mask(4);
      ASSERT_TRUE(state->allowed(mask));
      const auto allowed = [&](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (mask[byte / 64] >> (byte % 64) & 1) != 0;
      };
      char next = 0;
      const std::string_view order = text.size() < 13 ? "\"aA" : "%F:/?#\"";
      for (const char c : order) {
        if (next == 0 && allowed(c) && !(c == '"' && !text.empty() && text.size() < 13)) next = c;
      }
      ASSERT_NE(next, 0) << text << wanted;
      text += next;
      state->advance(static_cast<unsigned char>(next));
      if (text.size() > 1 && next == '"') break;
    }
    EXPECT_LE(static_cast<int>(text.size()) - 2, longest) << text;
    EXPECT_TRUE(state->may_end());
  }
}

TEST(StringFormats, OfNumbers) {
  const auto of = [](const char* type, const char* format) { return Json{{"type", type}, {"format", format}}; };
  EXPECT_TRUE(accepts(of("integer", "int32"), "-2147483648"));
  EXPECT_FALSE(accepts(of("integer", "int32"), "2147483648"));
  EXPECT_TRUE(accepts(of("integer", "uint8"), "255"));
  EXPECT_FALSE(accepts(of("integer", "uint8"), "-1"));
  EXPECT_TRUE(accepts(of("integer", "int64"), "-123456789012345"));
  EXPECT_TRUE(accepts(of("number", "double"), "1.5e3"));
  EXPECT_FALSE(accepts(of("number", "float"), "1e99"));
  EXPECT_TRUE(accepts(of("integer", "date"), "5"));  // says nothing of numbers
  EXPECT_FALSE(compile(of("integer", "roman")));
  const Json tight{{"type", "integer"}, {"format", "uint8"}, {"minimum", 7}, {"maximum", 1000}};
  EXPECT_FALSE(accepts(tight, "6"));
  EXPECT_TRUE(accepts(tight, "255"));
  EXPECT_FALSE(accepts(tight, "256"));
}

TEST(MultipleOf, PowersOfTen) {
  const auto of = [](const char* type, double step, int low, int high) {
    return Json{{"type", type}, {"multipleOf", step}, {"minimum", low}, {"maximum", high}};
  };
  for (int value = -60; value <= 160; ++value) {
    EXPECT_EQ(accepts(of("integer", 10, -41, 120), std::to_string(value)),
              value % 10 == 0 && value >= -41 && value <= 120)
        << value;
  }
  EXPECT_FALSE(accepts(of("integer", 10, -41, 120), "00"));
  EXPECT_TRUE(accepts(of("number", 0.01, 0, 5), "4.25"));
  EXPECT_FALSE(accepts(of("number", 0.01, 0, 5), "4.255"));
  EXPECT_TRUE(accepts(of("number", 0.01, 0, 5), "5"));
  EXPECT_TRUE(accepts({{"type", "number"}, {"multipleOf", 0.1}}, "-17.5"));
  EXPECT_FALSE(accepts({{"type", "number"}, {"multipleOf", 0.1}}, "1e5"));
  EXPECT_FALSE(accepts({{"type", "number"}, {"multipleOf", 1}}, "1.5"));
  EXPECT_TRUE(accepts({{"type", "integer"}, {"multipleOf", 0.5e1 * 20}}, "-300"));
  EXPECT_FALSE(compile({{"type", "number"}, {"multipleOf", 0.25}}));
  EXPECT_FALSE(compile(of("integer", 100, 1, 99)));
}

TEST(UniqueItems, OfFewValues) {
  const Json colors{{"type", "array"}, {"items", {{"enum", {"r", "g", "b", 1, 1.0}}}}, {"uniqueItems", true}};
  for (const char* text : {"[]", R"(["r"])", R"(["b", "r"])", R"(["g","b",1,"r"])"}) {
    EXPECT_TRUE(accepts(colors, text)) << text;
  }
  for (const char* text : {R"(["r","r"])", R"(["b","r","b"])", "[1,1.0]", R"(["x"])", R"(["r",])"}) {
    EXPECT_FALSE(accepts(colors, text)) << text;
  }
  Json two = colors;
  two["minItems"] = 2;
  two["maxItems"] = 3;
  EXPECT_FALSE(accepts(two, R"(["r"])"));
  EXPECT_TRUE(accepts(two, R"(["r",1])"));
  EXPECT_FALSE(accepts(two, R"(["r",1,"g","b"])"));
  two["minItems"] = 5;
  EXPECT_FALSE(compile(two));  // there are four values
  const Json flags{{"type", "array"}, {"items", {{"type", "boolean"}}}, {"uniqueItems", true}};
  EXPECT_TRUE(accepts(flags, "[false, true]"));
  EXPECT_FALSE(accepts(flags, "[true, true]"));
  const Json referred{{"$defs", {{"c", {{"type", "string"}, {"enum", {"x", "y"}}, {"title", "C"}}}}},
                      {"type", "array"},
                      {"items", {{"$ref", "#/$defs/c"}}},
                      {"uniqueItems", true}};
  EXPECT_TRUE(accepts(referred, R"(["y","x"])"));
  EXPECT_FALSE(accepts(referred, R"(["y","y"])"));
  Json beside = referred;  // what stands beside a reference restricts it as well, so that the values are not known
  beside["items"]["enum"] = {"z"};
  EXPECT_FALSE(compile(beside));
  Json same{{"type", "array"}, {"minItems", 2}, {"uniqueItems", true}};
  same["items"]["enum"] = {Json{{"a", 1}, {"b", 2}}, Json{{"b", 2.0}, {"a", 1}}};
  EXPECT_FALSE(compile(same));  // one value in two spellings
  // One item, or none, is unique whatever it is.
  EXPECT_TRUE(accepts({{"type", "array"}, {"items", {{"type", "string"}}}, {"maxItems", 1}, {"uniqueItems", true}},
                      R"(["any"])"));
  Json many{{"type", "array"}, {"items", {{"enum", Json::array()}}}, {"uniqueItems", true}};
  for (int i = 0; i < 11; ++i) many["items"]["enum"].push_back(i);
  const auto refused = compile(many);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'schema.uniqueItems'"), std::string::npos) << refused.error().message;
  many["items"]["enum"].erase(10);
  EXPECT_TRUE(accepts(many, "[9,0,8,1,7,2,6,3,5,4]"));
  EXPECT_FALSE(accepts(many, "[9,0,8,1,7,2,6,3,5,4,9]"));
}

TEST(UniqueItems, ManyOfThemAreRefusedBeforeTheyFillTheMemory) {
  Json values = Json::array();
  for (int i = 0; i < 10; ++i) values.push_back(i);
  const Json list{{"type", "array"}, {"items", {{"enum", values}}}, {"uniqueItems", true}};
  Json schema{{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 5000; ++i) schema["properties"][fmt::format("p{}", i)] = list;
  const auto refused = compile(schema);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::capacity) << refused.error().message;
}

}  // namespace
}  // namespace cohort::grammar
