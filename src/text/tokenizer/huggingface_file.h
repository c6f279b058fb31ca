// tokenizer.json, read in one pass: the vocabulary and the merges, which are most of the file, go straight into lists;
// the rest becomes a JSON value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"
#include "text/tokenizer/model.h"

namespace cohort::text {

struct HuggingFaceFile {
  nlohmann::json rest;                                 // without model.vocab and model.merges
  std::vector<std::pair<std::string, int32_t>> vocab;  // model.vocab as an object: (text, id)
  std::vector<std::pair<std::string, double>> scores;  // model.vocab as an array: (text, score), by id
  bool has_vocab = false, has_scores = false, has_merges = false;
  MergeList merges;
};

/// Errors: corrupt, naming the place; capacity.
Expected<HuggingFaceFile> read_huggingface_file(std::string_view json, const TokenizerLimits& limits);

}  // namespace cohort::text
