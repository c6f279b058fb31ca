#include "formats/huggingface/huggingface.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "formats/test_bytes.h"

namespace cohort::huggingface {
namespace {

TEST(HuggingFaceFolder, ReadsWhatIsThere) {
  TestFolder folder;
  folder.write("config.json", R"({"model_type":"qwen3"})");
  auto bare = Folder::open(folder.path());
  ASSERT_TRUE(bare.has_value()) << bare.error().message;
  EXPECT_EQ(bare->config()["model_type"], "qwen3");
  EXPECT_EQ(bare->generation_config(), nullptr);
  EXPECT_EQ(bare->tokenizer_config(), nullptr);
  EXPECT_FALSE(bare->chat_template().has_value());
  EXPECT_FALSE(bare->has_tokenizer());
  EXPECT_EQ(bare->tokenizer().error().code, ErrorCode::not_found);

  folder.write("generation_config.json", R"({"top_k":20})");
  folder.write("tokenizer_config.json", R"({"chat_template":"{{ x }}"})");
  folder.write("tokenizer.json", R"({"model":{"type":"BPE"}})");
  auto full = Folder::open(folder.path());
  ASSERT_TRUE(full.has_value()) << full.error().message;
  EXPECT_EQ((*full->generation_config())["top_k"], 20);
  EXPECT_EQ(*full->chat_template(), "{{ x }}");
  EXPECT_EQ((*full->tokenizer())["model"]["type"], "BPE");

  folder.write("chat_template.jinja", "from a file\n");
  EXPECT_EQ(*Folder::open(folder.path())->chat_template(), "from a file\n");
}

TEST(HuggingFaceFolder, NamedTemplates) {
  TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"tools","template":"T"},{"name":"default","template":"D"}]})");
  EXPECT_EQ(*Folder::open(folder.path())->chat_template(), "D");
  folder.write("tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_FALSE(Folder::open(folder.path())->chat_template().has_value());
  for (const char* bad : {R"({"chat_template":3})", R"({"chat_template":[{"name":"tools","template":"T"}]})",
                          R"({"chat_template":[3]})", R"({"chat_template":[{"name":"default"}]})"}) {
    folder.write("tokenizer_config.json", bad);
    auto opened = Folder::open(folder.path());
    ASSERT_FALSE(opened.has_value()) << bad;
    EXPECT_TRUE(contains(opened.error().message, "without a template named 'default'")) << opened.error().message;
  }
}

TEST(HuggingFaceFolder, BadFiles) {
  TestFolder folder;
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "has no config.json"));
  EXPECT_TRUE(contains(Folder::open(folder / "none").error().message, "is no folder"));
  folder.write("config.json", "[1]");
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "config.json' holds array"));
  folder.write("config.json", "{\"a\":");
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "config.json': invalid JSON at byte 6"))
      << Folder::open(folder.path()).error().message;
  folder.write("config.json", "{}");
  folder.write("generation_config.json", "nope");
  EXPECT_TRUE(contains(Folder::open(folder.path()).error().message, "generation_config.json"));
}

}  // namespace
}  // namespace cohort::huggingface
