// A model of one file, or of several parts whose metadata is in the first.
#include <fmt/ranges.h>

#include <limits>
#include <optional>

#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/parse.h"

namespace cohort::gguf {
namespace {

/// "DIR/x-00001-of-00003.gguf" taken apart.
struct SplitName {
  std::string prefix;  // "x"
  uint64_t number = 0;
  uint64_t count = 0;
};

constexpr size_t kDigits = 5;
constexpr size_t kTail = 1 + kDigits + 4 + kDigits + 5;  // "-00001-of-00003.gguf"

std::optional<uint64_t> digits(std::string_view text) {
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::optional<SplitName> split_name(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  if (name.size() <= kTail) return std::nullopt;
  std::string_view tail = std::string_view(name).substr(name.size() - kTail);
  auto number = digits(tail.substr(1, kDigits)), count = digits(tail.substr(1 + kDigits + 4, kDigits));
  if (tail[0] != '-' || tail.substr(1 + kDigits, 4) != "-of-" || tail.substr(kTail - 5) != ".gguf" || !number ||
      !count) {
    return std::nullopt;
  }
  return SplitName{name.substr(0, name.size() - kTail), *number, *count};
}

std::filesystem::path part_path(const std::filesystem::path& first, const SplitName& name, uint64_t number) {
  return first.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

/// Adds the file's name to an error of a metadata look-up.
template <class T>
Expected<T> in_file(Expected<T> value, const std::string& file) {
  if (!value) return fail(value.error().code, "'{}': {}", file, value.error().message);
  return value;
}

}  // namespace

int64_t TensorInfo::values() const {
  int64_t product = 1;
  for (int64_t dimension : shape) product *= dimension;
  return product;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Expected<void> File::add_tensors(std::vector<TensorInfo> tensors, const std::string& part) {
  tensors_.reserve(tensors_.size() + tensors.size());
  for (TensorInfo& tensor : tensors) {
    if (!index_.emplace(tensor.name, tensors_.size()).second) {
      return fail(ErrorCode::corrupt, "'{}': tensor '{}' occurs twice", part, tensor.name);
    }
    tensors_.push_back(std::move(tensor));
  }
  return {};
}

Expected<File> File::from_bytes(std::span<const std::byte> bytes, std::string name) {
  COHORT_ASSIGN(ParsedFile parsed, parse(bytes, name));
  COHORT_ASSIGN(uint64_t split_count, in_file(parsed.metadata.get_u64("split.count", 1), name));
  if (split_count > 1) {
    return fail(ErrorCode::unsupported, "'{}' is one of {} parts of a split model; open it as a file", name,
                split_count);
  }
  File file;
  file.path_ = name;
  file.metadata_ = std::move(parsed.metadata);
  file.version_ = parsed.version;
  file.alignment_ = parsed.alignment;
  file.file_bytes_ = bytes.size();
  COHORT_TRY(file.add_tensors(std::move(parsed.tensors), name));
  return file;
}

Expected<File> File::open(const std::filesystem::path& path) {
  COHORT_ASSIGN(MappedFile map, MappedFile::open(path));
  COHORT_ASSIGN(ParsedFile parsed, parse(map.bytes(), path.string()));
  COHORT_ASSIGN(uint64_t split_count, in_file(parsed.metadata.get_u64("split.count", 1), path.string()));
  File file;
  file.path_ = path;
  file.metadata_ = std::move(parsed.metadata);
  file.version_ = parsed.version;
  file.alignment_ = parsed.alignment;
  file.file_bytes_ = map.bytes().size();
  file.maps_.push_back(std::move(map));
  COHORT_TRY(file.add_tensors(std::move(parsed.tensors), path.string()));
  if (split_count > 1) COHORT_TRY(file.open_other_parts(split_count));
  return file;
}

Expected<void> File::open_other_parts(uint64_t count) {
  const std::string first = path_.string();
  auto name = split_name(path_);
  if (!name || name->count != count) {
    return fail(ErrorCode::invalid_argument,
                "'{}' says that it is one of {} parts, so its name must end in -00001-of-{:05}.gguf: "
                "rename it and its parts",
                first, count, count);
  }
  COHORT_ASSIGN(uint64_t number, in_file(metadata_.get_u64("split.no"), first));
  if (number != 0 || name->number != 1) {
    return fail(ErrorCode::invalid_argument, "'{}' is part {} of {}; open the first part, '{}'", first, number + 1,
                count, part_path(path_, *name, 1).string());
  }
  for (uint64_t i = 1; i < count; ++i) {
    auto path = part_path(path_, *name, i + 1);
    auto map = MappedFile::open(path);
    if (!map) {
      return fail(map.error().code, "part {} of {} of '{}' is missing: {}", i + 1, count, first, map.error().message);
    }
    COHORT_ASSIGN(ParsedFile parsed, parse(map->bytes(), path.string()));
    COHORT_ASSIGN(uint64_t part_count, in_file(parsed.metadata.get_u64("split.count"), path.string()));
    COHORT_ASSIGN(uint64_t part_number, in_file(parsed.metadata.get_u64("split.no"), path.string()));
    if (part_count != count || part_number != i) {
      return fail(ErrorCode::corrupt,
                  "'{}' says that it is part {} of {}, but its name says {} of {}: the parts are mixed up",
                  path.string(), part_number + 1, part_count, i + 1, count);
    }
    file_bytes_ += map->bytes().size();
    maps_.push_back(std::move(*map));
    COHORT_TRY(add_tensors(std::move(parsed.tensors), path.string()));
  }
  parts_ = count;
  COHORT_ASSIGN(uint64_t total, in_file(metadata_.get_u64("split.tensors.count", tensors_.size()), first));
  if (total != tensors_.size()) {
    return fail(ErrorCode::corrupt, "'{}' and its parts hold {} tensors; split.tensors.count says {}", first,
                tensors_.size(), total);
  }
  return {};
}

}  // namespace cohort::gguf
