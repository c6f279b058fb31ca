// Keeps what a conversation says apart from what its chat template writes, so that "<|im_end|>" in a message is text
// and only the template's own is the token that ends a turn.
//
// A template may do anything with a message (trim it, join it, write it as JSON), so the two cannot be told apart by
// where they stand. Instead a mark is put into every special token's spelling that a message has, behind its first
// character: a noncharacter of Unicode, which means nothing to any template and occurs in none of the texts. Where it
// comes out, there the spelling is text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort {

/// A rendered conversation, and where in it (bytes, ascending) a special token's spelling is text:
/// EncodeOptions::literal.
struct MarkedText {
  std::string text;
  std::vector<size_t> literal;
};

class ContentMarks {
 public:
  /// A mark that none of the strings of `texts` has. Errors: invalid_argument (they have all 32 that it could be).
  static Expected<ContentMarks> create(const text::Tokenizer& tokenizer,
                                       std::span<const nlohmann::ordered_json* const> texts);

  /// Puts the mark into the special tokens that the strings and names of `json` spell, but for those in `except`.
  void put_into(nlohmann::ordered_json& json, std::span<const std::string_view> except = {}) const;
  /// Into the messages of a conversation. The marks of thoughts stay the template's in what the assistant said.
  void put_into_messages(nlohmann::ordered_json& messages) const;
  /// Takes it out of what was made of them.
  MarkedText take_out(std::string_view rendered) const;

 private:
  ContentMarks(text::Tokenizer tokenizer, std::string mark, std::string escaped)
      : tokenizer_(std::move(tokenizer)), mark_(std::move(mark)), escaped_(std::move(escaped)) {}
  std::string marked(const std::string& text, std::span<const std::string_view> except) const;

  text::Tokenizer tokenizer_;
  std::string mark_, escaped_;  // the second one as JSON writes it in ASCII
};

}  // namespace cohort
