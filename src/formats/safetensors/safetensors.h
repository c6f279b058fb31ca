// safetensors files: eight bytes of header length, a JSON header, then the tensors' bytes. One file or a folder of
// shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cohort/error.h"
#include "formats/safetensors/dtype.h"

namespace cohort::safetensors {

/// The header may have this many bytes (the format's own limit).
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;       // row-major: the slowest dimension first; empty for a scalar; a dimension may be 0
  const std::byte* data = nullptr;  // into the mapped file; NOT aligned: read it with memcpy
  size_t bytes = 0;

  int64_t values() const;
};

/// Tensors of one file. Every range was checked: inside the file, of the size that shape and type need, without
/// overlap.
class File {
 public:
  static Expected<File> open(const std::filesystem::path& path);
  /// Reads from memory that the caller keeps alive; `name` stands in messages.
  static Expected<File> from_bytes(std::span<const std::byte> bytes, const std::string& name);

  std::span<const TensorInfo> tensors() const { return tensors_; }  // by position in the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  friend class Folder;
  MappedFile map_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  uint64_t file_bytes_ = 0;
};

/// All tensors of a checkpoint folder: model.safetensors, or the shards that model.safetensors.index.json names.
class Folder {
 public:
  /// Errors: not_found (no checkpoint, or a missing shard by name), corrupt (a file, or an index that contradicts its
  /// files).
  static Expected<Folder> open(const std::filesystem::path& directory);

  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  size_t files() const { return files_.size(); }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  Expected<void> add(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<File> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
  std::unordered_map<std::string, std::string> file_of_;  // tensor name -> file name, for messages
  uint64_t file_bytes_ = 0;
};

/// A tensor to write; `data` holds dtype_bytes(dtype) * product(shape) bytes.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes one file with tensors in the given order (for fixtures and tests; everything is in memory).
Expected<void> write_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                          const std::map<std::string, std::string>& metadata = {});

}  // namespace cohort::safetensors
