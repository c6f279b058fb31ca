// Models: how one piece of a text becomes token ids. Three algorithms: byte pair encoding by merge ranks,
// SentencePiece's by scores, and the unigram language model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"
#include "text/tokenizer/vocabulary.h"

namespace cohort::text {

/// Buffers of one encode() call, reused from piece to piece.
struct ModelScratch {
  struct Symbol {
    int32_t id = -1;        // the token so far; -1 for none
    int32_t previous = -1;  // neighbours in the chain, -1 at its ends
    int32_t next = -1;
    uint32_t begin = 0;  // bytes of the piece
    uint32_t size = 0;   // 0: merged into its left neighbour
  };
  struct Candidate {
    uint64_t order = 0;  // rank, then position: the smallest comes first
    int32_t left = -1, right = -1, merged = -1;
    uint32_t size = 0;
  };
  struct PathNode {
    double score = 0;
    int32_t id = -1;
    uint32_t size = 0;  // bytes of the token that ends here; 0: not reached
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<PathNode> path;
};

/// The error for a piece of more than limits.word_bytes that no rule cuts.
Expected<void> check_word_size(std::string_view word, const TokenizerLimits& limits);

/// An algorithm with its vocabulary. Immutable.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a piece, which is valid UTF-8 (or raw bytes for a byte-level model) and not empty.
  virtual Expected<void> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;
};

struct BpeConfig {
  bool byte_level = false;          // pieces are raw bytes, the vocabulary is in the byte alphabet
  bool ignore_merges = false;       // a piece that is a token is that token
  bool byte_fallback = false;       // unknown characters become <0xNN> tokens
  bool fuse_unknown = false;        // runs of unknown characters become one unknown token
  bool whole_newline_runs = false;  // a piece of newlines that is a token is that token
  std::optional<int32_t> unknown;
};

using MergeList = std::vector<std::pair<std::string, std::string>>;

/// Byte pair encoding: the pair with the lowest rank (place in `merges`) is merged first, leftmost among equals.
/// `words` are the ids that whole pieces may become. Errors: corrupt, if a merge speaks of tokens that do not exist.
Expected<std::unique_ptr<Model>> make_bpe(std::shared_ptr<const Vocabulary> vocabulary, const MergeList& merges,
                                          const BpeConfig& config, const std::vector<bool>& words,
                                          const TokenizerLimits& limits);

/// True if every byte has a token of its own in the byte alphabet, which a byte-level model needs.
bool has_all_bytes(const Vocabulary& vocabulary);

/// What a token of a score-based vocabulary is (GGUF's token types).
enum class TokenKind : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// SentencePiece BPE: the pair whose concatenation has the highest score is merged first, leftmost among equals.
Expected<std::unique_ptr<Model>> make_scored_bpe(std::shared_ptr<const Vocabulary> vocabulary,
                                                 const std::vector<float>& scores, const std::vector<TokenKind>& kinds,
                                                 std::optional<int32_t> unknown, const TokenizerLimits& limits);

struct UnigramConfig {
  std::optional<int32_t> unknown;
  bool byte_fallback = false;
  bool single_precision =
      false;  // sums are rounded as SentencePiece's, which decides between nearly equal segmentations
};

/// The most probable segmentation. `usable` are the ids that text may become; scores are log probabilities by id.
Expected<std::unique_ptr<Model>> make_unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                                              const std::vector<bool>& usable, const UnigramConfig& config,
                                              const TokenizerLimits& limits);

}  // namespace cohort::text
