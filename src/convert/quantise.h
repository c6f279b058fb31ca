// GGUF to GGUF with other types: from floats, or, with a loss that is reported, from a quantised file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "convert/convert.h"
#include "convert/mixes.h"
#include "quant/types.h"

namespace cohort {

struct QuantiseOptions {
  const MixInfo* mix = nullptr;  // never null when quantise() is called
  bool pure = false;             // the mix's base type for every matrix, head and embedding included
  AttentionWidth attention = AttentionWidth::wider;
  std::optional<TensorType> head, embedding;
  /// Regular expressions (ECMAScript) searched in tensor names, with the type of those that match; the first one wins,
  /// before every other rule. They reach tensors that mixes keep, too.
  std::vector<std::pair<std::string, TensorType>> overrides;
  std::filesystem::path importance;  // an importance matrix; empty: none
  /// Types that need an importance matrix are encoded without one instead of refused.
  bool allow_no_importance = false;
  uint64_t split_bytes = 0;   // of the tensors in one file of several; 0: one file
  int64_t split_tensors = 0;  // in one file of several; 0: any number
  int jobs = 1;               // threads
  bool dry_run = false;       // plan and report; nothing is written
  std::function<void(const ConvertProgress&)> progress;
  std::function<bool()> cancelled;
};

struct QuantisedTensor {
  std::string name;
  std::vector<int64_t> shape;
  TensorType from = TensorType::f32, to = TensorType::f32;
  bool importance = false;
};

struct QuantiseReport {
  std::vector<QuantisedTensor> tensors;  // in the order of the file
  uint64_t parameters = 0;
  uint64_t in_bytes = 0, out_bytes = 0;
  double bits_per_weight = 0;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;  // fallbacks, re-quantised tensors, experts without importance
};

/// Everything but the values is checked before the first byte is written; the files of a split appear together when all
/// are complete. Errors: those of reading, invalid_argument (overrides, an importance matrix of another model, types
/// that need importance), capacity (disk), io, cancelled.
Expected<QuantiseReport> quantise(const std::filesystem::path& input, const std::filesystem::path& output,
                                  const QuantiseOptions& options);

}  // namespace cohort
