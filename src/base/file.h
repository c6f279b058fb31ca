// Files: read-only memory maps and writers that never leave a half-written file behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "cohort/error.h"

namespace cohort {

/// A whole file mapped read-only. Movable; unmapped on destruction.
class MappedFile {
 public:
  static Expected<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Writes PATH through a temporary file in the same folder; commit() flushes, syncs and renames. Destroyed without
/// commit(), it removes the temporary file, so a reader never sees a part of a file; where the file system has nameless
/// files, nothing is left even when the process is killed. Errors (disk full, ...) name the path and the reason.
class AtomicFileWriter {
 public:
  static Expected<AtomicFileWriter> create(const std::filesystem::path& path);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  Expected<void> write(std::span<const std::byte> bytes);
  /// Writes zero bytes until position() is a multiple of `alignment`.
  Expected<void> pad_to(size_t alignment);
  uint64_t position() const { return position_; }
  Expected<void> commit();

 private:
  AtomicFileWriter() = default;
  Expected<void> flush();
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  bool nameless_ = false;  // the temporary file has no name yet
  uint64_t position_ = 0;
  std::string buffer_;
};

/// The whole file as a string; at most `limit` bytes.
Expected<std::string> read_text_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);
/// The same for what people name on a command line: also pipes and terminals (/dev/stdin, a shell's <(...)), read to
/// their end.
Expected<std::string> read_text_stream(const std::filesystem::path& path, size_t limit);

}  // namespace cohort
