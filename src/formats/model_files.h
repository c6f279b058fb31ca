// Which files a model consists of, and whether something may be written where a command was told to.
#pragma once

#include <filesystem>
#include <vector>

#include "cohort/error.h"

namespace cohort {

/// All files of a model, in order of their names: a GGUF file, all parts of a split one, or the safetensors and JSON
/// files of a folder.
std::vector<std::filesystem::path> model_files(const std::filesystem::path& model);

/// For a file that is written at the end of long work, before it: its folder must be there and must let files be
/// written, and the file must be none of `inputs`, by whatever name or link. invalid_argument, not_found or io, naming
/// the file.
Expected<void> check_output_file(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs);

}  // namespace cohort
