// Added tokens: strings that become one id wherever they stand in a text, before (or right after) normalization.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizer.h"

namespace cohort::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // is parsed only if the caller asks for it, and can be skipped in decoding
  bool single_word = false;  // not inside of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is looked for in the normalized text, in its normalized form
};

/// A part of a text: an added token, or text between them (id < 0).
struct Segment {
  std::string_view text;
  int32_t id = -1;
};

class AddedTokens {
 public:
  static Expected<AddedTokens> create(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                                      const TokenizerLimits& limits);

  /// Cuts raw text at the tokens that are looked for there. Leftmost, then longest, as the `tokenizers` package.
  /// `literal`: positions in `text`, ascending, where no special token begins.
  void split_raw(std::string_view text, bool parse_special, std::span<const size_t> literal,
                 std::vector<Segment>& out) const {
    split(text, raw_, parse_special, literal, out);
  }
  /// The same for normalized text and the other tokens.
  void split_normalized(std::string_view text, bool parse_special, std::vector<Segment>& out) const {
    split(text, normalized_, parse_special, {}, out);
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// Whether split_normalized() may find special tokens.
  bool special_normalized() const { return special_normalized_; }
  /// Positions, ascending, where the content of a special token begins.
  std::vector<size_t> special_places(std::string_view text) const;

 private:
  void split(std::string_view text, const ByteTrie& trie, bool parse_special, std::span<const size_t> literal,
             std::vector<Segment>& out) const;

  std::vector<AddedToken> tokens_;
  ByteTrie raw_, normalized_;  // values are indices into tokens_
  ByteTrie special_;           // contents of the special tokens
  bool special_normalized_ = false;
};

}  // namespace cohort::text
