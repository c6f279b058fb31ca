#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/tokenizer/test_files.h"

namespace cohort::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

Tokenizer load(const json& file, const json& config = nullptr, const json& generation = nullptr) {
  const auto dump = [](const json& value) { return value.is_null() ? std::string() : value.dump(); };
  auto result = Tokenizer::from_huggingface(file.dump(), Tokenizer::Companions{dump(config), dump(generation), ""});
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids ? *ids : Ids{};
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = true) {
  const auto text = tokenizer.decode(ids, skip_special);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : "";
}

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = load(byte_level_file());
  EXPECT_EQ(encode(tokenizer, "hello w"), (Ids{259, 260}));
  EXPECT_EQ(encode(tokenizer, ""), (Ids{}));
  EXPECT_EQ(encode(tokenizer, "h\u00E9"), (Ids{'h', 0xC3, 0xA9}));
  EXPECT_EQ(decode(tokenizer, {259, 260, 0xC3, 0xA9}), "hello w\u00E9");
  EXPECT_EQ(tokenizer.vocab_size(), 302u);
  EXPECT_EQ(tokenizer.piece(260), " w");
  EXPECT_EQ(tokenizer.token_text(260), "\u0120w");
  EXPECT_EQ(tokenizer.piece(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_id("\u0120w"), 260);
  EXPECT_EQ(tokenizer.token_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.description(), "byte-level BPE, 302 tokens");
}

TEST(Tokenizer, IdsOutsideOfTheVocabulary) {
  const Tokenizer tokenizer = load(byte_level_file());
  for (const int32_t id : {-1, 302, INT32_MAX, INT32_MIN}) {
    const auto result = tokenizer.decode(Ids{id});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(tokenizer.piece(id), "");
    EXPECT_EQ(tokenizer.token_text(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
    EXPECT_FALSE(tokenizer.is_end(id));
    EXPECT_EQ(Detokenizer(tokenizer).push(id), "");
  }
  EXPECT_EQ(decode(tokenizer, {'a', 299, 'b'}), "ab");  // a gap
}

TEST(Tokenizer, SpecialTokens) {
  const Tokenizer tokenizer = load(byte_level_file());
  EXPECT_EQ(encode(tokenizer, "a<|end|><tool>b"), (Ids{'a', 300, 301, 'b'}));
  EXPECT_EQ(encode(tokenizer, "<|end|><tool>", {.parse_special = false}),
            (Ids{'<', '|', 'e', 'n', 'd', '|', '>', 301}));
  EXPECT_EQ(decode(tokenizer, {'a', 300, 301, 'b'}), "a<tool>b");
  EXPECT_EQ(decode(tokenizer, {'a', 300, 301, 'b'}, false), "a<|end|><tool>b");
  EXPECT_TRUE(tokenizer.is_special(300) && !tokenizer.is_special(301));
  EXPECT_TRUE(tokenizer.is_end(300) && !tokenizer.is_end(301));
}

TEST(Tokenizer, AddedTokenFlags) {
  json file = byte_level_file();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] = json::array({
      {{"id", 300}, {"content", "<L>"}, {"special", true}, {"lstrip", true}},
      {{"id", 301}, {"content", "<R>"}, {"special", true}, {"rstrip", true}},
      {{"id", 302}, {"content", "one"}, {"special", true}, {"single_word", true}},
      {{"id", 303}, {"content", "TWO"}, {"special", false}, {"normalized", true}},
      {{"id", 304}, {"content", "aa"}, {"special", true}},
      {{"id", 305}, {"content", "aaa"}, {"special", true}},
  });
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(encode(tokenizer, "x \n<L> y"), (Ids{'x', 300, ' ', 'y'}));
  EXPECT_EQ(encode(tokenizer, "x <R>\u3000 y"), (Ids{'x', ' ', 301, 'y'}));
  EXPECT_EQ(encode(tokenizer, "<R> <L>"), (Ids{301, 300}));
  EXPECT_EQ(encode(tokenizer, "one"), (Ids{302}));
  EXPECT_EQ(encode(tokenizer, "xone"), (Ids{'x', 'o', 'n', 'e'}));
  EXPECT_EQ(encode(tokenizer, "one1"), (Ids{'o', 'n', 'e', '1'}));
  EXPECT_EQ(encode(tokenizer, "(one)"), (Ids{'(', 302, ')'}));
  EXPECT_EQ(encode(tokenizer, "two Two"), (Ids{303, ' ', 303}));  // as both are normalized
  EXPECT_EQ(encode(tokenizer, "ONE"), (Ids{'o', 'n', 'e'}));      // looked for before normalization
  EXPECT_EQ(encode(tokenizer, "aaaaa"), (Ids{305, 304}));         // leftmost, longest
}

TEST(Tokenizer, InvalidUtf8BecomesReplacements) {
  const Tokenizer tokenizer = load(byte_level_file());
  EXPECT_EQ(encode(tokenizer, "a\xFF\xE2\x82z"), encode(tokenizer, "a\uFFFD\uFFFDz"));
  EXPECT_EQ(decode(tokenizer, encode(tokenizer, "a\xFF\xE2\x82z")), "a\uFFFD\uFFFDz");
  EXPECT_EQ(decode(tokenizer, {'a', 0xE2, 0x82, 'z', 0xFF, 0xE2}), "a\uFFFDz\uFFFD\uFFFD");
}

TEST(Tokenizer, SpecialTokensAroundTheText) {
  json file = byte_level_file();
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<|end|>", {{"id", "<|end|>"}, {"ids", {300}}, {"tokens", {"<|end|>"}}}}}}};
  Tokenizer tokenizer = load(file);
  EXPECT_EQ(encode(tokenizer, "a"), (Ids{300, 'a'}));
  EXPECT_EQ(encode(tokenizer, ""), (Ids{300}));
  EXPECT_EQ(encode(tokenizer, "a", {.add_special = false}), (Ids{'a'}));
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  // tokenizer_config.json has the last word.
  tokenizer = load(file, {{"bos_token", "<|end|>"},
                          {"eos_token", {{"content", "<tool>"}}},
                          {"add_bos_token", false},
                          {"add_eos_token", true}});
  EXPECT_EQ(encode(tokenizer, "a"), (Ids{'a', 301}));
  EXPECT_EQ(tokenizer.bos_id(), 300);
  EXPECT_EQ(tokenizer.eos_id(), 301);
  EXPECT_TRUE(tokenizer.is_end(301));
}

TEST(Tokenizer, EndTokens) {
  json file = byte_level_file();
  file["added_tokens"] = json::array();
  int id = 300;
  for (const char* name : {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|end|>", "<eos>",
                           "<|im_start|>", "</s>"}) {
    file["added_tokens"].push_back({{"id", id++}, {"content", name}, {"special", true}});
  }
  Tokenizer tokenizer = load(file, nullptr, {{"eos_token_id", {308, 65}}});
  EXPECT_EQ(Ids(tokenizer.end_ids().begin(), tokenizer.end_ids().end()),
            (Ids{65, 300, 301, 302, 303, 304, 305, 306, 308}));
  EXPECT_EQ(tokenizer.eos_id(), 308);
  // gpt-oss: <|end|> closes a message, not the turn.
  file["added_tokens"].push_back({{"id", id++}, {"content", "<|return|>"}, {"special", true}});
  file["added_tokens"].push_back({{"id", id++}, {"content", "<|call|>"}, {"special", true}});
  tokenizer = load(file);
  EXPECT_FALSE(tokenizer.is_end(305));
  EXPECT_TRUE(tokenizer.is_end(309) && tokenizer.is_end(310));
  EXPECT_FALSE(tokenizer.is_end(308));
}

TEST(Tokenizer, AddedTokensOfTheConfiguration) {
  const json config = {{"added_tokens_decoder",
                        {{"310", {{"content", "<new>"}, {"special", true}}},
                         {"104", {{"content", "h"}, {"special", false}, {"normalized", false}}}}},
                       {"pad_token", "hello"}};
  const Tokenizer tokenizer = load(byte_level_file(), config);
  EXPECT_EQ(encode(tokenizer, "<new>"), (Ids{310}));
  EXPECT_EQ(tokenizer.pad_id(), 259);
  EXPECT_TRUE(tokenizer.is_special(259));
  EXPECT_EQ(encode(tokenizer, "hello"), (Ids{259}));
  EXPECT_EQ(encode(tokenizer, "help"), (Ids{'h', 'e', 'l', 'p'}));  // "he" no longer merges across the added "h"
}

TEST(Tokenizer, SpacesOfSentencePiece) {
  const Tokenizer tokenizer = load(space_file());
  EXPECT_EQ(encode(tokenizer, "a b"), (Ids{262, 259, 261}));
  EXPECT_EQ(encode(tokenizer, " a"), (Ids{259, 262}));
  EXPECT_EQ(encode(tokenizer, "b\n"), (Ids{259, 261, 10 + 3}));
  EXPECT_EQ(encode(tokenizer, "\u00E9"), (Ids{259, 0xC3 + 3, 0xA9 + 3}));
  EXPECT_EQ(encode(tokenizer, "a<s>a"), (Ids{262, 1, 262}));
  for (const char* text : {"a b", " a", "  a  b ", "b\n\u00E9 \u4E2D", "", " "}) {
    EXPECT_EQ(decode(tokenizer, encode(tokenizer, text)), text);
  }
  EXPECT_EQ(decode(tokenizer, {262, 1, 262}, false), "a<s> a");
  EXPECT_EQ(decode(tokenizer, {1, 262, 261}), "ab");
  // A run of bytes with a mistake keeps its valid characters.
  EXPECT_EQ(decode(tokenizer, {0xC3 + 3, 0xA9 + 3, 0xFF + 3}), "\u00E9\uFFFD");
}

TEST(Detokenizer, NeverSplitsACharacter) {
  const Tokenizer tokenizer = load(byte_level_file());
  Detokenizer stream(tokenizer);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "\U0001F600");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('a'), "\uFFFDa");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push(300), "");  // skipped, and the character may still go on
  EXPECT_EQ(stream.push(0xBD), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push('b'), "b");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Detokenizer, LeadingSpace) {
  const Tokenizer tokenizer = load(space_file());
  Detokenizer start(tokenizer);
  EXPECT_EQ(start.push(1), "");     // <s>
  EXPECT_EQ(start.push(259), "");   // the space that was put in front
  EXPECT_EQ(start.push(259), " ");  // a real one
  EXPECT_EQ(start.push(262), " a");
  Detokenizer more(tokenizer, {.at_start = false});
  EXPECT_EQ(more.push(262), " a");
  Detokenizer shown(tokenizer, {.skip_special = false});
  EXPECT_EQ(shown.push(1), "<s>");
  EXPECT_EQ(shown.push(262), " a");
}

TEST(Tokenizer, NoDecoderJoinsWithSpaces) {
  json file = space_file();
  file["decoder"] = nullptr;
  EXPECT_EQ(decode(load(file), {262, 261}), "\u2581a b");
}

TEST(Tokenizer, MetaspaceDropsTheFirstSpace) {
  json file = space_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(encode(tokenizer, "a<s>a"), (Ids{262, 1, 260}));
  EXPECT_EQ(encode(tokenizer, "<s>a"), (Ids{1, 260}));
  EXPECT_EQ(decode(tokenizer, {262, 262}), "a a");
}

TEST(Tokenizer, IsSharedBetweenThreads) {
  const Tokenizer tokenizer = load(byte_level_file());
  const std::string text = "hello world, it's 12 o'clock \u00E9\u4E2D\U0001F600 <|end|>\n\n  x";
  const Ids expected = encode(tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i, copy = tokenizer] {
      for (int round = 0; round < 500; ++round) {
        const auto ids = copy.encode(text);
        wrong[i] += !ids || *ids != expected ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Tokenizer, LimitsOfTheText) {
  TokenizerLimits limits;
  limits.text_bytes = 1000;
  json file = byte_level_file();
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'b')}};
  const auto tokenizer = Tokenizer::from_huggingface(file.dump(), limits);
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->encode(std::string(1000, 'x')));
  EXPECT_EQ(tokenizer->encode(std::string(1001, 'x')).error().code, ErrorCode::capacity);
  EXPECT_EQ(tokenizer->encode(std::string(11, 'a')).error().code, ErrorCode::capacity);
}

}  // namespace
}  // namespace cohort::text
