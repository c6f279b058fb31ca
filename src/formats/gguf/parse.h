// Internal to formats/gguf: the contents of one file, before parts are joined.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf/gguf.h"

namespace cohort::gguf {

struct ParsedFile {
  uint32_t version = 3;
  uint32_t alignment = kDefaultAlignment;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in the order of the table, data set
};

/// Parses and checks one file; `file` stands in messages. Duplicate tensor names are found by the caller, who has all
/// parts.
Expected<ParsedFile> parse(std::span<const std::byte> bytes, const std::string& file);

}  // namespace cohort::gguf
