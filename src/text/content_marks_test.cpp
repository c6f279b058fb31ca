#include "text/content_marks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/template/template.h"
#include "text/tokenizer/test_files.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

text::Tokenizer tokenizer(bool normalized) {
  nlohmann::json file = text::byte_level_file();
  if (normalized) file["added_tokens"][0]["normalized"] = true;
  auto result = text::Tokenizer::from_huggingface(file.dump());
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

Ids bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

constexpr int32_t kEnd = 300;

/// Tokens of `source` rendered with `content`, whose special tokens are text.
Ids encoded(const text::Tokenizer& tokenizer, std::string_view source, const Json& content) {
  const auto parsed = Template::parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message;
  Json context{{"content", content}};
  const Json* texts[] = {&context};
  const auto marks = ContentMarks::create(tokenizer, texts);
  EXPECT_TRUE(marks);
  marks->put_into(context);
  const auto rendered = parsed->render(context);
  EXPECT_TRUE(rendered) << rendered.error().message;
  const MarkedText text = marks->take_out(*rendered);
  EXPECT_EQ(text.text.find("\uFDD0"), std::string::npos);
  const auto ids = tokenizer.encode(text.text, {.add_special = false, .literal = text.literal});
  EXPECT_TRUE(ids);
  return *ids;
}

TEST(ContentMarks, SpecialTokensOfContentsAreTextAndTheTemplatesAreTokens) {
  for (const bool normalized : {false, true}) {
    const text::Tokenizer t = tokenizer(normalized);
    Ids expected = bytes("a<|end|>b");
    expected.push_back(kEnd);
    EXPECT_EQ(encoded(t, "{{ content }}<|end|>", "a<|end|>b"), expected);
    EXPECT_EQ(encoded(t, "{{ content.strip() }}<|end|>", " a<|end|>b\n"), expected);
    // Spellings that begin inside of another, beside each other, and at both ends.
    expected = bytes("<|end<|end|><|end|>");
    expected.push_back(kEnd);
    EXPECT_EQ(encoded(t, "{{ content }}<|end|>", "<|end<|end|><|end|>"), expected);
    // As JSON, with names, and in ASCII.
    expected = bytes(R"({"<|end|>": "x<|end|>"})");
    expected.push_back(kEnd);
    EXPECT_EQ(encoded(t, "{{ content | tojson }}<|end|>", Json{{"<|end|>", "x<|end|>"}}), expected);
    EXPECT_EQ(encoded(t, "{{ content | tojson(ensure_ascii=True) }}<|end|>", Json{{"<|end|>", "x<|end|>"}}), expected);
  }
}

TEST(ContentMarks, LeavesEverythingElseAlone) {
  const text::Tokenizer t = tokenizer(false);
  // Added tokens that are not special are tokens wherever they stand, as in the tokenizers package.
  EXPECT_EQ(encoded(t, "{{ content }}", "<tool>"), Ids{301});
  EXPECT_EQ(encoded(t, "<|end|>{{ content }}<|end|>", "x"), (Ids{kEnd, 'x', kEnd}));
  Json kept{{"content", "a<|end|>"}};
  const Json* texts[] = {&kept};
  const auto marks = ContentMarks::create(t, texts);
  constexpr std::string_view kExcept[] = {"<|end|>"};
  marks->put_into(kept, kExcept);
  EXPECT_EQ(kept["content"], "a<|end|>");
}

TEST(ContentMarks, TakesAMarkThatNoTextHas) {
  const text::Tokenizer t = tokenizer(false);
  Json context{{"content", "\uFDD0<|end|>\\ufdd1"}};
  const Json* texts[] = {&context};
  const auto marks = ContentMarks::create(t, texts);
  ASSERT_TRUE(marks);
  marks->put_into(context);
  EXPECT_EQ(context["content"], "\uFDD0<\uFDD2|end|>\\ufdd1");
  const MarkedText text = marks->take_out(context["content"].get<std::string>());
  EXPECT_EQ(text.text, "\uFDD0<|end|>\\ufdd1");
  EXPECT_EQ(text.literal, std::vector<size_t>{3});
  std::string all;
  for (char32_t c = 0xFDD0; c < 0xFDF0; ++c) text::append_utf8(all, c);
  context["content"] = all;
  EXPECT_FALSE(ContentMarks::create(t, texts));
}

}  // namespace
}  // namespace cohort
