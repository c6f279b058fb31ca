// Tokenizers from GGUF metadata.
#include <gtest/gtest.h>

#include "text/tokenizer/gguf_data.h"
#include "text/tokenizer/test_files.h"

namespace cohort::text {
namespace {

using Ids = std::vector<int32_t>;

/// The tokenizer of byte_level_file() as GGUF has it.
TokenizerData byte_level_data() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.tokens.resize(262);
  const nlohmann::json file = byte_level_file();
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    data.tokens[id.get<size_t>()] = token;
  }
  data.token_types.assign(262, 1);
  data.tokens[261] = "<|end|>";
  data.token_types[261] = 3;
  for (const auto& merge : file["model"]["merges"]) {
    data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  data.eos_id = 261;
  return data;
}

TokenizerData llama_data() {
  TokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab"};
  data.scores = {0, 0, 0, -5, -6, -7, -1, -2};
  data.token_types = {2, 3, 3, 1, 1, 1, 1, 1};
  return data;
}

Ids encode(const Expected<Tokenizer>& tokenizer, std::string_view text, EncodeOptions options = {}) {
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = tokenizer->encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return *ids;
}

TEST(GgufTokenizer, ByteLevel) {
  const auto tokenizer = Tokenizer::from_gguf(byte_level_data());
  EXPECT_EQ(encode(tokenizer, "hello w<|end|>"), (Ids{259, 260, 261}));
  EXPECT_EQ(*tokenizer->decode(Ids{259, 260, 261}), "hello w");
  EXPECT_EQ(*tokenizer->decode(Ids{259, 260, 261}, false), "hello w<|end|>");
  EXPECT_TRUE(tokenizer->is_end(261));
  EXPECT_EQ(tokenizer->description(), "byte-level BPE, pre-tokenizer gpt-2, 262 tokens");
}

TEST(GgufTokenizer, PreTokenizers) {
  TokenizerData data = byte_level_data();
  data.pre = "no-such";
  const auto unknown = Tokenizer::from_gguf(data);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::unsupported);
  for (const char* part : {"no-such", "qwen2", "llama-bpe", "deepseek-v3", "gpt-4o"}) {
    EXPECT_NE(unknown.error().message.find(part), std::string::npos) << unknown.error().message;
  }
  data.pre = "";  // "default", with a warning
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "hello w"), (Ids{259, 260}));
  data.pre = "qwen2";  // normalizes
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "e\u0301"), (Ids{0xC3, 0xA9}));
  data.pre = "llama-bpe";  // puts <bos> in front unless the file says otherwise, or has none
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "a"), (Ids{'a'}));
  data.bos_id = 261;
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "a"), (Ids{261, 'a'}));
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "a", {.add_special = false}), (Ids{'a'}));
  data.add_bos = false;
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "a"), (Ids{'a'}));
  data.add_eos = true;
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "a"), (Ids{'a', 261}));
}

TEST(GgufTokenizer, Llama) {
  TokenizerData data = llama_data();
  auto tokenizer = Tokenizer::from_gguf(data);
  EXPECT_EQ(encode(tokenizer, "ab a"), (Ids{1, 6, 5, 6}));
  EXPECT_EQ(encode(tokenizer, "xyab"), (Ids{1, 3, 0, 7}));
  EXPECT_EQ(encode(tokenizer, "a</s>a", {.add_special = false}), (Ids{6, 2, 6}));
  EXPECT_EQ(*tokenizer->decode(Ids{1, 6, 5, 6}), "ab a");
  EXPECT_TRUE(tokenizer->is_end(2));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  data.add_space_prefix = false;
  tokenizer = Tokenizer::from_gguf(data);
  EXPECT_EQ(encode(tokenizer, "ab a"), (Ids{1, 7, 6}));
  EXPECT_EQ(*tokenizer->decode(Ids{6, 5}), " ab");
  data.remove_extra_whitespaces = true;
  EXPECT_EQ(encode(Tokenizer::from_gguf(data), "  ab   a "), (Ids{1, 7, 6}));
}

TEST(GgufTokenizer, Contradictions) {
  const auto expect = [](const TokenizerData& data, ErrorCode code, std::string_view part) {
    const auto result = Tokenizer::from_gguf(data);
    ASSERT_FALSE(result) << part;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  };
  TokenizerData data = byte_level_data();
  data.model = "rwkv";
  expect(data, ErrorCode::unsupported, "gpt2, llama");
  data = byte_level_data();
  data.tokens.clear();
  expect(data, ErrorCode::corrupt, "no tokens");
  data = byte_level_data();
  data.token_types.pop_back();
  expect(data, ErrorCode::corrupt, "261 token types");
  data = byte_level_data();
  data.token_types[7] = 9;
  expect(data, ErrorCode::corrupt, "token 7 has type 9");
  data = byte_level_data();
  data.tokens[7] = data.tokens[8];
  expect(data, ErrorCode::corrupt, "two ids: 7 and 8");
  data = byte_level_data();
  data.merges.emplace_back("nothing");
  expect(data, ErrorCode::corrupt, "merge 5");
  data = byte_level_data();
  data.merges.emplace_back("a ");
  expect(data, ErrorCode::corrupt, "merge 5");
  data = byte_level_data();
  data.eos_id = 262;
  expect(data, ErrorCode::corrupt, "eos_token_id is 262");
  data = byte_level_data();
  data.add_bos = true;
  expect(data, ErrorCode::corrupt, "bos_token_id");
  data = llama_data();
  data.scores.pop_back();
  expect(data, ErrorCode::corrupt, "7 scores");
  data = llama_data();
  data.model = "t5";
  data.precompiled_charsmap = "abc";
  expect(data, ErrorCode::corrupt, "character map");
}

TEST(GgufTokenizer, ForgottenTypes) {
  // Converters forget that an end token is one; without token types it is still parsed and skipped.
  TokenizerData data = byte_level_data();
  data.token_types.clear();
  data.tokens[261] = "<|im_end|>";
  data.eos_id.reset();
  const auto tokenizer = Tokenizer::from_gguf(data);
  EXPECT_EQ(encode(tokenizer, "a<|im_end|>"), (Ids{'a', 261}));
  EXPECT_TRUE(tokenizer->is_end(261) && tokenizer->is_special(261));
}

TEST(GgufTokenizer, ReadsMetadata) {
  gguf::Metadata metadata;
  EXPECT_EQ(tokenizer_data_from_gguf(metadata).error().code, ErrorCode::not_found);
  const TokenizerData source = llama_data();
  const auto add = [&](const char* key, gguf::Value value) {
    const auto result = metadata.add(std::string("tokenizer.ggml.") + key, std::move(value));
    ASSERT_TRUE(result);
  };
  add("model", std::string("llama"));
  add("pre", std::string("default"));
  add("tokens", gguf::StringArray::from(source.tokens));
  add("scores", source.scores);
  add("token_type", source.token_types);
  add("bos_token_id", uint32_t{1});
  add("eos_token_id", int32_t{2});
  add("padding_token_id", uint32_t{0xFFFFFFFF});
  add("add_bos_token", false);
  add("add_space_prefix", true);
  add("precompiled_charsmap", std::vector<uint8_t>{1, 255});
  const auto data = tokenizer_data_from_gguf(metadata);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->model, "llama");
  EXPECT_EQ(data->pre, "default");
  EXPECT_EQ(data->tokens, source.tokens);
  EXPECT_EQ(data->scores, source.scores);
  EXPECT_EQ(data->token_types, source.token_types);
  EXPECT_EQ(data->bos_id, 1);
  EXPECT_EQ(data->eos_id, 2);
  EXPECT_EQ(data->pad_id, std::nullopt);
  EXPECT_EQ(data->add_bos, false);
  EXPECT_EQ(data->add_eos, std::nullopt);
  EXPECT_EQ(data->add_space_prefix, true);
  EXPECT_EQ(data->precompiled_charsmap, "\x01\xFF");
  gguf::Metadata wrong;
  ASSERT_TRUE(wrong.add("tokenizer.ggml.model", std::string("llama")));
  ASSERT_TRUE(wrong.add("tokenizer.ggml.tokens", uint32_t{3}));
  const auto result = tokenizer_data_from_gguf(wrong);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("tokenizer.ggml.tokens"), std::string::npos);
}

}  // namespace
}  // namespace cohort::text
