// Any bytes as a chat template, over a fixed conversation and under small limits: it renders or fails, and nothing else
// happens.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/template/template.h"

namespace {

using Json = nlohmann::ordered_json;

const Json& context() {
  static const Json conversation = Json::parse(R"({
    "name": "Ada", "empty": "", "text": "  Hello, World!  ", "lines": "one\ntwo\r\n\nthree\n", "uni": "Grüße 日本 🎉 ß ΟΔΟΣ",
    "n": 7, "z": 0, "neg": -3, "big": 18446744073709551615, "f": 2.5, "t": true, "no": false, "nil": null,
    "nums": [3, 1, 2], "mixed": [1, "a", null, 2.5, true, [1], {"k": 1}], "words": ["b", "A", "c"], "nested": [[1, 2], [3, 4]],
    "d": {"b": 1, "a": {"x": [1, 2]}, "items": 5}, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "<think>\nx\n</think>Yo", "tool_calls": [
                   {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {"a": [1, "b"], "c": null}}}]},
                 {"role": "tool", "content": "21", "tool_call_id": "123456789"},
                 {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "é"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "does f", "parameters": {
                 "type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"type": ["integer", "null"]}}}}}],
    "documents": [{"title": "t", "text": "u"}], "enable_thinking": false})");
  return conversation;
}

std::tm fixed_clock() {
  std::tm time{};
  time.tm_year = 124, time.tm_mday = 1;
  return time;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cohort::TemplateLimits limits;
  limits.source_bytes = 1 << 16;
  limits.steps = 200'000;
  limits.output_bytes = 1 << 18;
  limits.memory_bytes = 1 << 22;
  auto parsed = cohort::Template::parse({reinterpret_cast<const char*>(data), size}, limits);
  auto check = [](const cohort::Error& error) {
    if (error.message.empty() || error.code == cohort::ErrorCode::internal) std::abort();
  };
  if (!parsed) {
    check(parsed.error());
    return 0;
  }
  auto first = parsed->render(context(), fixed_clock), second = parsed->render(context(), fixed_clock);
  if (!first) check(first.error());
  if (first.has_value() != second.has_value() || (first && *first != *second))
    std::abort();  // not a function of its input
  return 0;
}
