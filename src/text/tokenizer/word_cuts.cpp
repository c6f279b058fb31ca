#include "text/tokenizer/word_cuts.h"

namespace cohort::text {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

bool space_at(std::string_view text, size_t i) {
  return text.substr(i, kSpace.size()) == kSpace;
}

/// Whether U+2581 stands behind another character.
bool has_space_inside(std::string_view text) {
  for (size_t i = text.find(kSpace, 1); i != std::string_view::npos; i = text.find(kSpace, i + 1)) {
    if (i < kSpace.size() || !space_at(text, i - kSpace.size())) {
      return true;
    }
  }
  return false;
}

/// Whether a newline stands beside another character.
bool mixes_newlines(std::string_view text) {
  return text.find('\n') != std::string_view::npos && text.find_first_not_of('\n') != std::string_view::npos;
}

}  // namespace

WordCuts::WordCuts(const Vocabulary& vocabulary, const std::vector<bool>& mergeable, bool byte_fallback) {
  before_space_ = vocabulary.find(kSpace).has_value();
  around_newline_ = byte_fallback || vocabulary.find("\n").has_value();
  for (size_t i = 0; i < mergeable.size(); ++i) {
    if (mergeable[i]) {
      const std::string_view text = vocabulary.text(static_cast<int32_t>(i));
      before_space_ = before_space_ && !has_space_inside(text);
      around_newline_ = around_newline_ && !mixes_newlines(text);
    }
  }
}

size_t WordCuts::next_cut(std::string_view piece, size_t begin) const {
  if (!before_space_ && !around_newline_) {
    return piece.size();
  }
  // The first character never ends a part; a leading run of U+2581 belongs to the word behind it.
  bool in_spaces = space_at(piece, begin);
  bool in_newlines = piece[begin] == '\n';
  for (size_t i = begin + (in_spaces ? kSpace.size() : 1); i < piece.size();) {
    const bool space = piece[i] == kSpace[0] && space_at(piece, i);
    const bool newline = piece[i] == '\n';
    if ((before_space_ && space && !in_spaces) || (around_newline_ && newline != in_newlines)) {
      return i;
    }
    in_spaces = space;
    in_newlines = newline;
    i += space ? kSpace.size() : 1;
  }
  return piece.size();
}

}  // namespace cohort::text
