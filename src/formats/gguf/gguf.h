// GGUF files, versions 2 and 3, little-endian: reading (memory-mapped, also split over several files) and writing.
// Layout: magic, version, tensor count, metadata count, metadata, tensor table, padding, tensor data at aligned
// offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "cohort/error.h"
#include "formats/gguf/metadata.h"
#include "quant/types.h"

namespace cohort::gguf {

inline constexpr uint32_t kDefaultAlignment = 32;

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<int64_t> shape;       // GGUF order: the row (fastest) dimension first; empty for a scalar
  const std::byte* data = nullptr;  // into the mapped file, aligned to general.alignment
  size_t bytes = 0;

  /// Number of values: the product of `shape`.
  int64_t values() const;
};

/// "[2048, 768, 128]"
std::string shape_text(std::span<const int64_t> shape);

/// A GGUF model that was checked completely: every offset lies in the file, no two tensors overlap, no name or key
/// occurs twice. Movable; tensor data stays mapped as long as it lives.
class File {
 public:
  /// Opens `path`, and the other parts when it is the first of a split ("x-00001-of-00003.gguf"). Errors: not_found
  /// (the file or a part), io, corrupt (what contradicts the format, with the byte offset), unsupported (version, byte
  /// order, tensor type).
  static Expected<File> open(const std::filesystem::path& path);
  /// Reads one file from memory that the caller keeps alive; `name` stands in messages. A split file is refused.
  static Expected<File> from_bytes(std::span<const std::byte> bytes, std::string name);

  const Metadata& metadata() const { return metadata_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find_tensor(std::string_view name) const;

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  const std::filesystem::path& path() const { return path_; }
  /// Bytes of all parts on disk.
  uint64_t file_bytes() const { return file_bytes_; }
  size_t parts() const { return parts_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  Expected<void> add_tensors(std::vector<TensorInfo> tensors, const std::string& part);
  Expected<void> open_other_parts(uint64_t count);

  std::filesystem::path path_;
  std::vector<MappedFile> maps_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
  uint32_t version_ = 3;
  uint32_t alignment_ = kDefaultAlignment;
  uint64_t file_bytes_ = 0;
  size_t parts_ = 1;
};

/// Writes a version 3 file, tensor by tensor, so that a model larger than memory can be written. Order of calls:
/// create, metadata().add(...) and add_tensor(...) as often as needed, begin_data, then the bytes of every tensor in
/// the order they were added (in pieces of any size), commit. Nothing is visible at `path` before commit().
class Writer {
 public:
  static Expected<Writer> create(const std::filesystem::path& path, uint32_t alignment = kDefaultAlignment);

  Metadata& metadata() { return metadata_; }
  /// Declares a tensor; `shape` in GGUF order. invalid_argument for duplicates and rows that are no whole number of
  /// blocks.
  Expected<void> add_tensor(std::string name, TensorType type, std::vector<int64_t> shape);
  std::span<const TensorInfo> tensors() const { return tensors_; }
  /// Bytes of the finished file; valid when all metadata and tensors are added.
  uint64_t total_bytes() const;
  Expected<void> begin_data();
  /// Appends to the current tensor; the next one starts when it is complete.
  Expected<void> write(std::span<const std::byte> bytes);
  /// internal when tensors are incomplete; otherwise makes the file visible.
  Expected<void> commit();

 private:
  Writer(AtomicFileWriter file, uint32_t alignment) : file_(std::move(file)), alignment_(alignment) {}
  std::string header() const;

  AtomicFileWriter file_;
  uint32_t alignment_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> names_;
  size_t current_ = 0;          // tensor that is being written
  size_t current_written_ = 0;  // of its bytes
  bool data_begun_ = false;
};

}  // namespace cohort::gguf
