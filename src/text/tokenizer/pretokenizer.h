// Pre-tokenizers: how a normalized text is cut into the pieces that the model encodes one by one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/regex.h"

namespace cohort::text {

/// A piece of the text. `first` says that the original text starts with it.
struct Piece {
  std::string_view text;
  bool first = false;
};

/// What becomes of the places that a splitter matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

namespace split {
/// By a pattern; `invert` swaps matches and what lies between them.
struct ByPattern {
  std::shared_ptr<const Pattern> pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};
/// By single characters of a class.
struct ByClass {
  bool (*belongs)(char32_t) = nullptr;
  SplitBehavior behavior = SplitBehavior::isolated;
};
struct ByCharacter {
  char32_t character = 0;
  SplitBehavior behavior = SplitBehavior::removed;
};
/// Into runs of `length` characters.
struct ByLength {
  size_t length = 1;
};
/// A space before each piece that does not start with one.
struct PrefixSpace {};
/// Bytes become the characters of the byte alphabet.
struct ByteAlphabet {};
/// Spaces become `replacement`; one is put in front, and pieces start at each.
struct Metaspace {
  enum class Prepend { never, first, always };
  std::string replacement;  // one character
  Prepend prepend = Prepend::always;
  bool split = true;
};
}  // namespace split

using PreTokenizerStep = std::variant<split::ByPattern, split::ByClass, split::ByCharacter, split::ByLength,
                                      split::PrefixSpace, split::ByteAlphabet, split::Metaspace>;

/// A sequence of pre-tokenizers. Immutable after it is built.
class PreTokenizer {
 public:
  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }
  bool ends_with_byte_alphabet() const;
  /// Drops the last step: the model takes bytes itself.
  void remove_last() { steps_.pop_back(); }

  /// Cuts `piece` and appends the results, none of them empty. New text is kept in `storage`, which must outlive the
  /// pieces.
  Expected<void> apply(Piece piece, std::vector<Piece>& out, std::deque<std::string>& storage,
                       MatchScratch& scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace cohort::text
