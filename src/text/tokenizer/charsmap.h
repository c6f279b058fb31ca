// The precompiled character map of SentencePiece: a double-array trie from UTF-8 prefixes to replacement strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort::text {

class CharsMap {
 public:
  /// Parses the blob: a little-endian u32 with the trie's size in bytes, the trie's u32 units, then NUL-terminated
  /// strings.
  static Expected<CharsMap> parse(std::string_view blob);

  struct Hit {
    size_t size = 0;  // bytes of the matched prefix
    std::string_view replacement;
  };
  std::optional<Hit> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Hit> longest(std::string_view text) const { return find(text, true); }

 private:
  std::optional<Hit> find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string strings_;  // ends with a NUL
};

/// Appends the text as SentencePiece maps it: the longest known prefix at each position. Stops as soon as `out` has
/// more than `limit` bytes.
void append_mapped(std::string& out, std::string_view text, const CharsMap& map, size_t limit);

/// Appends the text as the `tokenizers` package maps it: by grapheme clusters of fewer than six bytes, else by
/// characters, and for each the shortest known prefix stands for the whole. Stops as soon as `out` has more than
/// `limit` bytes.
void append_mapped_by_grapheme(std::string& out, std::string_view text, const CharsMap& map, size_t limit);

}  // namespace cohort::text
