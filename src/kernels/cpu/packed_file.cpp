#include "kernels/cpu/packed_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/result.h"
#include "formats/model_files.h"
#include "kernels/cpu/layout.h"

namespace cohort::cpu {
namespace {

constexpr std::string_view kFirstLine = "cohort packed weights";
// Samples of a file: enough that two models of one size and time differ in some, few enough to cost nothing.
constexpr size_t kSamples = 64;
constexpr size_t kSampleBytes = 4096;

/// FNV-1a, 64 bits.
struct Hash {
  uint64_t value = 0xcbf29ce484222325;
  void add(std::span<const std::byte> bytes) {
    for (std::byte b : bytes) value = (value ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  }
};

size_t round_up_to(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

Expected<std::string> line_of(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return fail(ErrorCode::io, "cannot read the time of '{}': {}", path.string(), std::strerror(errno));
  COHORT_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  Hash hash;
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t last = bytes.size() > kSampleBytes ? bytes.size() - kSampleBytes : 0;
    const size_t at = last / (kSamples - 1) * i;
    hash.add(bytes.subspan(i + 1 == kSamples ? last : at, std::min(kSampleBytes, bytes.size())));
  }
  // A name with a line break would make two lines of one.
  std::string name = path.filename().string();
  std::ranges::replace(name, '\n', ' ');
  return fmt::format("source {} {} bytes {}.{:09} {:016x}\n", name, bytes.size(), status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, hash.value);
}

/// The line at `at` without its end.
std::string_view line_at(std::string_view text, size_t at) {
  return text.substr(at, std::min(text.find('\n', at), text.size()) - at);
}

}  // namespace

std::filesystem::path default_packed_file(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return model / "model.packed";
  std::filesystem::path file = model;
  file += ".packed";
  return file;
}

Expected<std::string> source_identity(const std::filesystem::path& model) {
  std::string text;
  for (const auto& path : model_files(model)) {
    COHORT_ASSIGN(const std::string line, line_of(path));
    text += line;
  }
  return text;
}

std::string packed_header(const std::string& source, const std::string& matrices, size_t bytes) {
  Hash hash;
  hash.add(std::as_bytes(std::span(matrices)));
  return fmt::format("{}\nformat {}\nlayouts {}\nmatrices {:016x}\ntiles {} bytes\n{}end\n", kFirstLine, kPackedFormat,
                     kLayoutVersion, hash.value, bytes, source);
}

Expected<void> write_packed_file(const std::filesystem::path& path, const std::string& header,
                                 std::span<const std::byte> tiles) {
  COHORT_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path));
  COHORT_TRY(file.write(std::as_bytes(std::span(header))));
  COHORT_TRY(file.pad_to(kPackedAlignment));
  constexpr size_t kPiece = size_t{4} << 20;
  for (size_t at = 0; at < tiles.size(); at += kPiece)
    COHORT_TRY(file.write(tiles.subspan(at, std::min(kPiece, tiles.size() - at))));
  return file.commit();
}

Expected<MappedTiles> map_packed_file(const std::filesystem::path& path, const std::string& header, size_t bytes) {
  MappedTiles mapped;
  COHORT_ASSIGN(mapped.file, MappedFile::open(path));
  const auto all = mapped.file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(all.data()), std::min(all.size(), header.size()));
  if (!text.starts_with(kFirstLine))
    return fail(ErrorCode::invalid_argument, "'{}' is no file of packed weights; delete it or name another",
                path.string());
  if (text != header) {
    // The line where they part says what is wrong.
    const auto differs = std::ranges::mismatch(text, header);
    const auto at = static_cast<size_t>(differs.in1 - text.begin());
    const size_t start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return fail(ErrorCode::corrupt,
                "'{}' does not belong to this model as it is now, or was packed by another version: it says '{}' where "
                "'{}' is expected (cohort pack writes it anew)",
                path.string(), line_at(text, start), line_at(header, start));
  }
  mapped.offset = round_up_to(header.size(), kPackedAlignment);
  if (all.size() != mapped.offset + bytes) {
    return fail(ErrorCode::corrupt, "'{}' has {} bytes; {} are expected (cohort pack writes it anew)", path.string(),
                all.size(), mapped.offset + bytes);
  }
  // Advice: large pages where the file system has them, and reading ahead.
  auto* start = const_cast<std::byte*>(all.data());
  madvise(start, all.size(), MADV_HUGEPAGE);
  madvise(start, all.size(), MADV_WILLNEED);
  return mapped;
}

}  // namespace cohort::cpu
