// What tokenizer.json may say, and what is refused.
#include <gtest/gtest.h>

#include "text/tokenizer/huggingface_components.h"
#include "text/tokenizer/huggingface_file.h"
#include "text/tokenizer/test_files.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort::text {
namespace {

using nlohmann::json;

std::string normalize(const json& normalizer, std::string text) {
  const TokenizerLimits limits;
  const auto built = build_normalizer(normalizer, limits);
  EXPECT_TRUE(built) << built.error().message;
  MatchScratch scratch(limits, text.size());
  const auto result = built->apply(text, limits, scratch);
  EXPECT_TRUE(result) << result.error().message;
  return text;
}

std::vector<std::string> pieces(const json& pre_tokenizer, std::string_view text) {
  const TokenizerLimits limits;
  const auto built = build_pre_tokenizer(pre_tokenizer, limits);
  EXPECT_TRUE(built) << built.error().message;
  MatchScratch scratch(limits, text.size());
  std::vector<Piece> out;
  std::deque<std::string> storage;
  const auto result = built->apply({text, true}, out, storage, scratch);
  EXPECT_TRUE(result) << result.error().message;
  std::vector<std::string> strings;
  strings.reserve(out.size());
  for (const Piece& piece : out) {
    strings.emplace_back(piece.text);
  }
  return strings;
}

using Strings = std::vector<std::string>;

json split_by(const json& pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

TEST(HuggingFace, Normalizers) {
  EXPECT_EQ(normalize(nullptr, "A e\u0301"), "A e\u0301");
  EXPECT_EQ(normalize({{"type", "NFC"}}, "e\u0301"), "\u00E9");
  EXPECT_EQ(normalize({{"type", "NFD"}}, "\u00E9"), "e\u0301");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "\uFF21"), "A");
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "\uFB01\u00E9"), "fie\u0301");
  EXPECT_EQ(normalize({{"type", "Lowercase"}}, "\u00C9A"), "\u00E9a");
  EXPECT_EQ(normalize({{"type", "StripAccents"}}, "e\u0301a"), "ea");
  EXPECT_EQ(normalize({{"type", "Strip"}}, " \u3000a b\n"), "a b");
  EXPECT_EQ(normalize({{"type", "Strip"}, {"strip_left", false}}, " a "), " a");
  EXPECT_EQ(normalize({{"type", "Strip"}}, " \u00A0 "), "");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "x"}}, "a"), "xa");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "x"}}, ""), "");
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", "b"}}, "aaaax"), "bbx");
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "b"}}, "ax"), "babxb");
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}}, "a  b c    d"),
            "a_b c_d");
  EXPECT_EQ(normalize({{"type", "ByteLevel"}}, "a \u00E9"), "a\u0120\u00C3\u00A9");
  EXPECT_EQ(normalize({{"type", "Nmt"}}, "a\x01\t\u200Bb\x7F"), "a  b");
  EXPECT_EQ(normalize({{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}}, "E\u0301"),
            "\u00E9");
  EXPECT_EQ(normalize({{"type", "Precompiled"}, {"precompiled_charsmap", nullptr}}, "a"), "a");
}

// Expected pieces: `tokenizers` 0.23.3.
TEST(HuggingFace, SplitBehaviors) {
  const json dash = {{"String", "-"}};
  EXPECT_EQ(pieces(split_by(dash, "Removed"), "the-final--countdown"), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(pieces(split_by(dash, "Isolated"), "the-final--countdown"),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(pieces(split_by(dash, "MergedWithPrevious"), "the-final--countdown"),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(pieces(split_by(dash, "MergedWithNext"), "the-final--countdown"),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(pieces(split_by(dash, "Contiguous"), "the-final--countdown"),
            (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(pieces(split_by(dash, "MergedWithPrevious"), "--a-"), (Strings{"-", "-", "a-"}));
  EXPECT_EQ(pieces(split_by(dash, "MergedWithNext"), "-a--"), (Strings{"-a", "-", "-"}));
  EXPECT_EQ(pieces(split_by(dash, "Removed", true), "the-final--countdown"), (Strings{"-", "-", "-"}));
  EXPECT_EQ(pieces(split_by({{"Regex", "\\d+"}}, "Isolated"), "a12b3"), (Strings{"a", "12", "b", "3"}));
  EXPECT_EQ(pieces(split_by({{"String", ""}}, "Isolated"), "ab"), (Strings{"a", "b"}));
  EXPECT_EQ(pieces(split_by({{"String", "a.b"}}, "Removed"), "xa.bxaXbx"), (Strings{"x", "xaXbx"}));  // literal
}

TEST(HuggingFace, PreTokenizers) {
  EXPECT_EQ(pieces(nullptr, "a b"), (Strings{"a b"}));
  EXPECT_EQ(pieces({{"type", "ByteLevel"}, {"add_prefix_space", true}}, "ab c"), (Strings{"\u0120ab", "\u0120c"}));
  EXPECT_EQ(pieces({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, "ab c"),
            (Strings{"ab\u0120c"}));
  EXPECT_EQ(pieces({{"type", "Digits"}, {"individual_digits", true}}, "a12\u00BDb"),
            (Strings{"a", "1", "2", "\u00BD", "b"}));
  EXPECT_EQ(pieces({{"type", "Digits"}, {"individual_digits", false}}, "a12\u00BDb"), (Strings{"a", "12\u00BD", "b"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}}, "a,b.$"), (Strings{"a", ",", "b", ".", "$"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a,.b"), (Strings{"a", ",.", "b"}));
  EXPECT_EQ(pieces({{"type", "Whitespace"}}, "a b,c\u00A0d_e!?"), (Strings{"a", "b", ",", "c", "d_e", "!?"}));
  EXPECT_EQ(pieces({{"type", "WhitespaceSplit"}}, " a b,\n"), (Strings{"a", "b,"}));
  EXPECT_EQ(pieces({{"type", "CharDelimiterSplit"}, {"delimiter", "x"}}, "axbxx"), (Strings{"a", "b"}));
  EXPECT_EQ(pieces({{"type", "FixedLength"}, {"length", 2}}, "a\u00E9bcd"), (Strings{"a\u00E9", "bc", "d"}));
  EXPECT_EQ(pieces({{"type", "Metaspace"}, {"prepend_scheme", "always"}}, "a  b"),
            (Strings{"\u2581a", "\u2581", "\u2581b"}));
  EXPECT_EQ(pieces({{"type", "Metaspace"}, {"prepend_scheme", "always"}}, " a"), (Strings{"\u2581a"}));
  EXPECT_EQ(pieces({{"type", "Metaspace"}, {"add_prefix_space", false}, {"replacement", "_"}, {"split", false}}, "a b"),
            (Strings{"a_b"}));
  EXPECT_EQ(
      pieces({{"type", "Sequence"},
              {"pretokenizers", {{{"type", "WhitespaceSplit"}}, {{"type", "Digits"}, {"individual_digits", true}}}}},
             "a1 22"),
      (Strings{"a", "1", "2", "2"}));
  EXPECT_EQ(pieces({{"type", "ByteLevel"}}, ""), (Strings{}));
}

void expect_error(const json& file, ErrorCode code, std::string_view part) {
  const auto result = Tokenizer::from_huggingface(file.dump());
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(part), std::string::npos)
      << result.error().message << "\n(wanted: " << part << ")";
}

TEST(HuggingFace, UnsupportedComponentsAreNamed) {
  const auto changed = [](const char* field, json value) {
    json file = byte_level_file();
    file[field] = std::move(value);
    return file;
  };
  expect_error(changed("normalizer", {{"type", "BertNormalizer"}}), ErrorCode::unsupported,
               "normalizer \"BertNormalizer\"");
  expect_error(changed("pre_tokenizer", {{"type", "UnicodeScripts"}}), ErrorCode::unsupported,
               "pre_tokenizer \"UnicodeScripts\"");
  expect_error(changed("decoder", {{"type", "CTC"}}), ErrorCode::unsupported, "decoder \"CTC\"");
  expect_error(changed("decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteLevel"}}}}}),
               ErrorCode::unsupported, "behind Fuse");
  expect_error(changed("post_processor", {{"type", "Other"}}), ErrorCode::unsupported, "post_processor \"Other\"");
  expect_error(changed("pre_tokenizer", split_by({{"Regex", "(a"}}, "Isolated")), ErrorCode::unsupported, "(a");
  expect_error(changed("pre_tokenizer", split_by({{"Regex", "a"}}, "Sideways")), ErrorCode::corrupt, "behavior");
  expect_error(changed("pre_tokenizer", "ByteLevel"), ErrorCode::corrupt, "pre_tokenizer");
  expect_error(changed("normalizer", {{"type", "Sequence"}, {"normalizers", 3}}), ErrorCode::corrupt, "normalizers");
  json model = byte_level_file();
  model["model"]["type"] = "WordPiece";
  expect_error(model, ErrorCode::unsupported, "model \"WordPiece\"");
  model = byte_level_file();
  model["model"]["dropout"] = 0.1;
  expect_error(model, ErrorCode::unsupported, "dropout");
  model = byte_level_file();
  model["model"]["end_of_word_suffix"] = "</w>";
  expect_error(model, ErrorCode::unsupported, "end_of_word_suffix");
}

TEST(HuggingFace, ContradictionsAreNamed) {
  json file = byte_level_file();
  file["model"]["merges"].push_back({"q", "zz"});
  expect_error(file, ErrorCode::corrupt, "merge 5");
  file = byte_level_file();
  file["model"]["merges"].push_back("a b c");
  expect_error(file, ErrorCode::corrupt, "merges");
  file = byte_level_file();
  file["model"]["merges"].push_back({"a"});
  expect_error(file, ErrorCode::corrupt, "merges");
  file = byte_level_file();
  file["model"]["vocab"]["new"] = 5;
  expect_error(file, ErrorCode::corrupt, "id 5");
  file["model"]["vocab"]["new"] = -5;
  expect_error(file, ErrorCode::corrupt, "new");
  file["model"]["vocab"]["new"] = 2.5;
  expect_error(file, ErrorCode::corrupt, "new");
  file["model"]["vocab"]["new"] = "x";
  expect_error(file, ErrorCode::corrupt, "vocab");
  file = byte_level_file();
  file["added_tokens"].push_back({{"id", 5}, {"content", "<other>"}});
  expect_error(file, ErrorCode::corrupt, "id 5");
  file["added_tokens"] = 3;
  expect_error(file, ErrorCode::corrupt, "added_tokens");
  file = byte_level_file();
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 9999}}, {"sep", {"</s>", 1}}};
  expect_error(file, ErrorCode::corrupt, "9999");
  file = byte_level_file();
  file["model"] = nullptr;
  expect_error(file, ErrorCode::corrupt, "model");
  expect_error(json::array(), ErrorCode::corrupt, "object");
}

TEST(HuggingFace, RefusesBadJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{\"a\": \xFF}"), std::string("[1]"), std::string("{} x"),
        "{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", std::string("\0", 1)}) {
    const auto result = Tokenizer::from_huggingface(text);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("tokenizer.json"), std::string::npos) << result.error().message;
  }
  const auto config = Tokenizer::from_huggingface(byte_level_file().dump(), Tokenizer::Companions{"{", "", ""});
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("tokenizer_config.json"), std::string::npos);
  TokenizerLimits limits;
  limits.tokens = 100;
  EXPECT_EQ(Tokenizer::from_huggingface(byte_level_file().dump(), limits).error().code, ErrorCode::capacity);
  limits = {};
  limits.merges = 2;
  EXPECT_EQ(Tokenizer::from_huggingface(byte_level_file().dump(), limits).error().code, ErrorCode::capacity);
  limits = {};
  limits.json_bytes = 100;
  EXPECT_EQ(Tokenizer::from_huggingface(byte_level_file().dump(), limits).error().code, ErrorCode::capacity);
  limits = {};
  limits.json_values = 10;
  EXPECT_EQ(Tokenizer::from_huggingface(byte_level_file().dump(), limits).error().code, ErrorCode::capacity);
}

TEST(HuggingFace, EndTokensOfBothConfigs) {
  const auto ends = [](std::string model, std::string generation) {
    return Tokenizer::from_huggingface(byte_level_file().dump(),
                                       Tokenizer::Companions{"", std::move(generation), std::move(model)});
  };
  const auto both = ends(R"({"eos_token_id": 65, "bos_token_id": 66})", R"({"eos_token_id": [67, 65]})");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->eos_id(), 65);
  EXPECT_EQ(both->bos_id(), 66);
  EXPECT_TRUE(both->is_end(65) && both->is_end(67));
  EXPECT_FALSE(both->is_end(66));
  for (const char* id : {"302", "100000", "-1", "1.5", "\"65\"", "true", "[65, 302]", "[[65]]", "4294967361"}) {
    const std::string text = std::string("{\"eos_token_id\": ") + id + "}";
    const auto model = ends(text, "");
    ASSERT_FALSE(model) << id;
    EXPECT_EQ(model.error().code, ErrorCode::corrupt);
    EXPECT_TRUE(model.error().message.starts_with("config.json: eos_token_id is ")) << model.error().message;
    EXPECT_NE(model.error().message.find("from 0 to 301"), std::string::npos) << model.error().message;
    const auto generation = ends("", text);
    ASSERT_FALSE(generation) << id;
    EXPECT_TRUE(generation.error().message.starts_with("generation_config.json: eos_token_id is ")) << id;
  }
  EXPECT_TRUE(ends(R"({"eos_token_id": null})", "{}"));
}

TEST(HuggingFace, OlderSpellings) {
  // Merges as lines, with a version line; the model's type left out.
  json file = byte_level_file();
  file["model"].erase("type");
  file["model"]["merges"] = {"#version: 0.2", "h e", "l l", "he ll", "hell o", "\u0120 w"};
  const auto tokenizer = Tokenizer::from_huggingface(file.dump());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("hello w"), (std::vector<int32_t>{259, 260}));
}

TEST(HuggingFace, ByteLevelInTheMiddleAndMissingBytes) {
  // Digits behind ByteLevel: the model sees characters of the alphabet.
  json file = byte_level_file();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "ByteLevel"}, {"add_prefix_space", false}}, {{"type", "Digits"}, {"individual_digits", true}}}}};
  auto tokenizer = Tokenizer::from_huggingface(file.dump());
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*tokenizer->encode("hello w12\u00E9"), (std::vector<int32_t>{259, 260, '1', '2', 0xC3, 0xA9}));
  // A vocabulary without all bytes works as long as the text does not need them, and never drops one.
  file = byte_level_file();
  file["model"]["vocab"].erase("q");
  tokenizer = Tokenizer::from_huggingface(file.dump());
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(*tokenizer->encode("hello w\u00E9"), (std::vector<int32_t>{259, 260, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->encode("q").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace cohort::text
