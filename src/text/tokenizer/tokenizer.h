// Text to token ids and back, for models from GGUF metadata and from Hugging Face's tokenizer.json.
//
// What is promised: encode() gives the ids that the `tokenizers` package gives (SentencePiece for score-based GGUF
// vocabularies), never loses text silently, and is bounded in time and memory. Known deviations, each on purpose:
//   - text that a vocabulary cannot express (no token, no byte tokens, no unknown token) is an error, not dropped;
//   - tokenizer.json's "truncation" and "padding" are ignored: the engine decides what fits;
//   - <0xNN> byte tokens decode as one UTF-8 stream: a run with a mistake keeps its valid characters, where the package
//     gives one U+FFFD for every byte of the run;
//   - clean_up_tokenization_spaces is ignored: decode() gives the text that was encoded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {

/// A tokenizer as GGUF metadata has it; field names are those of the keys tokenizer.ggml.*. What is absent in the file
/// stays empty.
struct TokenizerData {
  std::string model;                 // "gpt2", "llama", "gemma4" or "t5"
  std::string pre;                   // name of the pre-tokenizer of a gpt2 model
  std::vector<std::string> tokens;   // by id
  std::vector<float> scores;         // by id
  std::vector<int32_t> token_types;  // by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;   // "left right", in order of rank
  std::string precompiled_charsmap;  // SentencePiece's normalizer
  std::optional<int32_t> bos_id, eos_id, eot_id, eom_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

struct EncodeOptions {
  bool add_special = true;    // the model's own first and last tokens (<s> ...)
  bool parse_special = true;  // "<|im_end|>" in the text is that token; otherwise it is text (added tokens that are not
                              // special are always parsed)
  /// Byte positions, ascending, where the spelling of a special token is text all the same. The text must be valid
  /// UTF-8 then.
  std::span<const size_t> literal = {};
};

class Detokenizer;
struct TokenizerParts;

/// An immutable tokenizer: cheap to copy, safe to share between threads.
class Tokenizer {
 public:
  /// Errors: unsupported (an unknown model or pre-tokenizer; the message lists the known ones), corrupt, capacity.
  static Expected<Tokenizer> from_gguf(const TokenizerData& data, const TokenizerLimits& limits = {});

  /// What lies beside tokenizer.json; empty where there is no such file.
  struct Companions {
    std::string tokenizer_config;   // special tokens, added tokens, add_bos_token
    std::string generation_config;  // end tokens
    std::string model_config;       // config.json: end tokens, and special ones that tokenizer_config does not name
  };
  /// From the contents of tokenizer.json and its companions. Errors: as above, naming the file and the component; ids
  /// that are no tokens are corrupt.
  static Expected<Tokenizer> from_huggingface(std::string_view tokenizer_json, const Companions& companions,
                                              const TokenizerLimits& limits = {});
  static Expected<Tokenizer> from_huggingface(std::string_view tokenizer_json, const TokenizerLimits& limits = {}) {
    return from_huggingface(tokenizer_json, Companions{}, limits);
  }

  /// Token ids of a text. Invalid UTF-8 is read as U+FFFD, one for each maximal invalid subpart, which is what Python's
  /// errors="replace" gives the `tokenizers` package. Errors: capacity, unsupported; invalid_argument (invalid UTF-8
  /// with positions that are literal).
  Expected<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Where in a text the spelling of a special token begins (bytes, ascending), also inside of another one's.
  std::vector<size_t> special_places(std::string_view text) const;

  /// The text of token ids, always valid UTF-8: broken characters are U+FFFD. Ids of gaps in the vocabulary have no
  /// text. Errors: invalid_argument, for an id outside of the vocabulary.
  Expected<std::string> decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// One more than the largest id.
  size_t vocab_size() const;
  /// The bytes that a token adds to a text (not always whole characters); empty for an id without a token.
  std::string_view piece(int32_t id) const;
  /// The vocabulary's own spelling, as "Ġthe" or "▁the"; empty for an id without a token.
  std::string_view token_text(int32_t id) const;
  /// The id of a token in the vocabulary's own spelling.
  std::optional<int32_t> token_id(std::string_view text) const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  std::optional<int32_t> unk_id() const;
  /// What encode() puts in front and behind with add_special.
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix() const;
  /// Special (control) tokens: parsed only with parse_special, skipped by decode() with skip_special.
  bool is_special(int32_t id) const;
  /// The tokens after which generation stops, ascending: eos and the known ends of a turn or a text.
  std::span<const int32_t> end_ids() const;
  bool is_end(int32_t id) const;
  /// In words, for reports: "bpe (byte level), 151,936 tokens".
  std::string description() const;

 private:
  friend class Detokenizer;
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const TokenizerParts> parts_;
};

/// Decodes a stream of tokens into text that is fit to print: never a part of a character.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = true;
    /// The ids begin a text, so that the space which some tokenizers put in front of it is taken away again. False for
    /// ids that continue a prompt.
    bool at_start = true;
  };
  explicit Detokenizer(Tokenizer tokenizer) : Detokenizer(std::move(tokenizer), Options{}) {}
  Detokenizer(Tokenizer tokenizer, const Options& options);

  /// The text that is certain after this token; empty while a character is unfinished. An id without a token adds
  /// nothing.
  std::string push(int32_t id);
  /// The rest: U+FFFD if the last character is unfinished. Afterwards the object starts a new text.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  Options options_;
  Utf8Stream stream_;
  bool first_ = true;      // no token yet
  size_t strip_left_ = 0;  // leading spaces that are still to be taken away
};

}  // namespace cohort::text
