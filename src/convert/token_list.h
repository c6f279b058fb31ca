// Internal to convert/: tokens, kinds and merges of a tokenizer.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/error.h"

namespace cohort::convert_detail {

/// GGUF's token types.
enum class TokenKind : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct TokenList {
  bool byte_level = false;          // GPT-2's byte alphabet; else SentencePiece with <0xNN> tokens
  std::vector<std::string> tokens;  // by id, one for each row of the embedding
  std::vector<TokenKind> kinds;     // by id
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank

  std::optional<int64_t> id_of(std::string_view token) const;

  std::unordered_map<std::string, int64_t> ids;
};

/// Reads the BPE model and the added tokens. Errors: corrupt (ids out of range or used twice, merges of unknown form),
/// unsupported (other models than BPE).
Expected<TokenList> read_token_list(const nlohmann::json& tokenizer, int64_t vocabulary);

/// Does a component (normalizer, pre_tokenizer, ...) or one of its sequence have this type? Returns the first, or
/// nullptr.
const nlohmann::json* find_component(const nlohmann::json& tokenizer, const char* part, std::string_view type);

/// SentencePiece scores that give the same merges as the merge list: minus the rank of the first merge that makes the
/// token.
std::vector<float> merge_scores(const TokenList& list);

/// The name that GGUF files give to this pre-tokenizer, recognised by its patterns.
Expected<std::string> recognise_pre(const nlohmann::json& tokenizer);

}  // namespace cohort::convert_detail
