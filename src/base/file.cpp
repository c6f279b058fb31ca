#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/result.h"

namespace cohort {
namespace {

constexpr size_t kWriteBuffer = size_t{4} << 20;  // one system call per 4 MB

std::string reason() {
  return std::strerror(errno);
}

ErrorCode code_of_errno() {
  return errno == ENOENT ? ErrorCode::not_found : ErrorCode::io;
}

/// Opens PATH for reading and returns its descriptor and size; folders and devices are refused.
Expected<std::pair<int, size_t>> open_regular(const std::filesystem::path& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(code_of_errno(), "cannot open '{}': {}", path.string(), reason());
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    auto error = fail(ErrorCode::io, "cannot read the size of '{}': {}", path.string(), reason());
    ::close(fd);
    return error;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::invalid_argument, "'{}' is not a regular file", path.string());
  }
  return std::pair{fd, static_cast<size_t>(status.st_size)};
}

}  // namespace

Expected<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  COHORT_ASSIGN(auto opened, open_regular(path));
  auto [fd, size] = opened;
  MappedFile file;
  file.path_ = path;
  file.size_ = size;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      auto error = fail(ErrorCode::io, "cannot map '{}' ({} bytes): {}", path.string(), size, reason());
      ::close(fd);
      return error;
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Expected<AtomicFileWriter> AtomicFileWriter::create(const std::filesystem::path& path) {
  if (!path.has_filename())
    return fail(ErrorCode::invalid_argument, "the output file has no name ('{}')", path.string());
  // Renaming onto a device or a socket would replace it.
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::invalid_argument, "'{}' exists and is not a regular file; it would be replaced",
                path.string());
  }
  AtomicFileWriter writer;
  writer.path_ = path;
  writer.temporary_ = path;
  writer.temporary_ += fmt::format(".{}.partial", ::getpid());
  std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  // A file without a name disappears even when the process is killed; not every file system has them.
  writer.fd_ = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
  writer.nameless_ = writer.fd_ >= 0;
  if (writer.fd_ < 0) writer.fd_ = ::open(writer.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return fail(code_of_errno(), "cannot create '{}': {}", writer.temporary_.string(), reason());
  return writer;
}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      nameless_(other.nameless_),
      position_(other.position_),
      buffer_(std::move(other.buffer_)) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!nameless_) ::unlink(temporary_.c_str());
}

Expected<void> AtomicFileWriter::write(std::span<const std::byte> bytes) {
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  position_ += bytes.size();
  if (buffer_.size() >= kWriteBuffer) return flush();
  return {};
}

Expected<void> AtomicFileWriter::pad_to(size_t alignment) {
  size_t missing = (alignment - position_ % alignment) % alignment;
  buffer_.append(missing, '\0');
  position_ += missing;
  return {};
}

Expected<void> AtomicFileWriter::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    ssize_t wrote = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return fail(ErrorCode::io, "cannot write '{}' after {} bytes: {}", path_.string(),
                  position_ - (buffer_.size() - done), reason());
    }
    done += static_cast<size_t>(wrote);
  }
  buffer_.clear();
  return {};
}

Expected<void> AtomicFileWriter::commit() {
  COHORT_TRY(flush());
  if (::fsync(fd_) != 0) return fail(ErrorCode::io, "cannot sync '{}': {}", path_.string(), reason());
  if (nameless_) {
    // linkat cannot replace a file, rename can: so the new file gets the temporary name for a moment.
    ::unlink(temporary_.c_str());
    std::string self = fmt::format("/proc/self/fd/{}", fd_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return fail(ErrorCode::io, "cannot name '{}': {}", temporary_.string(), reason());
    }
    nameless_ = false;
  }
  if (::close(std::exchange(fd_, -1)) != 0) {
    auto error = fail(ErrorCode::io, "cannot close '{}': {}", path_.string(), reason());
    ::unlink(temporary_.c_str());
    return error;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    auto error = fail(ErrorCode::io, "cannot rename '{}' to '{}': {}", temporary_.string(), path_.string(), reason());
    ::unlink(temporary_.c_str());
    return error;
  }
  return {};
}

Expected<std::string> read_text_file(const std::filesystem::path& path, size_t limit) {
  COHORT_ASSIGN(auto file, MappedFile::open(path));
  auto bytes = file.bytes();
  if (bytes.size() > limit) {
    return fail(ErrorCode::invalid_argument, "'{}' has {} bytes; at most {} are read", path.string(), bytes.size(),
                limit);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Expected<std::string> read_text_stream(const std::filesystem::path& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(code_of_errno(), "cannot open '{}': {}", path.string(), reason());
  constexpr size_t kPiece = size_t{1} << 16;
  std::string text;
  while (true) {
    const size_t done = text.size();
    text.resize(done + kPiece);
    const ssize_t got = ::read(fd, text.data() + done, kPiece);
    if (got < 0 && errno != EINTR) {
      auto error = fail(ErrorCode::io, "cannot read '{}': {}", path.string(), reason());
      ::close(fd);
      return error;
    }
    text.resize(done + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || text.size() > limit) break;
  }
  ::close(fd);
  if (text.size() > limit) {
    return fail(ErrorCode::invalid_argument, "'{}' has more than {} bytes, the most that are read", path.string(),
                limit);
  }
  return text;
}

}  // namespace cohort
