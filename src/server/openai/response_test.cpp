#include "server/openai/response.h"

#include <gtest/gtest.h>

namespace cohort::server {
namespace {

using nlohmann::ordered_json;

/// The JSON of an event, which must be written as the library would write it.
ordered_json parsed(const std::string& event) {
  const size_t begin = std::string_view("data: ").size();
  const auto json = ordered_json::parse(event.substr(begin), nullptr, false);
  EXPECT_EQ(event, "data: " + dump(json) + "\n\n");
  return json;
}

TEST(TextChunk, IsWhatTheClientsExpect) {
  for (const Api api : {Api::chat, Api::completions}) {
    AnswerHead head{api, "id-1", "a \"model\" \xc3\xa9", 5, false, {}};
    prepare_chunks(head);
    const std::string text = "a\nb \"c\" \\ {}% \x01 \xc3\xa9 \xf0\x9f\x98\x80";
    const ordered_json chunk = parsed(text_chunk(head, 3, text));
    EXPECT_EQ(chunk["id"], "id-1");
    EXPECT_EQ(chunk["model"], head.model);
    EXPECT_EQ(chunk["created"], 5);
    EXPECT_EQ(chunk["object"], api == Api::chat ? "chat.completion.chunk" : "text_completion");
    ASSERT_EQ(chunk["choices"].size(), 1);
    const ordered_json& choice = chunk["choices"][0];
    EXPECT_EQ(choice["index"], 3);
    EXPECT_TRUE(choice["logprobs"].is_null());
    EXPECT_TRUE(choice["finish_reason"].is_null());
    EXPECT_EQ(api == Api::chat ? choice["delta"]["content"] : choice["text"], text);
  }
}

TEST(TextChunk, BrokenTextIsMended) {
  AnswerHead head{Api::completions, "id", "m", 0, false, {}};
  prepare_chunks(head);
  EXPECT_EQ(parsed(text_chunk(head, 0, "a\xff"))["choices"][0]["text"], "a\xef\xbf\xbd");
}

TEST(TextChunk, HasTheMembersOfEveryOtherChunk) {
  for (const bool usage : {false, true}) {
    AnswerHead head{Api::chat, "id", "m", 0, usage, {}};
    prepare_chunks(head);
    ordered_json text = parsed(text_chunk(head, 0, "x"));
    ordered_json role = parsed(role_chunk(head, 0));
    text["choices"][0]["delta"] = role["choices"][0]["delta"] = nullptr;
    EXPECT_EQ(text, role);
    // Null until the last chunk has it, in streams that were asked for it.
    EXPECT_EQ(text.contains("usage"), usage);
    const ordered_json last = parsed(usage_chunk(head, {3, 4, 1}));
    EXPECT_EQ(last["usage"]["total_tokens"], 7);
    EXPECT_TRUE(last["choices"].empty());
  }
}

}  // namespace
}  // namespace cohort::server
