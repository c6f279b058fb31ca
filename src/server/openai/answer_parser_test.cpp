#include "server/openai/answer_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace cohort::server {
namespace {

/// An answer's parts as one line: content, {reasoning}, call(arguments).
std::string shown(const std::vector<AnswerPart>& parts) {
  std::string out;
  bool open = false;
  for (const AnswerPart& part : parts) {
    if (part.kind != AnswerPart::Kind::arguments && open) {
      out += ")";
      open = false;
    }
    switch (part.kind) {
      case AnswerPart::Kind::content:
        out += part.text;
        break;
      case AnswerPart::Kind::reasoning:
        out += fmt::format("{{{}}}", part.text);
        break;
      case AnswerPart::Kind::call:
        out += fmt::format("{}:{}(", part.call, part.text);
        open = true;
        break;
      case AnswerPart::Kind::arguments:
        out += part.text;
        break;
    }
  }
  if (open) out += ")";
  return out;
}

std::string parse(const AnswerSyntax& syntax, std::string_view text, std::mt19937* random = nullptr, bool cut = false) {
  AnswerParser parser(syntax);
  std::vector<AnswerPart> all;
  const auto add = [&](std::vector<AnswerPart> parts) {
    for (AnswerPart& part : parts) {
      // Pieces of one part belong together, however they came.
      if (!all.empty() && all.back().kind == part.kind && part.kind != AnswerPart::Kind::call) {
        all.back().text += part.text;
      } else {
        all.push_back(std::move(part));
      }
    }
  };
  while (!text.empty()) {
    const size_t size = random == nullptr ? text.size() : 1 + (*random)() % std::min<size_t>(text.size(), 5);
    add(parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  add(parser.finish(cut));
  return shown(all);
}

const AnswerSyntax kHermes{true, false, ToolFormat::hermes, {"f", "g"}};
const AnswerSyntax kOpenThought{true, true, ToolFormat::hermes, {"f"}};
const AnswerSyntax kThoughtOnly{true, false, ToolFormat::none, {}};
const AnswerSyntax kMistral{false, false, ToolFormat::mistral, {"f", "g"}};
const AnswerSyntax kLlama{false, false, ToolFormat::llama, {"f", "g"}};

const AnswerSyntax kHarmony{true, false, ToolFormat::harmony, {"f", "g"}, "", "", true};
const AnswerSyntax kHarmonyWithoutTools{true, false, ToolFormat::none, {}, "", "", true};

struct Case {
  const AnswerSyntax* syntax;
  const char *text, *parts;
};
const Case kCases[] = {
    {&kHermes, "Hello <b>", "Hello <b>"},
    {&kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>",
     "0:f({\"a\": [1, \"}\"]})"},
    {&kHermes,
     "Look:\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call> ok",
     "Look:0:f({})1:g({})ok"},
    {&kHermes, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", "0:f({\"x\": 1})"},
    {&kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>", "0:f({\"x\": 1})"},
    {&kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": ", "0:f({\"x\": )"},
    {&kHermes, "<tool_call> nothing </tool_call> of it", "<tool_call> nothing </tool_call> of it"},
    {&kHermes, "<think>\nhm, <tool_call>?\n</think>\n\nYes", "{hm, <tool_call>?}Yes"},
    {&kHermes, "<think>no end", "{no end}"},
    {&kHermes, "a < b and <tool", "a < b and <tool"},
    {&kOpenThought, "so\n</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>", "{so}0:f({})"},
    {&kThoughtOnly, "<think>x</think><tool_call>{\"name\": \"f\"}</tool_call>",
     "{x}<tool_call>{\"name\": \"f\"}</tool_call>"},
    {&kThoughtOnly, "just <think>text</think>", "just <think>text</think>"},
    {&kMistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
     "0:f({\"a\": 1})1:g({})"},
    {&kMistral, "Well. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "Well.0:f({})"},
    {&kMistral, "[TOOL] no", "[TOOL] no"},
    {&kLlama, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "0:f({\"a\": \"b\"})"},
    {&kLlama, "<|python_tag|>{\"name\": \"g\", \"parameters\": {}}", "0:g({})"},
    {&kLlama, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "0:f({})1:g({})"},
    {&kLlama, "{\"name\": \"unknown\", \"parameters\": {}} text", "{\"name\": \"unknown\", \"parameters\": {}} text"},
    {&kLlama, "{\"title\": 5}", "{\"title\": 5}"},
    {&kLlama, "{ not JSON", "{ not JSON"},
    {&kLlama, "Hi {\"name\": \"f\"}", "Hi {\"name\": \"f\"}"},
    {&kHarmony, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes", "{hm}Yes"},
    {&kHarmony, "<|channel|>final<|message|>Yes<|return|>", "Yes"},
    {&kHarmony, " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", "0:f({\"a\": 1})"},
    {&kHarmony,
     "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary to=functions.g "
     "<|constrain|>json<|message|><|call|>",
     "{so}0:g({})"},
    {&kHarmony, "<|channel|>commentary<|message|>Look.<|end|><|start|>assistant<|channel|>final<|message|>Here.",
     "Look.\n\nHere."},
    {&kHarmony,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|start|>assistant"
     "<|channel|>final<|message|>c",
     "{a\n\nb}c"},
    {&kHarmony, "Hello <|channel|>", "Hello <|channel|>"},
    {&kHarmony, "{\"a\": 1}", "{\"a\": 1}"},
    {&kHarmony, "<|channel|>final", "<|channel|>final"},
    {&kHarmony, "<|channel|>final<|message|>a <|en b <|e", "a <|en b <|e"},
    {&kHarmonyWithoutTools, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
     "{\"a\": 1}"},
    {&kHarmonyWithoutTools, "<|channel|>analysis<|message|>hm", "{hm}"},
};

TEST(AnswerParser, FindsThoughtsCallsAndContent) {
  for (const Case& c : kCases) EXPECT_EQ(parse(*c.syntax, c.text), c.parts) << c.text;
}

TEST(AnswerParser, WhatWasBecomingACallWhenTheTokensWereUsedUpIsNoContent) {
  const AnswerSyntax gemma{true, false, ToolFormat::gemma, {"f"}, "<|channel>thought", "<channel|>"};
  const Case cases[] = {
      {&kHermes, "Look <too", "Look"},
      {&kHermes, "<", ""},
      {&kHermes, "<thi", ""},
      {&kHermes, "<tool_call>", ""},
      {&kHermes, "<tool_call>\n{\"na", ""},
      {&kHermes, "Well: <tool_call>{\"name\": \"f", "Well:"},
      {&kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": ", "0:f({\"x\": )"},
      {&kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_c", "0:f({})"},
      {&kHermes, "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool", "0:f({})"},
      {&kHermes, "<tool_call> nothing </tool", "<tool_call> nothing </tool"},
      {&kHermes, "a < b", "a < b"},
      {&kHermes, "<think>hm</thi", "{hm}"},
      {&kOpenThought, "so </think", "{so}"},
      {&kThoughtOnly, "a <tool", "a <tool"},
      {&kMistral, "Well [TOOL_C", "Well"},
      {&kMistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"na", "0:f({})"},
      {&kLlama, "{\"na", ""},
      {&kLlama, "<|python", ""},
      {&kLlama, "{ \"name\": \"unknown\", \"p", "{ \"name\": \"unknown\", \"p"},
      {&kLlama, "{\"title\": [1, 2", "{\"title\": [1, 2"},
      {&kLlama, "Hi <|python", "Hi <|python"},
      {&gemma, "Yes <|tool_ca", "Yes"},
      {&kHarmony, "<|chan", ""},
      {&kHarmony, "<|channel|>fin", ""},
      {&kHarmony, "<|channel|>final<|message|>Yes<|en", "Yes"},
      {&kHarmony, "<|channel|>analysis<|message|>x<|end|><|start|>assis", "{x}"},
      {&kHarmony, " to=functions.f<|channel|>commentary json<|message|>{\"a\": ", "0:f({\"a\": )"},
      {&gemma, "<|tool_call>call:", ""},
      {&gemma, "<|tool_call>call:f{}<tool", "0:f({})"},
  };
  std::mt19937 random(4);
  for (const Case& c : cases) {
    EXPECT_EQ(parse(*c.syntax, c.text, nullptr, true), c.parts) << c.text;
    for (int round = 0; round < 20; ++round) EXPECT_EQ(parse(*c.syntax, c.text, &random, true), c.parts) << c.text;
  }
}

TEST(AnswerParser, ItDoesNotMatterHowTheTextIsCut) {
  std::mt19937 random(2);
  for (const Case& c : kCases) {
    for (int round = 0; round < 40; ++round) EXPECT_EQ(parse(*c.syntax, c.text, &random), c.parts) << c.text;
  }
}

TEST(AnswerParser, ArgumentsAreStreamed) {
  AnswerParser parser(kHermes);
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f").empty());
  EXPECT_EQ(shown(parser.push("\", \"arguments\": {\"a\": \"lo")), "0:f({\"a\": \"lo)");
  EXPECT_EQ(parser.push("ng").front().text, "ng");
  EXPECT_EQ(parser.push("\"}").front().text, "\"}");
  EXPECT_TRUE(parser.push("}</tool_call>").empty());
}

TEST(AnswerParser, RandomTextIsNeverLost) {
  // Without markers, all of it is content.
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text = "x";
    for (unsigned i = 0; i < random() % 40; ++i) text += "<{\"}t[T _/>"[random() % 11];
    EXPECT_EQ(parse(kHermes, text, &random), text);
    EXPECT_EQ(parse(kMistral, text, &random), text);
  }
}

}  // namespace
}  // namespace cohort::server
