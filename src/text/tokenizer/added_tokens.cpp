#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

/// Where the white space at the end of `text` starts.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_white_space(last_utf8_char(text.substr(0, end)))) {
    do {
      --end;
    } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  }
  return end;
}

/// Bytes of white space at the start of `text`.
size_t leading_space(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint32_t size = 0;
    if (!is_white_space(decode_valid_utf8(text.data() + i, size))) {
      break;
    }
    i += size;
  }
  return i;
}

bool word_before(std::string_view text) {
  return !text.empty() && is_word(last_utf8_char(text));
}

bool word_after(std::string_view text) {
  uint32_t size = 0;
  return !text.empty() && is_word(decode_valid_utf8(text.data(), size));
}

}  // namespace

Expected<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                                          const TokenizerLimits& limits) {
  AddedTokens result;
  result.tokens_ = std::move(tokens);
  std::vector<std::string> forms(result.tokens_.size());
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized, contents;
  MatchScratch scratch(limits, 0);
  // Special tokens come first: of two tokens with the same form, the first one wins.
  for (const bool special : {true, false}) {
    for (size_t i = 0; i < result.tokens_.size(); ++i) {
      const AddedToken& token = result.tokens_[i];
      if (token.special != special) {
        continue;
      }
      if (token.content.size() > limits.token_bytes) {
        return fail(ErrorCode::capacity, "added token {} has {} bytes; the limit is {}", token.id, token.content.size(),
                    limits.token_bytes);
      }
      if (special) {
        contents.emplace_back(token.content, static_cast<int32_t>(i));
      }
      if (!token.normalized) {
        raw.emplace_back(token.content, static_cast<int32_t>(i));
        continue;
      }
      scratch.has_additions = has_unicode_additions(token.content);
      forms[i] = token.content;
      COHORT_TRY(normalizer.apply(forms[i], limits, scratch));
      if (forms[i].size() > limits.token_bytes) {
        return fail(ErrorCode::capacity, "added token {} has {} bytes after normalization; the limit is {}", token.id,
                    forms[i].size(), limits.token_bytes);
      }
      result.special_normalized_ |= special;
      normalized.emplace_back(forms[i], static_cast<int32_t>(i));
    }
  }
  result.raw_ = ByteTrie(std::move(raw));
  result.normalized_ = ByteTrie(std::move(normalized));
  result.special_ = ByteTrie(std::move(contents));
  return result;
}

std::vector<size_t> AddedTokens::special_places(std::string_view text) const {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!special_.may_start(text[i])) {
      continue;
    }
    bool found = false;
    special_.for_each_prefix(text.substr(i), [&](size_t, int32_t) { found = true; });
    if (found) {
      places.push_back(i);
    }
  }
  return places;
}

void AddedTokens::split(std::string_view text, const ByteTrie& trie, bool parse_special,
                        std::span<const size_t> literal, std::vector<Segment>& out) const {
  if (trie.empty()) {
    if (!text.empty()) {
      out.push_back({text, -1});
    }
    return;
  }
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    if (!trie.may_start(text[i])) {
      ++i;
      continue;
    }
    size_t size = 0;
    int32_t index = -1;
    trie.for_each_prefix(text.substr(i), [&](size_t length, int32_t value) {
      size = length;
      index = value;
    });
    if (index < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = i, end = i + size;
    i = end;  // a match that does not count still hides what lies inside of it
    if (token.special && (!parse_special || std::binary_search(literal.begin(), literal.end(), begin))) {
      continue;
    }
    if (token.single_word && (word_before(text.substr(0, begin)) || word_after(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = done + trailing_space(text.substr(done, begin - done));
    }
    if (token.rstrip) {
      end += leading_space(text.substr(end));
    }
    if (done < begin) {
      out.push_back({text.substr(done, begin - done), -1});
    }
    out.push_back({text.substr(begin, end - begin), token.id});
    i = done = end;
  }
  if (done < text.size()) {
    out.push_back({text.substr(done), -1});
  }
}

}  // namespace cohort::text
