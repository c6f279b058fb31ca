// The tokenizer.* keys of a converted file, from tokenizer.json and its companions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "formats/huggingface/huggingface.h"
#include "models/config.h"

namespace cohort::convert_detail {

/// Adds tokenizer.ggml.* and tokenizer.chat_template. The token list gets an entry for every row of the embedding;
/// ids without a token become unused "[PADn]" entries. `pre`: a name for tokenizer.ggml.pre, or empty to recognise it
/// by its patterns. Errors: not_found (no tokenizer.json), corrupt, unsupported (another kind of model, an unknown
/// pre-tokenizer).
Expected<void> add_tokenizer_metadata(const huggingface::Folder& folder, const ModelConfig& config,
                                      const std::string& pre, gguf::Metadata& out, std::vector<std::string>& notes);

}  // namespace cohort::convert_detail
