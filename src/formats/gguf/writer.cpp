#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "formats/gguf/gguf.h"

namespace cohort::gguf {
namespace {

constexpr size_t kPiece = size_t{4} << 20;  // so that one call never buffers a whole tensor

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view string) {
  put<uint64_t>(out, string.size());
  out.append(string);
}

/// What files call a type: both layouts of Q2_0 have one id.
uint32_t file_id(TensorType type) {
  return static_cast<uint32_t>(type == TensorType::q2_0_g128 ? TensorType::q2_0 : type);
}

void put_array(std::string& out, const Value& value);

struct PutElements {
  std::string& out;
  template <class T>
  void operator()(const std::vector<T>& numbers) const {
    out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
  }
  void operator()(const std::vector<bool>& bools) const {
    for (bool value : bools) out.push_back(value ? 1 : 0);
  }
  void operator()(const StringArray& strings) const {
    out.reserve(out.size() + strings.total_bytes() + strings.size() * sizeof(uint64_t));
    for (std::string_view string : strings) put_string(out, string);
  }
  void operator()(const NestedArray& nested) const {
    for (const Value& item : nested.items) put_array(out, item);
  }
  template <class T>
  void operator()(const T&) const {}  // scalars have no elements
};

void put_array(std::string& out, const Value& value) {
  put(out, static_cast<uint32_t>(value.element_type()));
  put<uint64_t>(out, value.count());
  std::visit(PutElements{out}, value.variant());
}

struct PutScalar {
  std::string& out;
  template <class T>
  void operator()(const T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      put_string(out, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      out.push_back(value ? 1 : 0);
    } else if constexpr (std::is_arithmetic_v<T>) {
      put(out, value);
    }
  }
};

}  // namespace

Expected<Writer> Writer::create(const std::filesystem::path& path, uint32_t alignment) {
  COHORT_ASSIGN(auto file, AtomicFileWriter::create(path));
  Writer writer(std::move(file), alignment);
  if (alignment != kDefaultAlignment) COHORT_TRY(writer.metadata_.add("general.alignment", Value(alignment)));
  return writer;
}

Expected<void> Writer::add_tensor(std::string name, TensorType type, std::vector<int64_t> shape) {
  const TypeInfo& info = type_info(type);
  int64_t row = shape.empty() ? 1 : shape[0];
  bool positive = std::all_of(shape.begin(), shape.end(), [](int64_t dimension) { return dimension > 0; });
  if (!positive || shape.size() > 4 || row % info.block_values != 0) {
    return fail(ErrorCode::invalid_argument,
                "tensor '{}' with shape {} cannot be {}: at most 4 dimensions, each at least 1, rows a "
                "multiple of {}",
                name, shape_text(shape), info.name, info.block_values);
  }
  if (!names_.emplace(name, tensors_.size()).second) {
    return fail(ErrorCode::invalid_argument, "tensor '{}' occurs twice", name);
  }
  TensorInfo tensor{std::move(name), type, std::move(shape), nullptr, 0};
  tensor.bytes = static_cast<size_t>(tensor.values()) / info.block_values * info.block_bytes;
  tensors_.push_back(std::move(tensor));
  return {};
}

std::string Writer::header() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors_.size());
  put<uint64_t>(out, metadata_.size());
  for (const auto& [key, value] : metadata_.entries()) {
    put_string(out, key);
    put(out, static_cast<uint32_t>(value.type()));
    if (value.type() == ValueType::array) {
      put_array(out, value);
    } else {
      std::visit(PutScalar{out}, value.variant());
    }
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors_) {
    put_string(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (int64_t dimension : tensor.shape) put<uint64_t>(out, static_cast<uint64_t>(dimension));
    put(out, file_id(tensor.type));
    put<uint64_t>(out, offset);
    offset = align_up(offset + tensor.bytes, alignment_);
  }
  out.resize(align_up(out.size(), alignment_), '\0');
  return out;
}

uint64_t Writer::total_bytes() const {
  uint64_t total = header().size();
  for (const TensorInfo& tensor : tensors_) total = align_up(total + tensor.bytes, alignment_);
  return total;
}

Expected<void> Writer::begin_data() {
  std::string bytes = header();
  data_begun_ = true;
  return file_.write(std::as_bytes(std::span(bytes)));
}

Expected<void> Writer::write(std::span<const std::byte> bytes) {
  if (!data_begun_) return fail(ErrorCode::internal, "tensor data was written before begin_data()");
  while (!bytes.empty()) {
    if (current_ == tensors_.size()) {
      return fail(ErrorCode::internal, "{} bytes were written past the last tensor", bytes.size());
    }
    size_t piece = std::min({bytes.size(), tensors_[current_].bytes - current_written_, kPiece});
    COHORT_TRY(file_.write(bytes.first(piece)));
    bytes = bytes.subspan(piece);
    current_written_ += piece;
    if (current_written_ == tensors_[current_].bytes) {
      COHORT_TRY(file_.pad_to(alignment_));
      ++current_;
      current_written_ = 0;
    }
  }
  return {};
}

Expected<void> Writer::commit() {
  if (!data_begun_ || current_ != tensors_.size()) {
    return fail(ErrorCode::internal, "only {} of {} tensors were written", current_, tensors_.size());
  }
  return file_.commit();
}

}  // namespace cohort::gguf
