// The tokenizer of a model, wherever the model lies.
#pragma once

#include <filesystem>

#include "cohort/error.h"
#include "text/tokenizer/tokenizer.h"

namespace cohort::text {

/// From a GGUF file, a folder with tokenizer.json (and, if they are there, tokenizer_config.json,
/// generation_config.json and config.json), or a tokenizer.json itself, whose folder is then read in the same way.
/// Errors name the file.
Expected<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace cohort::text
