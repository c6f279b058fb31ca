#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {

uint64_t StringIndex::hash(std::string_view key) {
  // Eight bytes at a time through a multiply that folds its high half: short keys dominate.
  const auto mix = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t state = 0x9E3779B97F4A7C15ull ^ key.size();
  while (key.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, key.data(), 8);
    state = mix(state ^ word, 0xD6E8FEB86659FD93ull);
    key.remove_prefix(8);
  }
  uint64_t word = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(key[i])) << (8 * i);
  }
  return mix(state ^ word, 0xA0761D6478BD642Full);
}

void StringIndex::reserve(size_t count) {
  size_t slots = 16;
  while (slots < 2 * count) {
    slots *= 2;
  }
  slots_.assign(slots, -1);
  mask_ = slots - 1;
}

void StringIndex::insert(std::string_view key, int32_t id) {
  size_t i = hash(key) & mask_;
  while (slots_[i] >= 0) {
    i = (i + 1) & mask_;
  }
  slots_[i] = id;
}

void TokenTexts::set(int32_t id, std::string_view text) {
  spans_.resize(static_cast<size_t>(id) + 1);
  spans_.back() = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
  bytes_.append(text);
}

Expected<Vocabulary> Vocabulary::create(std::vector<std::pair<std::string, int32_t>> tokens,
                                        const TokenizerLimits& limits, size_t size) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  Vocabulary vocabulary;
  vocabulary.index_.reserve(tokens.size());
  uint64_t bytes = 0;
  for (const auto& [text, id] : tokens) {
    if (id < 0 || static_cast<size_t>(id) >= limits.tokens) {
      return fail(ErrorCode::capacity, "token id {} of \"{}\": ids run from 0 to {}", id,
                  repair_utf8(text.substr(0, 80)), limits.tokens - 1);
    }
    bytes += text.size();
    if (text.size() > limits.token_bytes || bytes > UINT32_MAX) {
      return fail(ErrorCode::capacity, "token {} has {} bytes; the limit is {} a token and 4 GiB for all", id,
                  text.size(), limits.token_bytes);
    }
    if (vocabulary.has(id)) {
      return fail(ErrorCode::corrupt, "token id {} stands twice in the vocabulary: \"{}\" and \"{}\"", id,
                  repair_utf8(vocabulary.text(id).substr(0, 80)), repair_utf8(text.substr(0, 80)));
    }
    if (const auto other = vocabulary.find(text)) {
      return fail(ErrorCode::corrupt, "the token \"{}\" has two ids: {} and {}", repair_utf8(text.substr(0, 80)),
                  *other, id);
    }
    vocabulary.texts_.set(id, text);
    vocabulary.present_.resize(static_cast<size_t>(id) + 1);
    vocabulary.present_.back() = true;
    vocabulary.index_.insert(text, id);
  }
  if (size > vocabulary.size()) {
    vocabulary.texts_.resize(size);
    vocabulary.present_.resize(size);
  }
  return vocabulary;
}

}  // namespace cohort::text
