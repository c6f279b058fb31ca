#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<const Vocabulary> vocabulary_of(const std::vector<std::string>& tokens) {
  std::vector<std::pair<std::string, int32_t>> list;
  list.reserve(tokens.size());
  for (const auto& token : tokens) {
    list.emplace_back(token, static_cast<int32_t>(list.size()));
  }
  auto result = Vocabulary::create(std::move(list), {});
  EXPECT_TRUE(result) << result.error().message;
  return std::make_shared<const Vocabulary>(std::move(*result));
}

Ids encode(const Model& model, std::string_view text) {
  ModelScratch scratch;
  Ids ids;
  const auto result = model.encode(text, scratch, ids);
  EXPECT_TRUE(result) << result.error().message;
  return ids;
}

/// Random merges over the letters a-e, and the definition of byte pair encoding, step by step.
struct RandomBpe {
  explicit RandomBpe(unsigned seed) : random(seed) {
    for (const char c : std::string("abcde")) {
      tokens.emplace_back(1, c);
    }
    while (merges.size() < 60) {
      const auto& left = tokens[random() % tokens.size()];
      const auto& right = tokens[random() % tokens.size()];
      if (left.size() + right.size() <= 10 && ranks.emplace(std::pair(left, right), merges.size()).second) {
        merges.emplace_back(left, right);
        if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) {
          tokens.push_back(std::string(left) + right);
        }
      }
    }
  }

  std::vector<std::string> split(const std::string& word) const {
    std::vector<std::string> parts;
    for (const char c : word) {
      parts.emplace_back(1, c);
    }
    while (true) {
      size_t best = parts.size(), rank = merges.size();
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks.find({parts[i], parts[i + 1]});
        if (found != ranks.end() && found->second < rank) {
          rank = found->second;
          best = i;
        }
      }
      if (best == parts.size()) {
        return parts;
      }
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best + 1));
    }
  }

  std::string word(size_t length) {
    std::string out;
    for (size_t i = 0; i < length; ++i) {
      out += static_cast<char>('a' + random() % 5);
    }
    return out;
  }

  std::mt19937 random;
  std::vector<std::string> tokens;
  MergeList merges;
  std::map<std::pair<std::string, std::string>, size_t> ranks;
};

TEST(Bpe, EqualsItsDefinition) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomBpe reference(seed);
    const auto vocabulary = vocabulary_of(reference.tokens);
    for (const bool tried : {false, true}) {  // with and without the short cut for whole words
      const std::vector<bool> words(vocabulary->size(), tried);
      const auto model = make_bpe(vocabulary, reference.merges, {}, words, {});
      ASSERT_TRUE(model) << model.error().message;
      for (size_t length = 1; length < 130; ++length) {  // scanning and the heap
        const std::string word = reference.word(length);
        std::vector<std::string> parts;
        for (const int32_t id : encode(**model, word)) {
          parts.emplace_back(vocabulary->text(id));
        }
        ASSERT_EQ(parts, reference.split(word)) << word;
      }
    }
  }
}

TEST(ScoredBpe, EqualsItsDefinition) {
  for (unsigned seed = 100; seed < 115; ++seed) {
    RandomBpe source(seed);
    const auto vocabulary = vocabulary_of(source.tokens);
    std::vector<float> scores;
    for (size_t i = 0; i < source.tokens.size(); ++i) {
      scores.push_back(-static_cast<float>(source.random() % 12));  // many equal ones
    }
    const std::vector<TokenKind> kinds(vocabulary->size(), TokenKind::normal);
    const auto model = make_scored_bpe(vocabulary, scores, kinds, std::nullopt, {});
    ASSERT_TRUE(model);
    for (size_t length = 1; length < 60; ++length) {
      const std::string word = source.word(length);
      std::vector<std::string> expected;
      for (const char c : word) {
        expected.emplace_back(1, c);
      }
      while (true) {
        size_t best = expected.size();
        float score = -1e9f;
        for (size_t i = 0; i + 1 < expected.size(); ++i) {
          const auto id = vocabulary->find(expected[i] + expected[i + 1]);
          if (id && scores[static_cast<size_t>(*id)] > score) {
            score = scores[static_cast<size_t>(*id)];
            best = i;
          }
        }
        if (best == expected.size()) {
          break;
        }
        expected[best] += expected[best + 1];
        expected.erase(expected.begin() + static_cast<ptrdiff_t>(best + 1));
      }
      std::vector<std::string> parts;
      for (const int32_t id : encode(**model, word)) {
        parts.emplace_back(vocabulary->text(id));
      }
      ASSERT_EQ(parts, expected) << word;
    }
  }
}

TEST(ScoredBpe, UnusedTokensAreTakenApart) {
  const auto vocabulary = vocabulary_of({"<unk>", "a", "b", "ab", "abab"});
  std::vector<TokenKind> kinds(5, TokenKind::normal);
  kinds[0] = TokenKind::unknown;
  auto model = make_scored_bpe(vocabulary, {0, -1, -2, -3, -4}, kinds, 0, {});
  EXPECT_EQ(encode(**model, "abab"), (Ids{4}));
  kinds[4] = TokenKind::unused;
  model = make_scored_bpe(vocabulary, {0, -1, -2, -3, -4}, kinds, 0, {});
  EXPECT_EQ(encode(**model, "abab"), (Ids{3, 3}));
  kinds[3] = TokenKind::unused;
  model = make_scored_bpe(vocabulary, {0, -1, -2, -3, -4}, kinds, 0, {});
  EXPECT_EQ(encode(**model, "abab"), (Ids{1, 2, 1, 2}));
  EXPECT_EQ(encode(**model, "axxb"), (Ids{1, 0, 2}));  // a run of unknown characters is one token
}

TEST(Bpe, UnknownCharacters) {
  const auto vocabulary = vocabulary_of({"<unk>", "a", "<0xC3>", "<0xA9>", "\u4E2D"});
  const std::vector<bool> words(5, true);
  BpeConfig config;
  config.unknown = 0;
  EXPECT_EQ(encode(**make_bpe(vocabulary, {}, config, words, {}), "axy\u00E9a"), (Ids{1, 0, 0, 0, 1}));
  config.fuse_unknown = true;
  EXPECT_EQ(encode(**make_bpe(vocabulary, {}, config, words, {}), "axy\u00E9a\u4E2D"), (Ids{1, 0, 1, 4}));
  config.byte_fallback = true;  // only two bytes have tokens
  EXPECT_EQ(encode(**make_bpe(vocabulary, {}, config, words, {}), "axy\u00E9x"), (Ids{1, 0, 2, 3, 0}));
  config.unknown.reset();
  ModelScratch scratch;
  Ids ids;
  const auto model = make_bpe(vocabulary, {}, config, words, {});
  const auto result = (*model)->encode("ax", scratch, ids);
  ASSERT_FALSE(result);  // never dropped
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_NE(result.error().message.find("U+0078"), std::string::npos) << result.error().message;
}

TEST(Bpe, MergesMustBeOfTokens) {
  const auto vocabulary = vocabulary_of({"a", "b", "ab"});
  const std::vector<bool> words(3, true);
  EXPECT_TRUE(make_bpe(vocabulary, {{"a", "b"}}, {}, words, {}));
  for (const MergeList& merges : {MergeList{{"a", "c"}}, MergeList{{"c", "a"}}, MergeList{{"b", "a"}}}) {
    const auto result = make_bpe(vocabulary, merges, {}, words, {});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::corrupt);
  }
}

TEST(Bpe, WholeWords) {
  const auto vocabulary = vocabulary_of({"a", "b", "ab", "aab", "\n", "\n\n"});
  const std::vector<bool> words(6, true);
  const MergeList merges{{"a", "b"}};
  BpeConfig config;
  EXPECT_EQ(encode(**make_bpe(vocabulary, merges, config, words, {}), "aab"), (Ids{0, 2}));
  EXPECT_EQ(encode(**make_bpe(vocabulary, merges, config, words, {}), "\n\n"), (Ids{4, 4}));
  config.whole_newline_runs = true;
  EXPECT_EQ(encode(**make_bpe(vocabulary, merges, config, words, {}), "aab"), (Ids{0, 2}));
  EXPECT_EQ(encode(**make_bpe(vocabulary, merges, config, words, {}), "\n\n"), (Ids{5}));
  config.ignore_merges = true;
  EXPECT_EQ(encode(**make_bpe(vocabulary, merges, config, words, {}), "aab"), (Ids{3}));
}

std::shared_ptr<const Vocabulary> bytes_and(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    append_utf8(tokens.emplace_back(), byte_to_char(static_cast<unsigned char>(byte)));
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  return vocabulary_of(tokens);
}

TEST(Bpe, AMegabyteWithoutABreakIsFast) {
  // a, aa, aaaa, ...: the merges that keep the heap busiest.
  std::vector<std::string> tokens;
  MergeList merges;
  for (std::string half = "a"; half.size() < 64; half += half) {
    tokens.push_back(half + half);
    merges.emplace_back(half, half);
  }
  const auto vocabulary = bytes_and(tokens);
  ASSERT_TRUE(has_all_bytes(*vocabulary));
  BpeConfig config;
  config.byte_level = true;
  const auto model = make_bpe(vocabulary, merges, config, std::vector<bool>(vocabulary->size(), true), {});
  ASSERT_TRUE(model);
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = encode(**model, std::string(1 << 20, 'a'));
  // Takes about 0.3 s; a quadratic algorithm would take hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(ids, Ids((1 << 20) / 64, *vocabulary->find(std::string(64, 'a'))));
  TokenizerLimits limits;
  limits.word_bytes = 1000;
  const auto small = make_bpe(vocabulary, merges, config, std::vector<bool>(vocabulary->size(), true), limits);
  ModelScratch scratch;
  Ids out;
  EXPECT_EQ((*small)->encode(std::string(1001, 'a'), scratch, out).error().code, ErrorCode::capacity);
}

TEST(Unigram, TakesTheMostProbablePath) {
  const auto vocabulary = vocabulary_of({"<unk>", "a", "b", "ab", "abc", "c", "<0xC3>", "<0xA9>"});
  std::vector<bool> usable(8, true);
  usable[0] = false;
  UnigramConfig config;
  config.unknown = 0;
  const auto model = make_unigram(vocabulary, {0, -1, -1, -3, -2.5, -1, 0, 0}, usable, config, {});
  ASSERT_TRUE(model);
  EXPECT_EQ(encode(**model, "ab"), (Ids{1, 2}));  // -2 against -3
  EXPECT_EQ(encode(**model, "abc"), (Ids{4}));    // -2.5 against -3
  EXPECT_EQ(encode(**model, "xyab"), (Ids{0, 1, 2}));
  config.byte_fallback = true;
  const auto bytes = make_unigram(vocabulary, {0, -1, -1, -3, -2.5, -1, 0, 0}, usable, config, {});
  EXPECT_EQ(encode(**bytes, "a\u00E9b"), (Ids{1, 6, 7, 2}));
  config.unknown.reset();
  const auto strict = make_unigram(vocabulary, {0, -1, -1, -3, -2.5, -1, 0, 0}, usable, config, {});
  ModelScratch scratch;
  Ids ids;
  EXPECT_FALSE((*strict)->encode("ax", scratch, ids));
  EXPECT_FALSE(make_unigram(vocabulary, {0, NAN, 0, 0, 0, 0, 0, 0}, usable, config, {}));
  EXPECT_FALSE(make_unigram(vocabulary, {0, 0}, usable, config, {}));
}

TEST(Vocabulary, RefusesContradictions) {
  EXPECT_EQ(Vocabulary::create({{"a", 0}, {"b", 0}}, {}).error().code, ErrorCode::corrupt);
  EXPECT_EQ(Vocabulary::create({{"a", 0}, {"a", 1}}, {}).error().code, ErrorCode::corrupt);
  EXPECT_EQ(Vocabulary::create({{"a", 1 << 30}}, {}).error().code, ErrorCode::capacity);
  EXPECT_EQ(Vocabulary::create({{"a", -1}}, {}).error().code, ErrorCode::capacity);
  EXPECT_EQ(Vocabulary::create({{std::string(5000, 'a'), 0}}, {}).error().code, ErrorCode::capacity);
  const auto gaps = Vocabulary::create({{"b", 5}, {"a", 2}}, {}, 9);
  ASSERT_TRUE(gaps);
  EXPECT_EQ(gaps->size(), 9u);
  EXPECT_TRUE(gaps->has(2) && gaps->has(5) && !gaps->has(0) && !gaps->has(8) && !gaps->has(9) && !gaps->has(-1));
  EXPECT_EQ(gaps->find("b"), 5);
  EXPECT_EQ(gaps->text(3), "");
}

}  // namespace
}  // namespace cohort::text
