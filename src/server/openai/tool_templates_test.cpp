// Calls as the chat templates of real models write them (tests/golden/template: texts recorded from Jinja2), read back.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "server/openai/answer_parser.h"
#include "server/openai/tools.h"

namespace cohort::server {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/template";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A template, what stands before an assistant's text, and what ends it.
struct Family {
  const char *name, *begin, *end;
  ToolFormat format;
};
const Family kFamilies[] = {
    {"qwen2_5", "<|im_start|>assistant\n", "<|im_end|>", ToolFormat::hermes},
    {"qwen3", "<|im_start|>assistant\n", "<|im_end|>", ToolFormat::hermes},
    {"mistral", "[/INST]", "</s>", ToolFormat::mistral},
    {"llama3_1", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", ToolFormat::llama},
    {"gemma4", "<|turn>model\n", "<turn|>", ToolFormat::gemma},
    {"gpt_oss", "<|start|>assistant", "<|call|>", ToolFormat::harmony},
};

/// The first text of the assistant in a recorded conversation; empty when the template refuses the conversation.
std::string recorded(const Family& family, std::string_view conversation) {
  const auto golden = ordered_json::parse(read(kFolder / (std::string("chat_") + family.name + ".json")));
  for (const auto& entry : golden["cases"]) {
    if (entry["conversation"] != conversation || !entry.contains("expected")) continue;
    const std::string text = entry["expected"];
    const size_t begin = text.find(family.begin);
    if (begin == std::string::npos) return {};
    const std::string rest = text.substr(begin + std::string_view(family.begin).size());
    return rest.substr(0, std::min(rest.find(family.end), rest.find("<|tool_response>")));
  }
  return {};
}

struct Calls {
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::string content;
  size_t pieces = 0;  // of arguments
};

Calls parse(const Family& family, std::string_view text, std::mt19937& random) {
  AnswerSyntax syntax;
  const std::string source = read(kFolder / (std::string(family.name) + ".jinja"));
  const TemplateTools tools = tools_of_template(source);
  EXPECT_TRUE(tools.native) << family.name;
  EXPECT_EQ(tools.format, family.format) << family.name;
  syntax.reasoning = reasons(source);
  syntax.harmony = speaks_harmony(source);
  syntax.tools = tools.format;
  syntax.tool_names = {"get_weather", "now"};
  AnswerParser parser(syntax);
  Calls out;
  const auto take = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::call) out.calls.emplace_back(part.text, "");
      if (part.kind == AnswerPart::Kind::content) out.content += part.text;
      if (part.kind == AnswerPart::Kind::arguments) {
        out.calls.at(part.call).second += part.text;
        ++out.pieces;
      }
    }
  };
  while (!text.empty()) {
    const size_t size = 1 + random() % std::min<size_t>(text.size(), 6);
    take(parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  take(parser.finish(false));
  return out;
}

TEST(ToolTemplates, RecordedCallsAreReadBack) {
  const auto weather =
      ordered_json::parse(R"({"city": "K\u00f6ln", "days": 2, "exact": true, "limit": null, "ratio": 0.5})");
  std::mt19937 random(1);
  for (const Family& family : kFamilies) {
    const std::string text = recorded(family, "tool call");
    ASSERT_FALSE(text.empty()) << family.name;
    for (int round = 0; round < 50; ++round) {
      const Calls got = parse(family, text, random);
      ASSERT_EQ(got.calls.size(), 1) << family.name << ": " << text;
      EXPECT_EQ(got.calls[0].first, "get_weather") << family.name;
      EXPECT_EQ(ordered_json::parse(got.calls[0].second, nullptr, false), weather) << family.name << ": " << text;
      EXPECT_EQ(got.content, "") << family.name;
      EXPECT_GT(got.pieces, 3) << family.name << ": arguments are streamed";
    }
  }
}

TEST(ToolTemplates, SeveralRecordedCallsAreReadBack) {
  std::mt19937 random(2);
  int families = 0;
  for (const Family& family : kFamilies) {
    const std::string text = recorded(family, "two tool calls");
    if (text.empty() || family.format == ToolFormat::harmony) continue;  // these take one call a message
    ++families;
    const Calls got = parse(family, text, random);
    ASSERT_EQ(got.calls.size(), 2) << family.name << ": " << text;
    EXPECT_EQ(got.calls[0].first, "get_weather");
    EXPECT_EQ(got.calls[1].first, "now");
    EXPECT_EQ(ordered_json::parse(got.calls[1].second, nullptr, false), ordered_json::object()) << family.name;
  }
  EXPECT_GE(families, 4);
}

TEST(ToolTemplates, GemmaValuesBecomeJson) {
  const struct {
    const char *text, *json;
  } cases[] = {
      {"{}", "{}"},
      {R"({a:<|"|>x "y" \z
<|"|>})",
       R"({"a": "x \"y\" \\z\u000a"})"},
      {R"({a:<|"|><|b|> <|"<|"|>,b:-1.5e3})", R"({"a": "<|b|> <|\"", "b": -1.5e3})"},
      {R"({list:[1,<|"|>two<|"|>,[],{k:None}],z:true})", R"({"list": [1, "two", [], {"k": null}], "z": true})"},
      {R"({<|"|>a key<|"|>:False, b: word })", R"({"a key": false, "b": "word"})"},
  };
  for (const auto& c : cases) {
    GemmaCall call;
    std::string json;
    for (const char byte : std::string("call:f.g-1") + c.text) json += call.push(byte);
    EXPECT_TRUE(call.done()) << c.text;
    EXPECT_EQ(json, std::string(R"({"name": "f.g-1", "arguments": )") + c.json + "}");
  }
  for (const char* text : {"call f{}", "call:{}", "call:f g{}", "call:f{a:1]", "call:f{a:<|\"|>x<|\"|>y}"}) {
    GemmaCall call;
    for (const char* byte = text; *byte != 0; ++byte) call.push(*byte);
    EXPECT_TRUE(call.broken()) << text;
    EXPECT_TRUE(std::string_view(text).starts_with(call.raw())) << text;
  }
}

}  // namespace
}  // namespace cohort::server
