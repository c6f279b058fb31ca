// Hugging Face safetensors to GGUF, with the metadata that llama.cpp and other GGUF programs expect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "quant/types.h"

namespace cohort {

struct ConvertProgress {
  uint64_t done_bytes = 0;  // of the output
  uint64_t total_bytes = 0;
  std::string_view tensor;  // the one that is being written
};

struct ConvertOptions {
  /// Type of the matrices; absent: as the checkpoint stores its embedding (F32, F16 or BF16). One of convert_types().
  std::optional<TensorType> type;
  int jobs = 1;                                          // threads
  std::string name;                                      // general.name; empty: the folder's name
  std::string pre;                                       // tokenizer.ggml.pre; empty: recognised by its patterns
  std::vector<std::pair<std::string, std::string>> set;  // further "general." keys with their texts
  bool ignore_unused = false;  // leave out tensors that the model does not use instead of refusing the folder
  std::function<void(const ConvertProgress&)> progress;  // called from the calling thread
  std::function<bool()> cancelled;                       // asked between pieces of work
};

struct ConvertReport {
  size_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;                  // of the file
  std::map<TensorType, size_t> types;  // tensors of each type
  std::vector<std::string> notes;      // what was not done as asked: fallbacks, tensors left out
};

/// The types that convert() writes.
const std::vector<TensorType>& convert_types();

/// Converts the checkpoint in `folder` to one GGUF file. Everything but the weights' values is checked before the first
/// byte is written: config, tokenizer, every tensor's presence, shape and type, room on the disk; `output` appears only
/// when it is complete. Errors: not_found, corrupt, unsupported (family, quantised checkpoints, unknown pre-tokenizer),
/// io, capacity (disk), cancelled.
Expected<ConvertReport> convert(const std::filesystem::path& folder, const std::filesystem::path& output,
                                const ConvertOptions& options);

}  // namespace cohort
