#include "convert/model_card.h"

#include <gtest/gtest.h>

namespace cohort::convert_detail {
namespace {

TEST(ModelCard, FrontMatter) {
  const ModelCard card = parse_model_card(
      "---\r\nlicense: other # see below\r\nlicense_name: 'a \"name\"'\nlicense_link: \"https://example.org/x#y\"\n"
      "tags:\n- one\n- base_model: no\nbase_model:\n  - org/Model-7B\n  - \"org2/m_2.5\"\nmodel-index:\n"
      "  license: nested\n---\nlicense: text\n");
  EXPECT_EQ(card.license, "other");
  EXPECT_EQ(card.license_name, "a \"name\"");
  EXPECT_EQ(card.license_link, "https://example.org/x#y");
  EXPECT_EQ(card.base_models, (std::vector<std::string>{"org/Model-7B", "org2/m_2.5"}));
  EXPECT_EQ(parse_model_card("---\nbase_model: [a/b, 'c/d',]\n---").base_models,
            (std::vector<std::string>{"a/b", "c/d"}));
  EXPECT_EQ(parse_model_card("---\nbase_model: a/b\n---\n").base_models, std::vector<std::string>{"a/b"});
}

TEST(ModelCard, WhatIsNoFrontMatter) {
  for (const char* text : {"", "---", "# Title\nlicense: mit\n", "---\nlicense: mit\n", "\n---\nlicense: mit\n---\n",
                           "---\nlicense:\n---\n", "---\nlicense: []\n---\n", "---\nlicense: [\n---\n"}) {
    EXPECT_EQ(parse_model_card(text).license, "") << text;
  }
}

TEST(ModelCard, Keys) {
  gguf::Metadata out;
  ASSERT_TRUE(out.add("general.license", gguf::Value(std::string("cc0-1.0"))));
  ASSERT_TRUE(add_model_card({"mit", "name", "link", {"org/Model-7B", "../local", "x/y/z", "a/b?c"}}, out));
  EXPECT_EQ(*out.get_string("general.license"), "cc0-1.0");  // what is there stays
  EXPECT_EQ(*out.get_string("general.license.name"), "name");
  EXPECT_EQ(*out.get_string("general.license.link"), "link");
  EXPECT_EQ(*out.get_u32("general.base_model.count"), 4U);
  EXPECT_EQ(*out.get_string("general.base_model.0.name"), "Model-7B");
  EXPECT_EQ(*out.get_string("general.base_model.0.organization"), "org");
  EXPECT_EQ(*out.get_string("general.base_model.0.repo_url"), "https://huggingface.co/org/Model-7B");
  EXPECT_EQ(*out.get_string("general.base_model.1.name"), "../local");
  for (const char* key :
       {"general.base_model.1.repo_url", "general.base_model.2.organization", "general.base_model.3.repo_url"}) {
    EXPECT_FALSE(out.contains(key)) << key;
  }
}

}  // namespace
}  // namespace cohort::convert_detail
