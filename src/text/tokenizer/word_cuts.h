// Where a piece may be cut without changing its encoding: models that take whole texts as one piece would otherwise
// sort the merges of a megabyte at once. A cut is safe where no token has the two characters side by side.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace cohort::text {

class WordCuts {
 public:
  /// `mergeable` are the ids that merges can produce. Nothing is cut unless U+2581 and newline always have tokens, so
  /// that runs of unknown characters end there anyway.
  WordCuts() = default;
  WordCuts(const Vocabulary& vocabulary, const std::vector<bool>& mergeable, bool byte_fallback);

  /// Calls encode(part), which returns Expected<void>, for each part of the piece from left to right.
  template <class Encode>
  auto for_each(std::string_view piece, Encode&& encode) const -> decltype(encode(piece)) {
    size_t begin = 0;
    while (begin < piece.size()) {
      const size_t end = next_cut(piece, begin);
      if (auto result = encode(piece.substr(begin, end - begin)); !result) {
        return result;
      }
      begin = end;
    }
    return {};
  }

 private:
  size_t next_cut(std::string_view piece, size_t begin) const;

  bool before_space_ = false;    // between another character and U+2581
  bool around_newline_ = false;  // between a newline and another character
};

}  // namespace cohort::text
