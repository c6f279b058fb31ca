#include "formats/imatrix/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/result.h"
#include "formats/gguf/gguf.h"

namespace cohort {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::string_view kType = "imatrix";
constexpr int32_t kMostEntries = 1 << 20;
constexpr int32_t kLongestName = 1 << 12;

Expected<void> check(const std::string& file, const std::string& name, const Importance& entry) {
  for (const float sum : entry.square_sums) {
    if (std::isfinite(sum) && sum >= 0) continue;
    return fail(ErrorCode::corrupt, "'{}': {} holds a sum of squares of {}", file, name, sum);
  }
  for (const float count : entry.counts) {
    if (std::isfinite(count) && count >= 0) continue;
    return fail(ErrorCode::corrupt, "'{}': {} holds a count of {}", file, name, count);
  }
  return {};
}

Expected<std::vector<float>> floats_of(const std::string& file, const gguf::TensorInfo& tensor) {
  if (tensor.type != TensorType::f32) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}' has type {} instead of f32", file, tensor.name,
                type_info(tensor.type).name);
  }
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

Expected<ImportanceMatrix> read_gguf(const std::filesystem::path& path) {
  const std::string name = path.string();
  COHORT_ASSIGN(const auto file, gguf::File::open(path));
  COHORT_ASSIGN(const std::string_view type, file.metadata().get_string("general.type", ""));
  if (type != kType) {
    return fail(ErrorCode::invalid_argument, "'{}' is no importance matrix: its general.type is '{}', not '{}'", name,
                type, kType);
  }
  ImportanceMatrix matrix;
  COHORT_ASSIGN(matrix.chunks, file.metadata().get_u32("imatrix.chunk_count", 0));
  COHORT_ASSIGN(matrix.chunk_size, file.metadata().get_u32("imatrix.chunk_size", 0));
  if (file.metadata().contains("imatrix.datasets")) {
    COHORT_ASSIGN(const gguf::StringArray* datasets, file.metadata().get_string_array("imatrix.datasets"));
    for (const std::string_view dataset : *datasets) matrix.datasets.emplace_back(dataset);
  }
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string base = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const gguf::TensorInfo* counts = file.find_tensor(base + std::string(kCounts));
    if (counts == nullptr) {
      return fail(ErrorCode::corrupt, "'{}' has '{}' but not '{}{}'", name, tensor.name, base, kCounts);
    }
    Importance entry;
    entry.cols = tensor.shape.empty() ? 1 : tensor.shape[0];
    entry.experts = entry.cols > 0 ? tensor.values() / entry.cols : 0;
    if (entry.experts < 1 || counts->values() != entry.experts) {
      return fail(ErrorCode::corrupt, "'{}': '{}' has shape {}, '{}' has shape {}; expected one count for each expert",
                  name, tensor.name, gguf::shape_text(tensor.shape), counts->name, gguf::shape_text(counts->shape));
    }
    COHORT_ASSIGN(entry.square_sums, floats_of(name, tensor));
    COHORT_ASSIGN(entry.counts, floats_of(name, *counts));
    COHORT_TRY(check(name, base, entry));
    matrix.entries.emplace(base, std::move(entry));
  }
  return matrix;
}

/// Reads the older file; every read is checked against what is left.
class LegacyReader {
 public:
  LegacyReader(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  Expected<ImportanceMatrix> read() {
    ImportanceMatrix matrix;
    COHORT_ASSIGN(const int32_t count, number("the number of entries", 1, kMostEntries));
    for (int32_t i = 0; i < count; ++i) {
      COHORT_ASSIGN(std::string name, string("a name"));
      COHORT_ASSIGN(const int32_t calls, number("the number of calls", 0, INT32_MAX));
      COHORT_ASSIGN(const int32_t values, number("the number of values", 1, INT32_MAX));
      if (left() / sizeof(float) < static_cast<size_t>(values)) return too_short("the values of " + name);
      Importance entry;
      entry.cols = values;
      entry.square_sums.resize(static_cast<size_t>(values));
      std::memcpy(entry.square_sums.data(), bytes_.data() + at_, entry.square_sums.size() * sizeof(float));
      at_ += entry.square_sums.size() * sizeof(float);
      entry.counts = {static_cast<float>(calls)};
      COHORT_TRY(check(name_, name, entry));
      if (!matrix.entries.emplace(name, std::move(entry)).second) {
        return fail(ErrorCode::corrupt, "'{}' holds '{}' twice", name_, name);
      }
    }
    if (left() > 0) {  // the first writers ended here
      COHORT_ASSIGN(const int32_t chunks, number("the number of chunks", 0, INT32_MAX));
      matrix.chunks = static_cast<uint32_t>(chunks);
      if (left() > 0) {
        COHORT_ASSIGN(std::string dataset, string("the name of the text"));
        matrix.datasets.push_back(std::move(dataset));
      }
    }
    return matrix;
  }

 private:
  size_t left() const { return bytes_.size() - at_; }
  tl::unexpected<Error> too_short(const std::string& what) const {
    return fail(ErrorCode::corrupt, "'{}' ends in {} (byte {}); is it an importance matrix?", name_, what, at_);
  }
  Expected<int32_t> number(const char* what, int32_t least, int32_t most) {
    if (left() < sizeof(int32_t)) return too_short(what);
    int32_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    if (value < least || value > most) {
      return fail(ErrorCode::corrupt, "'{}', byte {}: {} is {}; is it an importance matrix?", name_, at_, what, value);
    }
    at_ += sizeof value;
    return value;
  }
  Expected<std::string> string(const char* what) {
    COHORT_ASSIGN(const int32_t length, number(what, 0, kLongestName));
    if (left() < static_cast<size_t>(length)) return too_short(what);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<size_t>(length));
    at_ += text.size();
    return text;
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  size_t at_ = 0;
};

Expected<void> write_gguf(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  COHORT_ASSIGN(auto writer, gguf::Writer::create(path));
  COHORT_TRY(writer.metadata().add("general.type", gguf::Value(std::string(kType))));
  COHORT_TRY(writer.metadata().add("imatrix.datasets", gguf::Value(gguf::StringArray::from(matrix.datasets))));
  COHORT_TRY(writer.metadata().add("imatrix.chunk_count", gguf::Value(matrix.chunks)));
  COHORT_TRY(writer.metadata().add("imatrix.chunk_size", gguf::Value(matrix.chunk_size)));
  for (const auto& [name, entry] : matrix.entries) {
    COHORT_TRY(writer.add_tensor(name + std::string(kSums), TensorType::f32, {entry.cols, entry.experts}));
    COHORT_TRY(writer.add_tensor(name + std::string(kCounts), TensorType::f32, {1, entry.experts}));
  }
  COHORT_TRY(writer.begin_data());
  for (const auto& [name, entry] : matrix.entries) {
    COHORT_TRY(writer.write(std::as_bytes(std::span(entry.square_sums))));
    COHORT_TRY(writer.write(std::as_bytes(std::span(entry.counts))));
  }
  return writer.commit();
}

Expected<void> write_legacy(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  COHORT_ASSIGN(auto file, AtomicFileWriter::create(path));
  const auto number = [&](int64_t value) {
    const auto small = static_cast<int32_t>(value);
    return file.write(std::as_bytes(std::span(&small, 1)));
  };
  const auto string = [&](const std::string& text) -> Expected<void> {
    COHORT_TRY(number(static_cast<int64_t>(text.size())));
    return file.write(std::as_bytes(std::span(text)));
  };
  COHORT_TRY(number(static_cast<int64_t>(matrix.entries.size())));
  for (const auto& [name, entry] : matrix.entries) {
    // Calls are batches in the field; one value of them serves all experts, so that means can be read back.
    const float calls = std::max(1.0F, static_cast<float>(matrix.chunks));
    COHORT_TRY(string(name));
    COHORT_TRY(number(static_cast<int64_t>(calls)));
    COHORT_TRY(number(static_cast<int64_t>(entry.square_sums.size())));
    std::vector<float> values;
    for (int64_t e = 0; e < entry.experts; ++e) {
      for (const float mean : entry.means(e)) values.push_back((entry.routed(e) ? mean : 1.0F) * calls);
    }
    COHORT_TRY(file.write(std::as_bytes(std::span(values))));
  }
  COHORT_TRY(number(matrix.chunks));
  COHORT_TRY(string(matrix.datasets.empty() ? std::string() : matrix.datasets.front()));
  return file.commit();
}

}  // namespace

std::vector<float> Importance::means(int64_t expert) const {
  const auto first = square_sums.begin() + expert * cols;
  std::vector<float> out(first, first + cols);
  const float count = counts[static_cast<size_t>(expert)];
  for (float& value : out) value = count > 0 ? value / count : 0.0F;
  return out;
}

const Importance* ImportanceMatrix::find(std::string_view name) const {
  const auto entry = [&](const std::string& key) -> const Importance* {
    const auto found = entries.find(key);
    return found == entries.end() ? nullptr : &found->second;
  };
  const auto* own = entry(std::string(name));
  const size_t part = name.rfind("ffn_");
  if (own != nullptr || part == std::string_view::npos) return own;
  const std::string before(name.substr(0, part));
  const std::string_view rest = name.substr(part);
  if (rest == "ffn_gate_up_exps.weight") return entry(before + "ffn_gate_exps.weight");
  if (rest == "ffn_gate_exps.weight" || rest == "ffn_up_exps.weight") return entry(before + "ffn_gate_up_exps.weight");
  return nullptr;
}

Expected<ImportanceMatrix> read_importance(const std::filesystem::path& path) {
  COHORT_ASSIGN(const auto file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) return read_gguf(path);
  return LegacyReader(bytes, path.string()).read();
}

ImportanceFormat importance_format(const std::filesystem::path& path) {
  return path.extension() == ".dat" ? ImportanceFormat::legacy : ImportanceFormat::gguf;
}

Expected<void> write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path,
                                ImportanceFormat format) {
  return format == ImportanceFormat::gguf ? write_gguf(matrix, path) : write_legacy(matrix, path);
}

}  // namespace cohort
