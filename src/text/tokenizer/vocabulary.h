// The tokens of a vocabulary: id to text and back, with the text in one block of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"

namespace cohort::text {

/// A hash table from byte strings to ids that keeps the strings elsewhere. Build once, then only read.
class StringIndex {
 public:
  /// `text(id)` gives the string of an id, for the comparisons.
  template <class Text>
  std::optional<int32_t> find(std::string_view key, Text&& text) const {
    if (slots_.empty()) {
      return std::nullopt;
    }
    for (size_t i = hash(key) & mask_;; i = (i + 1) & mask_) {
      const int32_t id = slots_[i];
      if (id < 0) {
        return std::nullopt;
      }
      if (text(id) == key) {
        return id;
      }
    }
  }
  /// The string must not be in the index yet. reserve() comes first.
  void insert(std::string_view key, int32_t id);
  void reserve(size_t count);

 private:
  static uint64_t hash(std::string_view key);

  std::vector<int32_t> slots_;
  size_t mask_ = 0;
};

/// Byte strings by id, in one block.
class TokenTexts {
 public:
  /// Ids come in ascending order; skipped ids stay empty.
  void set(int32_t id, std::string_view text);
  size_t size() const { return spans_.size(); }
  std::string_view operator[](int32_t id) const {
    const auto& span = spans_[static_cast<size_t>(id)];
    return {bytes_.data() + span.first, span.second};
  }
  void resize(size_t count) { spans_.resize(count); }

 private:
  std::string bytes_;
  std::vector<std::pair<uint32_t, uint32_t>> spans_;  // offset, size
};

/// Token texts and their ids. Ids may have gaps (has() is false there).
class Vocabulary {
 public:
  /// `tokens`: (text, id); size() is at least `size`. Errors: corrupt (an id twice, a text twice), capacity (too many,
  /// too long).
  static Expected<Vocabulary> create(std::vector<std::pair<std::string, int32_t>> tokens, const TokenizerLimits& limits,
                                     size_t size = 0);

  /// One more than the largest id.
  size_t size() const { return texts_.size(); }
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < present_.size() && present_[static_cast<size_t>(id)];
  }
  /// Empty for a gap.
  std::string_view text(int32_t id) const { return texts_[id]; }
  std::optional<int32_t> find(std::string_view text) const {
    return index_.find(text, [this](int32_t id) { return texts_[id]; });
  }

 private:
  TokenTexts texts_;
  std::vector<bool> present_;
  StringIndex index_;
};

}  // namespace cohort::text
