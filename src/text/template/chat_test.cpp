#include "text/template/chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

Expected<std::string> chat(const std::string& source, const Json& messages, const ChatOptions& options = {}) {
  auto parsed = Template::parse(source);
  if (!parsed) return tl::unexpected(parsed.error());
  return render_chat(*parsed, messages, options);
}

const Json kHello = Json::array({{{"role", "user"}, {"content", "Hi"}}});

TEST(Chat, OffersTheVariablesOfTransformers) {
  EXPECT_EQ(chat("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token is defined }}", kHello).value(),
            "None None True False");
  Json tools = Json::array({{{"type", "function"}}}), variables = {{"enable_thinking", false}, {"bos_token", "<b>"}};
  ChatOptions options;
  options.tools = &tools;
  options.add_generation_prompt = false;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.variables = &variables;
  EXPECT_EQ(
      chat("{{ tools | tojson }} {{ add_generation_prompt }} {{ bos_token }}{{ eos_token }} {{ enable_thinking }}",
           kHello, options)
          .value(),
      "[{\"type\": \"function\"}] False <b></s> False");
}

TEST(Chat, DropsNullsAndFillsReasoning) {
  Json messages = Json::array({{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "hm"}}});
  EXPECT_EQ(chat("{{ messages[0] }}", messages).value(),
            "{'thinking': 'hm', 'role': 'assistant', 'reasoning': 'hm', 'reasoning_content': 'hm'}");
}

TEST(Chat, RefusesWhatIsNoConversation) {
  auto expect = [](const Expected<std::string>& result, const std::string& words) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  expect(chat("", Json::object()), "messages must be an array of messages, not object");
  expect(chat("", Json::array()), "messages is empty");
  expect(chat("", Json::array({1})), "messages[0] must be an object, not number");
  expect(chat("{{ raise_exception('Only user and model!') }}", kHello), "Only user and model!");
  Json wrong = "x", messages = {{"messages", 1}};
  ChatOptions options;
  options.tools = &wrong;
  expect(chat("", kHello, options), "tools must be an array, not string");
  options.tools = nullptr;
  options.variables = &wrong;
  expect(chat("", kHello, options), "variables of a chat template must be an object");
  options.variables = &messages;
  expect(chat("", kHello, options), "the variable 'messages' of a chat template has its own parameter");
}

}  // namespace
}  // namespace cohort
