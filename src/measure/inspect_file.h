// What is in a model file or checkpoint folder, without loading it: metadata, tensors, counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/value.h"

namespace cohort {

struct TensorSummary {
  std::string name;
  std::string type;            // "q8_0", "bf16"
  std::vector<int64_t> shape;  // as the format orders it: GGUF row first, safetensors row last
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct TypeSummary {
  std::string type;
  uint64_t tensors = 0, parameters = 0, bytes = 0;
};

struct FileSummary {
  std::filesystem::path path;
  std::string format;  // "GGUF 3", "safetensors"
  size_t files = 1;
  uint64_t file_bytes = 0;
  std::string architecture, name;                             // empty where the file does not say
  std::vector<std::pair<std::string, gguf::Value>> metadata;  // of a folder: config.json, nested objects as JSON text
  std::vector<TensorSummary> tensors;                         // in the order of the file
  std::vector<TypeSummary> types;                             // by bytes, largest first
  uint64_t parameters = 0;
  uint64_t tensor_bytes = 0;

  double bits_per_weight() const {
    return parameters > 0 ? 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(parameters) : 0;
  }
};

/// Reads a GGUF file (the first of a split) or a checkpoint folder. Errors are those of the formats.
Expected<FileSummary> summarise(const std::filesystem::path& path);

/// The summary for people. Control characters of the file's strings are escaped, so that a hostile file cannot drive a
/// terminal.
std::string summary_text(const FileSummary& summary);
/// Arrays are cut after `max_items` (their length is given beside them).
nlohmann::ordered_json summary_json(const FileSummary& summary, size_t max_items);
/// One value in full, for `--key`: strings as they are, everything else as JSON.
std::string value_text(const gguf::Value& value);

}  // namespace cohort
