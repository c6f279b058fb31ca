// Normalizers: what happens to a text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

namespace cohort::text {

namespace normalize {
struct Form {
  NormalForm form = NormalForm::nfc;
};
struct Lowercase {};
struct StripAccents {};  // removes marks
struct Nmt {};           // drops control characters, makes odd spaces U+0020
struct Strip {
  bool left = true, right = true;
};
struct Prepend {
  std::string text;  // before a text that is not empty
};
struct ReplaceString {
  std::string from, to;  // `from` is not empty
};
struct ReplacePattern {
  std::shared_ptr<const Pattern> from;
  std::string to;
};
struct ByteAlphabet {};  // every byte becomes its character of the byte alphabet
struct MapCharacters {
  std::shared_ptr<const CharsMap> map;
  bool by_grapheme = false;
};
}  // namespace normalize

using NormalizerStep = std::variant<normalize::Form, normalize::Lowercase, normalize::StripAccents, normalize::Nmt,
                                    normalize::Strip, normalize::Prepend, normalize::ReplaceString,
                                    normalize::ReplacePattern, normalize::ByteAlphabet, normalize::MapCharacters>;

/// A sequence of normalizers. Immutable after it is built.
class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }

  /// Normalizes valid UTF-8 in place. Errors: capacity, when the text grows beyond limits.text_bytes.
  Expected<void> apply(std::string& text, const TokenizerLimits& limits, MatchScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace cohort::text
