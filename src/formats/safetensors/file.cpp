#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "formats/safetensors/safetensors.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors are read in place; a big-endian build needs swaps");

namespace cohort::safetensors {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;

/// What all messages about one tensor begin with.
struct Place {
  const std::string& file;
  const std::string& tensor;
};

Expected<uint64_t> unsigned_number(const Place& place, const json& value, const char* what) {
  if (value.is_number_unsigned()) {
    auto number = value.get<uint64_t>();
    if (std::in_range<int64_t>(number)) return number;
  }
  return fail(ErrorCode::corrupt, "'{}': tensor '{}': {} holds {}; whole numbers from 0 to 2^63-1 are possible",
              place.file, place.tensor, what, value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 100));
}

Expected<const json*> member(const Place& place, const json& entry, const char* key, json::value_t type) {
  auto found = entry.find(key);
  if (found == entry.end())
    return fail(ErrorCode::corrupt, "'{}': tensor '{}' has no '{}'", place.file, place.tensor, key);
  if (found->type() != type) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}': '{}' has type {}; {} is needed", place.file, place.tensor, key,
                found->type_name(), json(type).type_name());
  }
  return &*found;
}

/// One header entry as a tensor; `data` is everything after the header.
Expected<TensorInfo> read_entry(const Place& place, const json& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) {
    return fail(ErrorCode::corrupt, "'{}': the entry of tensor '{}' has type {}; an object is needed", place.file,
                place.tensor, entry.type_name());
  }
  TensorInfo tensor;
  tensor.name = place.tensor;
  COHORT_ASSIGN(const json* dtype, member(place, entry, "dtype", json::value_t::string));
  const auto& dtype_text = dtype->get_ref<const std::string&>();
  auto type = find_dtype(dtype_text);
  if (!type) {
    return fail(ErrorCode::unsupported, "'{}': tensor '{}' has type '{}', which this build does not read", place.file,
                place.tensor, dtype_text.substr(0, 100));
  }
  tensor.dtype = *type;
  COHORT_ASSIGN(const json* shape, member(place, entry, "shape", json::value_t::array));
  uint64_t needed = dtype_bytes(*type);
  bool overflow = false;
  for (const json& dimension : *shape) {
    COHORT_ASSIGN(uint64_t number, unsigned_number(place, dimension, "shape"));
    tensor.shape.push_back(static_cast<int64_t>(number));
    overflow |= __builtin_mul_overflow(needed, number, &needed);
  }
  COHORT_ASSIGN(const json* offsets, member(place, entry, "data_offsets", json::value_t::array));
  if (offsets->size() != 2) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}': data_offsets has {} numbers; 2 are needed", place.file,
                place.tensor, offsets->size());
  }
  COHORT_ASSIGN(uint64_t begin, unsigned_number(place, (*offsets)[0], "data_offsets"));
  COHORT_ASSIGN(uint64_t end, unsigned_number(place, (*offsets)[1], "data_offsets"));
  if (begin > end || end > data.size()) {
    return fail(ErrorCode::corrupt,
                "'{}': tensor '{}' lies at data bytes {} to {}, but the file holds {} bytes of data: it is "
                "truncated or damaged; download it again",
                place.file, place.tensor, begin, end, data.size());
  }
  if (overflow || end - begin != needed) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}' has {} bytes, but its shape [{}] of {} needs {}", place.file,
                place.tensor, end - begin, fmt::join(tensor.shape, ", "), dtype_text,
                overflow ? std::string("more than 64 bits can count") : std::to_string(needed));
  }
  tensor.data = data.data() + begin;
  tensor.bytes = needed;
  return tensor;
}

Expected<std::map<std::string, std::string>> read_metadata(const std::string& file, const json& entry) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) {
    return fail(ErrorCode::corrupt, "'{}': '__metadata__' has type {}; an object is needed", file, entry.type_name());
  }
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return fail(ErrorCode::corrupt, "'{}': '__metadata__' key '{}' has type {}; a string is needed", file,
                  key.substr(0, 200), value.type_name());
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

int64_t TensorInfo::values() const {
  int64_t product = 1;
  for (int64_t dimension : shape) product *= dimension;
  return product;
}

Expected<File> File::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kLengthBytes) {
    return fail(ErrorCode::corrupt, "'{}' has {} bytes; a safetensors file begins with an 8-byte header length", name,
                bytes.size());
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  uint64_t limit = std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header_bytes > limit) {
    return fail(ErrorCode::corrupt,
                "'{}': the header claims {} bytes; at most {} are possible in this file: it is truncated or no "
                "safetensors file",
                name, header_bytes, limit);
  }
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  auto data = bytes.subspan(kLengthBytes + header_bytes);
  COHORT_ASSIGN(json header, parse_json(text, name));
  if (!header.is_object()) {
    return fail(ErrorCode::corrupt, "'{}': the header has type {}; an object is needed", name, header.type_name());
  }
  File file;
  file.file_bytes_ = bytes.size();
  for (const auto& [tensor, entry] : header.items()) {
    if (tensor == "__metadata__") {
      COHORT_ASSIGN(file.metadata_, read_metadata(name, entry));
      continue;
    }
    COHORT_ASSIGN(TensorInfo info, read_entry({name, tensor}, entry, data));
    file.tensors_.push_back(std::move(info));
  }
  auto& tensors = file.tensors_;
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.data, a.bytes, a.name) < std::tie(b.data, b.bytes, b.name);
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].data + tensors[i - 1].bytes > tensors[i].data) {
      return fail(ErrorCode::corrupt, "'{}': tensors '{}' and '{}' overlap at data byte {}", name, tensors[i - 1].name,
                  tensors[i].name, tensors[i].data - data.data());
    }
  }
  return file;
}

Expected<File> File::open(const std::filesystem::path& path) {
  COHORT_ASSIGN(auto map, MappedFile::open(path));
  COHORT_ASSIGN(File file, from_bytes(map.bytes(), path.string()));
  file.map_ = std::move(map);
  return file;
}

Expected<void> write_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                          const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // so that the data begins aligned
  uint64_t length = text.size();
  COHORT_ASSIGN(auto file, AtomicFileWriter::create(path));
  COHORT_TRY(file.write(std::as_bytes(std::span(&length, 1))));
  COHORT_TRY(file.write(std::as_bytes(std::span(text))));
  for (const TensorToWrite& tensor : tensors) COHORT_TRY(file.write(tensor.data));
  return file.commit();
}

}  // namespace cohort::safetensors
