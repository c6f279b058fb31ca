// How tokens become bytes: a table of what each token adds, and what is special about the first one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"
#include "text/tokenizer/vocabulary.h"

namespace cohort::text {

namespace detoken {
/// In the token's text.
struct Replace {
  std::string from, to;
};
/// Up to `left` and `right` times the character from the ends of the token's text.
struct Strip {
  std::string character;
  size_t left = 0, right = 0;
};
/// A token <0xNN> is that byte.
struct ByteFallback {};
/// The token's text is in the byte alphabet (added tokens are not).
struct ByteAlphabet {};
}  // namespace detoken

using DecoderStep = std::variant<detoken::Replace, detoken::Strip, detoken::ByteFallback, detoken::ByteAlphabet>;

struct DecoderConfig {
  std::vector<DecoderStep> steps;  // on every token
  std::string strip_character;     // taken from the start of the text ...
  size_t strip_left = 0;           // ... up to so often
  std::string dropped_in_first;    // removed from the first token before the steps (Metaspace)
  bool join_with_spaces = false;   // no decoder at all: tokens with spaces between
};

/// Immutable.
class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// `added`: tokens whose text is literal. Errors: capacity, if the steps make tokens grow out of all proportion.
  static Expected<TokenDecoder> create(std::shared_ptr<const Vocabulary> vocabulary, DecoderConfig config,
                                       std::vector<bool> added, const TokenizerLimits& limits);

  const DecoderConfig& config() const { return config_; }
  /// The bytes of a token inside of a text.
  std::string_view piece(int32_t id) const { return pieces_[id]; }
  /// The bytes of a token that is the first one.
  std::string first_piece(int32_t id) const;

 private:
  Expected<std::string> bytes(std::string_view text, bool added) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  DecoderConfig config_;
  std::vector<bool> added_;
  TokenTexts pieces_;
  size_t max_bytes_ = 0;  // of one piece
};

}  // namespace cohort::text
