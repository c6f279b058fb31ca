#include "text/grammar/json_schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "text/grammar/token_grammar.h"

namespace cohort::grammar {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string>& vocabulary() {
  static const std::vector<std::string> kPieces = [] {
    std::vector<std::string> pieces;
    for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
    for (const char* more :
         {"\",", "\": ", "\":", "{\"", "\"}", "}}", "]}", ", \"", "true", "null", "12", "00", "\\n", "é", "name"})
      pieces.emplace_back(more);
    return pieces;
  }();
  return kPieces;
}

Expected<std::shared_ptr<const TokenGrammar>> compile(const Json& schema) {
  static const auto trie = [] {
    const std::vector<std::string_view> views(vocabulary().begin(), vocabulary().end());
    return std::make_shared<const TokenTrie>(views);
  }();
  auto grammar = grammar_of_schema(schema, "schema");
  if (!grammar) return tl::unexpected<Error>(grammar.error());
  return TokenGrammar::create(*grammar, trie, {});
}

/// Writes text by drawing from what is allowed; endings are preferred after a while, so that it comes to one.
std::optional<std::string> draw(const TokenGrammar& grammar, std::mt19937& random) {
  const auto state = grammar.begin();
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    if (state->must_end() || (state->may_end() && random() % 4 == 0)) return text;
    std::vector<uint64_t> mask((vocabulary().size() + 63) / 64);
    if (auto ok = state->allowed(mask); !ok) throw std::runtime_error(ok.error().message);
    std::vector<int32_t> choices, closing;
    for (size_t t = 0; t < vocabulary().size(); ++t) {
      if ((mask[t / 64] >> (t % 64) & 1) == 0) continue;
      choices.push_back(static_cast<int32_t>(t));
      if (std::string_view("\"}]0").find(vocabulary()[t][0]) != std::string_view::npos)
        closing.push_back(choices.back());
    }
    if (choices.empty()) {
      if (state->may_end()) return text;
      throw std::runtime_error("a dead end after " + text);
    }
    const auto& from = !closing.empty() && (step > 60 || random() % 3 == 0) ? closing : choices;
    const int32_t token = from[random() % from.size()];
    text += vocabulary()[static_cast<size_t>(token)];
    state->advance(token);
  }
  return std::nullopt;
}

/// An independent checker of the keywords that the random schemas use.
bool valid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const std::string name = schema["$ref"].get<std::string>();
    return valid(value, name == "#" ? root : root.at(Json::json_pointer(name.substr(1))), root);
  }
  if (schema.contains("anyOf")) {
    return std::ranges::any_of(schema["anyOf"], [&](const Json& s) { return valid(value, s, root); });
  }
  if (schema.contains("oneOf")) {
    return std::ranges::count_if(schema["oneOf"], [&](const Json& s) { return valid(value, s, root); }) == 1;
  }
  if (schema.contains("allOf")) {
    if (!std::ranges::all_of(schema["allOf"], [&](const Json& s) { return valid(value, s, root); })) return false;
  }
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) return false;
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const bool fits = std::ranges::any_of(types, [&](const Json& t) {
      const std::string type = t.get<std::string>();
      return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
             (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
             (type == "null" && value.is_null()) || (type == "number" && value.is_number()) ||
             (type == "integer" && value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    });
    if (!fits) return false;
  }
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) return false;
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) return false;
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto size =
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    if (schema.contains("minLength") && size < schema["minLength"].get<int>()) return false;
    if (schema.contains("maxLength") && size > schema["maxLength"].get<int>()) return false;
    if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
      return false;
  }
  if (value.is_array()) {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>()) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return false;
    const Json prefix = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < prefix.size()) {
        if (!valid(value[i], prefix[i], root)) return false;
      } else if (schema.contains("items") && !valid(value[i], schema["items"], root)) {
        return false;
      }
    }
  }
  if (value.is_object()) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!valid(member, properties[name], root)) return false;
      } else if (schema.contains("additionalProperties") && !valid(member, schema["additionalProperties"], root)) {
        return false;
      }
    }
  }
  return true;
}

void expect_valid_texts(const Json& schema, int rounds, std::mt19937& random, int& finished) {
  const auto grammar = compile(schema);
  ASSERT_TRUE(grammar) << schema << grammar.error().message;
  for (int i = 0; i < rounds; ++i) {
    const auto text = draw(**grammar, random);
    if (!text) continue;
    ++finished;
    const Json value = Json::parse(*text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << schema << *text;
    EXPECT_TRUE(valid(value, schema, schema)) << schema << "\n" << *text;
  }
}

TEST(JsonSchema, NamesThatAreOnlyRequiredCloseAnObject) {
  std::mt19937 random(5);
  for (const char* text : {R"({"type":"object","required":["x","y"]})", R"({"required":["x","y"]})"}) {
    const auto grammar = compile(Json::parse(text));
    ASSERT_TRUE(grammar) << grammar.error().message;
    int finished = 0;
    for (int i = 0; i < 40; ++i) {
      const auto drawn = draw(**grammar, random);
      if (!drawn) continue;
      ++finished;
      const Json value = Json::parse(*drawn);
      EXPECT_EQ(value.size(), 2U) << *drawn;
      EXPECT_TRUE(value.contains("x") && value.contains("y")) << *drawn;
    }
    EXPECT_GT(finished, 5);
  }
}

TEST(JsonSchema, TextsSatisfyTheirSchemas) {
  const char* kSchemas[] = {
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130}},"required":["name"],"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"null"},"c":{"const":{"x":[1,"é"]}}},"additionalProperties":{"type":"integer"}})",
      R"({"type":"object","properties":{"ab":{"type":"boolean"},"a":{"type":"null"},"q\"":{"type":"null"}},"required":["ab","zz"],"additionalProperties":{"type":"integer"}})",
      R"({"type":"array","items":{"type":"number","exclusiveMinimum":-3.5,"maximum":12},"minItems":2,"maxItems":4})",
      R"({"type":"array","prefixItems":[{"type":"string","maxLength":3},{"type":"integer"}],"items":{"type":"boolean"},"minItems":1,"maxItems":5})",
      R"({"enum":["red","gréen",5,null,{"a":1},[1,2.5]]})",
      R"({"type":["string","null"],"minLength":2,"maxLength":5})",
      R"({"anyOf":[{"type":"string","pattern":"^[a-c]{2,3}\\d+$"},{"type":"integer","minimum":-120,"maximum":-7}]})",
      R"x({"type":"string","pattern":"x[^a-y\"]|^\\\\(ab|c)?$"})x",
      R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"v":{"type":"string"}},"required":["kind"]},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]},{"type":"string"}]})",
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b"]}]})",
      R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},"required":["v","kids"],"additionalProperties":false}},"$ref":"#/$defs/tree"})",
      R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]})",
      R"({"type":"object"})",
      R"(true)",
      R"({"type":"number"})",
      R"({"type":"object","required":["x"]})",
      R"({"type":"integer","exclusiveMinimum":98,"exclusiveMaximum":1002})",
  };
  std::mt19937 random(1);
  for (const char* text : kSchemas) {
    int finished = 0;
    expect_valid_texts(Json::parse(text), 60, random, finished);
    EXPECT_GT(finished, 8) << text;
  }
}

TEST(JsonSchema, IntegerBoundsAreExact) {
  for (const auto& [low, high] :
       {std::pair{0, 0}, {7, 7}, {-3, 12}, {95, 1005}, {-1005, -95}, {-9, -1}, {1, 100}, {199, 201}}) {
    const auto grammar = compile(Json{{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    ASSERT_TRUE(grammar);
    for (int value = low - 30; value <= high + 30; ++value) {
      const auto state = (*grammar)->begin();
      bool fits = true;
      for (const char c : std::to_string(value)) {
        std::vector<uint64_t> mask((vocabulary().size() + 63) / 64);
        ASSERT_TRUE(state->allowed(mask));
        const auto byte = static_cast<unsigned char>(c);
        fits = fits && (mask[byte / 64] >> (byte % 64) & 1) != 0;
        if (fits) state->advance(byte);
      }
      EXPECT_EQ(fits && state->may_end(), value >= low && value <= high) << value << " in " << low << " to " << high;
    }
  }
}

TEST(JsonSchema, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"type":"object","patternProperties":{"a":{}}})", "patternProperties"},
      {R"({"properties":{"deep":{"items":{"not":{}}}}})", "schema.properties.deep.items.not"},
      {R"({"type":"integer","multipleOf":3})", "multipleOf"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "pattern"},
      {R"({"type":"string","pattern":"a\\b"})", "pattern"},
      {R"({"type":"string","pattern":"[a-z]","minLength":3})", "minLength"},
      {R"({"type":"string","format":"regex"})", "regex"},
      {R"({"$ref":"https://example.org/x"})", "$ref"},
      {R"({"$ref":"#/$defs/none"})", "nowhere"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "anyOf"},
      {R"({"type":"text"})", "type"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "bounds"},
      {R"({"enum":[]})", "enum"},
      {R"({"type":"string","enum":[1]})", "enum"},
      {R"({"type":"array","minItems":-1})", "minItems"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no text"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text"},
      {R"({"$ref":"#"})", "no text"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "begins with itself"},
      {R"({"anyOf":[{"type":"string"}],"properties":{}})", "properties"},
      {R"([])", "schema"},
      {R"({"frobnicate":1})", "frobnicate"},
  };
  for (const auto& [schema, word] : kWrong) {
    const auto grammar = compile(Json::parse(schema));
    ASSERT_FALSE(grammar) << schema;
    EXPECT_NE(grammar.error().message.find(word), std::string::npos) << schema << grammar.error().message;
  }
}

Json random_schema(std::mt19937& random, int depth) {
  const auto number = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  switch (number(depth > 2 ? 6 : 10)) {
    case 0:
      return {{"type", "string"}, {"minLength", number(3)}, {"maxLength", 3 + number(30)}};
    case 1: {
      const int low = number(2000) - 1000;
      return {{"type", number(2) == 0 ? "integer" : "number"}, {"minimum", low}, {"maximum", low + number(3000)}};
    }
    case 2:
      return {{"enum", {number(10), "a\"b", "ü", nullptr, number(5) + 0.5}}};
    case 3:
      return {{"type", {"boolean", "null"}}};
    case 4:
      return {{"const", fmt::format("c{}", number(9))}};
    case 5:
      return depth > 0 && number(3) == 0 ? Json{{"anyOf", {Json{{"$ref", "#"}}, Json{{"type", "null"}}}}}
                                         : Json{{"type", "number"}};
    case 6: {
      Json array{{"type", "array"}, {"items", random_schema(random, depth + 1)}, {"minItems", number(3)}};
      if (number(2) == 0) array["maxItems"] = 2 + number(4);
      return array;
    }
    case 7:
      return {{"anyOf", {random_schema(random, depth + 1), random_schema(random, depth + 1)}}};
    default: {
      Json object{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
      for (int i = 0; i < 1 + number(4); ++i) {
        const std::string name = fmt::format("{}{}", static_cast<char>('a' + number(3)), number(2) == 0 ? "b" : "");
        object["properties"][name] = random_schema(random, depth + 1);
        if (number(2) == 0) object["required"].push_back(name);
      }
      if (number(3) > 0)
        object["additionalProperties"] = number(2) == 0 ? Json(false) : random_schema(random, depth + 1);
      return object;
    }
  }
}

TEST(JsonSchema, RandomSchemasGiveValidTexts) {
  std::mt19937 random(11);
  int finished = 0;
  for (int i = 0; i < 250; ++i) {
    const Json schema = random_schema(random, 0);
    const auto grammar = compile(schema);
    if (!grammar) {
      // Recursion that never ends is the one thing that makes such a schema impossible.
      EXPECT_TRUE(grammar.error().message.find("no text") != std::string::npos ||
                  grammar.error().message.find("begins with itself") != std::string::npos)
          << schema << grammar.error().message;
      continue;
    }
    expect_valid_texts(schema, 8, random, finished);
  }
  EXPECT_GT(finished, 1000);
}

}  // namespace
}  // namespace cohort::grammar
