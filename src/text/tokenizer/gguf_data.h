// The tokenizer part of GGUF metadata (tokenizer.ggml.*).
#pragma once

#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort::text {

/// Errors: not_found (no tokenizer in the file), corrupt (a key of another type), naming the key.
Expected<TokenizerData> tokenizer_data_from_gguf(const gguf::Metadata& metadata);

}  // namespace cohort::text
