// A model on disk made ready to run: its files, configuration, weights and program. Immutable once loaded.
#pragma once

#include <filesystem>
#include <memory>

#include "cohort/error.h"
#include "formats/gguf/gguf.h"
#include "formats/huggingface/huggingface.h"
#include "formats/safetensors/safetensors.h"
#include "models/config.h"
#include "models/program.h"
#include "models/weight_store.h"

namespace cohort {

class Model {
 public:
  /// `path`: a GGUF file (the first of a split), or a folder with config.json and safetensors. `context`: positions
  /// that rotary tables are made for; 0 = what the model was trained for. Errors name the file, the value, the limit
  /// and what is supported.
  static Expected<std::unique_ptr<Model>> load(const std::filesystem::path& path, int32_t context = 0);

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const Program& program() const { return program_; }
  /// Positions a sequence may have.
  int32_t context() const { return context_; }
  /// What to say to who needs more positions: "raise -c (the model was made for 4096)", or that no -c gives more.
  std::string longer_context() const;
  /// Bytes of all matrices of the program.
  size_t weight_bytes() const { return store_->matrix_bytes(); }

  /// Exactly one of these is not null: where the tokenizer is found.
  const gguf::File* gguf_file() const { return gguf_ ? &*gguf_ : nullptr; }
  const huggingface::Folder* folder() const { return folder_ ? &*folder_ : nullptr; }

 private:
  Model() = default;
  Expected<void> open(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::optional<gguf::File> gguf_;
  std::optional<huggingface::Folder> folder_;
  std::optional<safetensors::Folder> safetensors_;
  std::unique_ptr<WeightStore> store_;
  ModelConfig config_;
  RopeTables rope_;
  Program program_;
  int32_t context_ = 0;
};

}  // namespace cohort
