#include "kernels/cpu/packed_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

size_t pieces_of(size_t bytes) {
  return (bytes + kPackedPiece - 1) / kPackedPiece;
}
std::span<const std::byte> piece_of(std::span<const std::byte> tiles, size_t piece) {
  return tiles.subspan(piece * kPackedPiece, std::min(kPackedPiece, tiles.size() - piece * kPackedPiece));
}

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

uint64_t checksum(std::span<const std::byte> bytes) {
  // Four chains, since a multiplication takes four cycles. Every step is a bijection of the chain, and so is the end.
  constexpr uint64_t kFactor = 0x9fb21c651e98df25;
  std::array<uint64_t, 4> chains = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89};
  const auto add = [&](const std::byte* from) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), from, sizeof words);
    for (size_t i = 0; i < words.size(); ++i) chains[i] = std::rotl((chains[i] ^ words[i]) * kFactor, 29);
  };
  size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) add(bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, 32> last{};
    std::ranges::copy(bytes.subspan(at), last.begin());
    add(last.data());
  }
  uint64_t sum = bytes.size();
  for (const uint64_t chain : chains) sum = std::rotl((sum ^ chain) * kFactor, 31);
  return sum;
}

Expected<void> write_packed_file(const std::filesystem::path& path, const std::string& header,
                                 std::span<const std::byte> tiles) {
  COHORT_ASSIGN(AtomicFileWriter file, AtomicFileWriter::create(path));
  COHORT_TRY(file.write(std::as_bytes(std::span(header))));
  COHORT_TRY(file.pad_to(kPackedAlignment));
  std::vector<uint64_t> sums;
  for (size_t piece = 0; piece < pieces_of(tiles.size()); ++piece) {
    const auto bytes = piece_of(tiles, piece);
    sums.push_back(checksum(bytes));
    COHORT_TRY(file.write(bytes));
  }
  COHORT_TRY(file.write(std::as_bytes(std::span(sums))));
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
  mapped.bytes = bytes;
  const size_t expected = mapped.offset + bytes + pieces_of(bytes) * sizeof(uint64_t);
  if (all.size() != expected) {
    return fail(ErrorCode::corrupt, "'{}' has {} bytes; {} are expected (cohort pack writes it anew)", path.string(),
                all.size(), expected);
  }
  // Advice: large pages where the file system has them, and reading ahead.
  auto* start = const_cast<std::byte*>(all.data());
  madvise(start, all.size(), MADV_HUGEPAGE);
  madvise(start, all.size(), MADV_WILLNEED);
  return mapped;
}

Expected<void> compare_checksums(const std::filesystem::path& path, const MappedTiles& mapped, bool all,
                                 ThreadTeam& team) {
  const auto tiles = mapped.tiles();
  const auto sums = mapped.file.bytes().subspan(mapped.offset + mapped.bytes);
  const size_t pieces = pieces_of(tiles.size());
  const size_t compared = all ? pieces : std::min(pieces, kComparedAtStart / kPackedPiece);
  std::atomic<size_t> wrong = pieces;  // the first
  team.run(static_cast<int64_t>(compared), [&](int64_t index, int) {
    const size_t piece = static_cast<size_t>(index) * pieces / compared;
    uint64_t expected = 0;
    std::memcpy(&expected, sums.data() + piece * sizeof expected, sizeof expected);
    if (checksum(piece_of(tiles, piece)) == expected) return;
    size_t before = wrong.load();
    while (piece < before && !wrong.compare_exchange_weak(before, piece)) {
    }
  });
  if (wrong.load() == pieces) return {};
  const size_t first = mapped.offset + wrong.load() * kPackedPiece;
  return fail(ErrorCode::corrupt,
              "'{}' is damaged: the checksum of bytes {} to {} does not fit (cohort pack writes it anew; a disk that "
              "does this again is failing)",
              path.string(), first, first + piece_of(tiles, wrong.load()).size());
}

}  // namespace cohort::cpu
