// The parts that every tokenizer is made of, whatever file they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/limits.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace cohort::text {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;  // every token, added ones included
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const Model> model;
  TokenDecoder decoder;
  std::vector<bool> special;  // by id
  std::optional<int32_t> bos, eos, pad, unk;
  std::vector<int32_t> prefix, suffix;
  std::vector<int32_t> ends;  // ascending
  std::string kind;           // the model in words
  TokenizerLimits limits;
};

/// The ids that end a generation: `known` (eos, eot, those of generation_config.json) and the tokens with a well-known
/// name. `added` tells the tokens that are not plain text, by id. Ascending.
std::vector<int32_t> find_end_ids(const Vocabulary& vocabulary, const std::vector<bool>& added,
                                  const std::vector<int32_t>& known);

/// True for names that only ever mean the end of a turn or a text ("<|im_end|>").
bool is_end_name(std::string_view text);

}  // namespace cohort::text
