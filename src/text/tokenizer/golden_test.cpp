// The fixtures of tests/golden/tokenizer (see tools/make_tokenizer_fixtures.py): ids and texts that `tokenizers` and
// `sentencepiece` give, through tokenizer.json and through GGUF metadata.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/pre_types.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

using nlohmann::json;

json read_fixture(const std::string& name) {
  auto value = read_json_file(std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/tokenizer" / (name + ".json"));
  EXPECT_TRUE(value) << value.error().message;
  return value ? *value : json::object();
}

std::vector<std::string> read_texts() {
  std::vector<std::string> out;
  for (const json& entry : read_fixture("texts")) {
    std::string bytes;
    if (entry.contains("text")) {
      bytes = entry["text"].get<std::string>();
    } else {
      const auto hex = entry["hex"].get<std::string>();
      for (size_t i = 0; i < hex.size(); i += 2) {
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      }
    }
    out.push_back(std::move(bytes));
  }
  return out;
}

/// The deterministic options of string `i`; `plain`: none of them.
struct Options {
  Options(size_t i, bool plain)
      : encode{.add_special = !plain && i % 2 == 1, .parse_special = !plain && i % 5 != 4},
        skip_special(!plain && i % 4 < 2) {}
  EncodeOptions encode;
  bool skip_special;
};

void check(const std::string& name, const Tokenizer& tokenizer, const json& expected,
           const std::vector<std::string>& texts, bool plain = false) {
  ASSERT_EQ(expected["ids"].size(), texts.size());
  size_t compared = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (expected["ids"][i].is_null()) {
      continue;
    }
    ++compared;
    const Options options(i, plain);
    const auto ids = tokenizer.encode(texts[i], options.encode);
    ASSERT_TRUE(ids) << name << " " << i << ": " << ids.error().message;
    const auto wanted = expected["ids"][i].get<std::vector<int32_t>>();
    EXPECT_EQ(*ids, wanted) << name << ", string " << i << ": " << texts[i];
    const auto decoded = tokenizer.decode(wanted, options.skip_special);
    ASSERT_TRUE(decoded) << name << " " << i << ": " << decoded.error().message;
    const json& text = expected["decoded"][i];
    EXPECT_EQ(*decoded, text.is_null() ? repair_utf8(texts[i]) : text.get<std::string>()) << name << ", string " << i;
    // The stream gives the same text, whole characters at a time.
    Detokenizer detokenizer(tokenizer, {.skip_special = options.skip_special});
    std::string streamed;
    for (const int32_t id : wanted) {
      const std::string piece = detokenizer.push(id);
      EXPECT_TRUE(is_valid_utf8(piece));
      streamed += piece;
    }
    EXPECT_EQ(streamed + detokenizer.finish(), *decoded);
  }
  EXPECT_GT(compared, texts.size() / 2);
}

Tokenizer from_json(const json& value) {
  auto tokenizer = Tokenizer::from_huggingface(value.dump());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

TEST(Golden, ByteLevelFamilies) {
  const auto texts = read_texts();
  const json fixture = read_fixture("byte_level");
  const auto tokens = fixture["tokens"].get<std::vector<std::string>>();
  std::set<std::string> names;
  for (const json& family : fixture["families"]) {
    const auto name = family["name"].get<std::string>();
    names.insert(name);
    json file = family["tokenizer"];
    for (size_t i = 0; i < tokens.size(); ++i) {
      file["model"]["vocab"][tokens[i]] = i;
    }
    file["model"]["merges"] = fixture["merges"];
    check(name + " (json)", from_json(file), family, texts);

    TokenizerData data;
    data.model = "gpt2";
    data.pre = name;
    data.tokens = tokens;
    data.token_types.assign(tokens.size(), 1);
    for (const json& added : file["added_tokens"]) {
      const auto id = added["id"].get<size_t>();
      data.tokens.resize(std::max(data.tokens.size(), id + 1));
      data.token_types.resize(data.tokens.size(), 1);
      data.tokens[id] = added["content"].get<std::string>();
      data.token_types[id] = added["special"].get<bool>() ? 3 : 4;
    }
    for (const json& merge : fixture["merges"]) {
      data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    data.bos_id = data.eos_id = 0;
    data.add_bos = family["add_bos"].get<bool>();
    const auto tokenizer = Tokenizer::from_gguf(data);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    check(name + " (gguf)", *tokenizer, family, texts);
  }
  for (const char* required :
       {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-llm", "deepseek-v3", "deepseek-coder"}) {
    EXPECT_TRUE(names.count(required)) << required;
  }
}

TokenizerData data_of(const json& metadata) {
  TokenizerData data;
  data.model = metadata["model"];
  data.pre = metadata.value("pre", "");
  data.tokens = metadata["tokens"].get<std::vector<std::string>>();
  data.token_types = metadata["token_type"].get<std::vector<int32_t>>();
  data.scores = metadata.value("scores", std::vector<float>());
  data.merges = metadata.value("merges", std::vector<std::string>());
  for (const uint8_t byte : metadata.value("precompiled_charsmap", std::vector<uint8_t>())) {
    data.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  const auto id = [&](const char* key) {
    return metadata.contains(key) ? std::optional<int32_t>(metadata[key].get<int32_t>()) : std::nullopt;
  };
  data.bos_id = id("bos_token_id");
  data.eos_id = id("eos_token_id");
  data.unk_id = id("unknown_token_id");
  const auto flag = [&](const char* key) {
    return metadata.contains(key) ? std::optional<bool>(metadata[key].get<bool>()) : std::nullopt;
  };
  data.add_bos = flag("add_bos_token");
  data.add_eos = flag("add_eos_token");
  data.add_space_prefix = flag("add_space_prefix");
  data.remove_extra_whitespaces = flag("remove_extra_whitespaces");
  return data;
}

class GoldenFile : public testing::TestWithParam<const char*> {};

TEST_P(GoldenFile, MatchesBothRoutes) {
  const std::string name = GetParam();
  const auto texts = read_texts();
  const json fixture = read_fixture(name);
  check(name + " (json)", from_json(fixture["tokenizer"]), fixture["json"], texts);
  const auto tokenizer = Tokenizer::from_gguf(data_of(fixture["gguf"]["metadata"]));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  check(name + " (gguf)", *tokenizer, fixture["gguf"], texts, name != "gemma4");
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenFile, testing::Values("gemma4", "llama-spm", "unigram", "unigram-nfkc"));

TEST(PreTypes, EveryPatternCompilesAndEveryNameIsUnique) {
  std::set<std::string_view> names;
  for (const PreType& type : pre_types()) {
    for (const auto name : type.names) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(find_pre_type(name), &type);
      EXPECT_NE(known_pre_names().find(name), std::string::npos);
    }
    for (const auto pattern : type.patterns) {
      const auto compiled = Pattern::compile(pattern, {});
      EXPECT_TRUE(compiled) << type.names.front() << ": " << compiled.error().message;
    }
  }
  EXPECT_EQ(find_pre_type("no such name"), nullptr);
}

}  // namespace
}  // namespace cohort::text
