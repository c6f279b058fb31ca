// Reading: one pass over header, metadata and tensor table with a cursor that knows its limits, then the checks that
// need the whole table. Counts are compared with the bytes that are left before anything is allocated for them.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/result.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/parse.h"

static_assert(std::endian::native == std::endian::little,
              "GGUF files are read in place; a big-endian build needs swaps");

namespace cohort::gguf {
namespace {

constexpr size_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDimensions = 4;    // the format's limit
constexpr size_t kMaxArrayDepth = 16;     // nested arrays; real files have none, hostile ones would exhaust the stack
constexpr size_t kMinKeyValueBytes = 14;  // length, one byte of key, type, one byte of value
constexpr size_t kMinTensorBytes = 25;    // length, one byte of name, dimensions, type, offset

/// Reads little-endian fields; an error says where and what was expected.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }
  const std::string& file() const { return file_; }

  template <class T>
  Expected<T> read(const char* what) {
    COHORT_TRY(need(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  /// A view of `count` elements of `size` bytes, which the cursor steps over.
  Expected<const std::byte*> take(uint64_t count, size_t size, const char* what) {
    if (count > left() / size) {
      return fail(ErrorCode::corrupt, "'{}': {} at byte {} has {} elements of {} bytes, but only {} bytes are left",
                  file_, what, position_, count, size, left());
    }
    const std::byte* begin = bytes_.data() + position_;
    position_ += count * size;
    return begin;
  }

  Expected<std::string_view> read_string(const char* what) {
    COHORT_ASSIGN(uint64_t length, read<uint64_t>(what));
    COHORT_ASSIGN(const std::byte* begin, take(length, 1, what));
    return std::string_view(reinterpret_cast<const char*>(begin), length);
  }

  Expected<void> need(uint64_t count, const char* what) const {
    if (count <= left()) return {};
    return fail(ErrorCode::corrupt, "'{}': the file ends inside {} at byte {}: {} bytes are needed, {} are left", file_,
                what, position_, count, left());
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t position_ = 0;
};

/// Expected<T> to Expected<Value> for scalars.
template <class T>
Expected<Value> read_scalar(Cursor& cursor) {
  COHORT_ASSIGN(T value, cursor.read<T>("a metadata value"));
  return Value(value);
}

Expected<bool> to_bool(uint8_t byte, const Cursor& cursor) {
  if (byte <= 1) return byte == 1;
  return fail(ErrorCode::corrupt, "'{}': a bool before byte {} is {}; only 0 and 1 are possible", cursor.file(),
              cursor.position(), byte);
}

template <class T>
Expected<Value> read_numbers(Cursor& cursor, uint64_t count) {
  COHORT_ASSIGN(const std::byte* begin, cursor.take(count, sizeof(T), "a metadata array"));
  std::vector<T> numbers(count);
  if (count > 0) std::memcpy(numbers.data(), begin, count * sizeof(T));
  return Value(std::move(numbers));
}

Expected<Value> read_bools(Cursor& cursor, uint64_t count) {
  COHORT_ASSIGN(const std::byte* begin, cursor.take(count, 1, "a metadata array"));
  std::vector<bool> bools(count);
  for (size_t i = 0; i < count; ++i) {
    COHORT_ASSIGN(bools[i], to_bool(static_cast<uint8_t>(begin[i]), cursor));
  }
  return Value(std::move(bools));
}

Expected<Value> read_strings(Cursor& cursor, uint64_t count) {
  // Each string takes at least its length; two passes so that the bytes are allocated once.
  if (count > cursor.left() / sizeof(uint64_t)) {
    return fail(ErrorCode::corrupt, "'{}': an array of {} strings at byte {} cannot fit in the {} bytes that are left",
                cursor.file(), count, cursor.position(), cursor.left());
  }
  Cursor measure = cursor;
  size_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    COHORT_ASSIGN(std::string_view string, measure.read_string("a string of a metadata array"));
    bytes += string.size();
  }
  StringArray strings;
  strings.reserve(count, bytes);
  for (uint64_t i = 0; i < count; ++i) strings.push_back(*cursor.read_string("a string of a metadata array"));
  return Value(std::move(strings));
}

Expected<Value> read_array(Cursor& cursor, size_t depth);

Expected<Value> read_nested(Cursor& cursor, uint64_t count, size_t depth) {
  constexpr size_t kMinArrayBytes = sizeof(uint32_t) + sizeof(uint64_t);
  if (depth >= kMaxArrayDepth) {
    return fail(ErrorCode::unsupported, "'{}': arrays nest deeper than {} at byte {}", cursor.file(), kMaxArrayDepth,
                cursor.position());
  }
  if (count > cursor.left() / kMinArrayBytes) {
    return fail(ErrorCode::corrupt, "'{}': an array of {} arrays at byte {} cannot fit in the {} bytes that are left",
                cursor.file(), count, cursor.position(), cursor.left());
  }
  NestedArray nested;
  nested.items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    COHORT_ASSIGN(Value item, read_array(cursor, depth + 1));
    nested.items.push_back(std::move(item));
  }
  return Value(std::move(nested));
}

tl::unexpected<Error> unknown_value_type(const Cursor& cursor, uint32_t type) {
  return fail(ErrorCode::corrupt, "'{}': metadata type {} before byte {} does not exist; 0 to 12 do", cursor.file(),
              type, cursor.position());
}

Expected<Value> read_array(Cursor& cursor, size_t depth) {
  COHORT_ASSIGN(uint32_t type, cursor.read<uint32_t>("an array's element type"));
  COHORT_ASSIGN(uint64_t count, cursor.read<uint64_t>("an array's length"));
  switch (static_cast<ValueType>(type)) {
    case ValueType::u8:
      return read_numbers<uint8_t>(cursor, count);
    case ValueType::i8:
      return read_numbers<int8_t>(cursor, count);
    case ValueType::u16:
      return read_numbers<uint16_t>(cursor, count);
    case ValueType::i16:
      return read_numbers<int16_t>(cursor, count);
    case ValueType::u32:
      return read_numbers<uint32_t>(cursor, count);
    case ValueType::i32:
      return read_numbers<int32_t>(cursor, count);
    case ValueType::f32:
      return read_numbers<float>(cursor, count);
    case ValueType::boolean:
      return read_bools(cursor, count);
    case ValueType::string:
      return read_strings(cursor, count);
    case ValueType::array:
      return read_nested(cursor, count, depth);
    case ValueType::u64:
      return read_numbers<uint64_t>(cursor, count);
    case ValueType::i64:
      return read_numbers<int64_t>(cursor, count);
    case ValueType::f64:
      return read_numbers<double>(cursor, count);
  }
  return unknown_value_type(cursor, type);
}

Expected<Value> read_value(Cursor& cursor, uint32_t type) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::u8:
      return read_scalar<uint8_t>(cursor);
    case ValueType::i8:
      return read_scalar<int8_t>(cursor);
    case ValueType::u16:
      return read_scalar<uint16_t>(cursor);
    case ValueType::i16:
      return read_scalar<int16_t>(cursor);
    case ValueType::u32:
      return read_scalar<uint32_t>(cursor);
    case ValueType::i32:
      return read_scalar<int32_t>(cursor);
    case ValueType::f32:
      return read_scalar<float>(cursor);
    case ValueType::boolean: {
      COHORT_ASSIGN(uint8_t byte, cursor.read<uint8_t>("a metadata value"));
      COHORT_ASSIGN(bool value, to_bool(byte, cursor));
      return Value(value);
    }
    case ValueType::string: {
      COHORT_ASSIGN(std::string_view string, cursor.read_string("a metadata string"));
      return Value(std::string(string));
    }
    case ValueType::array:
      return read_array(cursor, 0);
    case ValueType::u64:
      return read_scalar<uint64_t>(cursor);
    case ValueType::i64:
      return read_scalar<int64_t>(cursor);
    case ValueType::f64:
      return read_scalar<double>(cursor);
  }
  return unknown_value_type(cursor, type);
}

Expected<uint32_t> read_version(Cursor& cursor) {
  COHORT_ASSIGN(const std::byte* magic, cursor.take(4, 1, "the magic"));
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    return fail(ErrorCode::corrupt, "'{}' is no GGUF file: it begins with bytes {:02x}, GGUF files with 'GGUF'",
                cursor.file(), fmt::join(std::span(reinterpret_cast<const uint8_t*>(magic), 4), " "));
  }
  COHORT_ASSIGN(uint32_t version, cursor.read<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if ((version & 0xFFFF) == 0 && version != 0) {
    return fail(ErrorCode::unsupported,
                "'{}' is a big-endian GGUF file; only little-endian files are read: convert it again with "
                "little-endian byte order",
                cursor.file());
  }
  return fail(ErrorCode::unsupported, "'{}' has GGUF version {}; versions 2 and 3 are read: convert the model again",
              cursor.file(), version);
}

Expected<void> read_metadata(Cursor& cursor, uint64_t count, Metadata& metadata) {
  if (count > cursor.left() / kMinKeyValueBytes) {
    return fail(ErrorCode::corrupt, "'{}': {} metadata entries cannot fit in the {} bytes that are left", cursor.file(),
                count, cursor.left());
  }
  for (uint64_t i = 0; i < count; ++i) {
    COHORT_ASSIGN(std::string_view key, cursor.read_string("a metadata key"));
    COHORT_ASSIGN(uint32_t type, cursor.read<uint32_t>("a metadata type"));
    auto value = read_value(cursor, type);
    if (!value) return fail(value.error().code, "{} (metadata key '{}')", value.error().message, key.substr(0, 200));
    auto added = metadata.add(std::string(key), std::move(*value));
    if (!added) return fail(ErrorCode::corrupt, "'{}': {}", cursor.file(), added.error().message);
  }
  return {};
}

/// Types that llama.cpp once had or uses only at run time: a better message than a bare number.
std::string_view retired_type(uint32_t id) {
  switch (id) {
    case 4:
      return "Q4_2 (removed from the format)";
    case 5:
      return "Q4_3 (removed from the format)";
    case 9:
      return "Q8_1 (not a weight type)";
    case 15:
      return "Q8_K (not a weight type)";
    case 31:
      return "Q4_0_4_4 (removed from the format)";
    case 32:
      return "Q4_0_4_8 (removed from the format)";
    case 33:
      return "Q4_0_8_8 (removed from the format)";
    case 36:
      return "IQ4_NL_4_4 (removed from the format)";
    case 37:
      return "IQ4_NL_4_8 (removed from the format)";
    case 38:
      return "IQ4_NL_8_8 (removed from the format)";
    default:
      return "unknown to this build";
  }
}

struct Table {
  std::vector<TensorInfo> tensors;
  std::vector<uint64_t> offsets;  // from the start of the data, beside `tensors`
};

/// Bytes of a tensor; corrupt when its row is no whole number of blocks or a product overflows.
Expected<size_t> tensor_bytes(const std::string& file, const TensorInfo& tensor, const TypeInfo& type) {
  int64_t row = tensor.shape.empty() ? 1 : tensor.shape[0];
  if (row % type.block_values != 0) {
    return fail(ErrorCode::corrupt,
                "'{}': tensor '{}' has rows of {} values, but blocks of type {} ({}) hold {} in {} bytes", file,
                tensor.name, row, static_cast<uint32_t>(type.type), type.name, type.block_values, type.block_bytes);
  }
  int64_t values = 1, bytes = 0;
  bool overflow = false;
  for (int64_t dimension : tensor.shape) overflow |= __builtin_mul_overflow(values, dimension, &values);
  overflow = overflow || __builtin_mul_overflow(values / type.block_values, int64_t{type.block_bytes}, &bytes);
  if (overflow) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}' with shape {} has more bytes than 64 bits can count", file,
                tensor.name, shape_text(tensor.shape));
  }
  return static_cast<size_t>(bytes);
}

Expected<void> read_tensor_entry(Cursor& cursor, Table& table) {
  const std::string& file = cursor.file();
  TensorInfo tensor;
  COHORT_ASSIGN(std::string_view name, cursor.read_string("a tensor name"));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return fail(ErrorCode::corrupt, "'{}': the name of tensor {} has {} bytes; 1 to {} are possible", file,
                table.tensors.size(), name.size(), kMaxNameBytes);
  }
  tensor.name = name;
  COHORT_ASSIGN(uint32_t dimensions, cursor.read<uint32_t>("a tensor's number of dimensions"));
  if (dimensions > kMaxDimensions) {
    return fail(ErrorCode::corrupt, "'{}': tensor '{}' has {} dimensions; at most {} are possible", file, name,
                dimensions, kMaxDimensions);
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    COHORT_ASSIGN(uint64_t dimension, cursor.read<uint64_t>("a tensor's shape"));
    if (dimension == 0 || dimension > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(ErrorCode::corrupt, "'{}': dimension {} of tensor '{}' is {}; it must lie between 1 and {}", file, i,
                  name, dimension, std::numeric_limits<int64_t>::max());
    }
    tensor.shape.push_back(static_cast<int64_t>(dimension));
  }
  COHORT_ASSIGN(uint32_t id, cursor.read<uint32_t>("a tensor's type"));
  COHORT_ASSIGN(uint64_t offset, cursor.read<uint64_t>("a tensor's offset"));
  const TypeInfo* type = find_type(id);
  if (type == nullptr) {
    return fail(ErrorCode::unsupported, "'{}': tensor '{}' has type {}: {}; quantise the model again with another type",
                file, name, id, retired_type(id));
  }
  tensor.type = type->type;
  COHORT_ASSIGN(tensor.bytes, tensor_bytes(file, tensor, *type));
  table.tensors.push_back(std::move(tensor));
  table.offsets.push_back(offset);
  return {};
}

Expected<Table> read_table(Cursor& cursor, uint64_t count) {
  if (count > cursor.left() / kMinTensorBytes) {
    return fail(ErrorCode::corrupt, "'{}': {} tensors cannot fit in the {} bytes that are left", cursor.file(), count,
                cursor.left());
  }
  Table table;
  table.tensors.reserve(count);
  table.offsets.reserve(count);
  for (uint64_t i = 0; i < count; ++i) COHORT_TRY(read_tensor_entry(cursor, table));
  return table;
}

/// Older files hold Q2_0 in groups of 128 values under the same id; the `room` up to the next tensor gives it away.
/// Only an exact fit counts, so that a truncated file is not taken for one.
void recognise_old_q2_0(TensorInfo& tensor, uint64_t room, uint32_t alignment) {
  if (tensor.type != TensorType::q2_0 || room >= tensor.bytes) return;
  const TypeInfo& older = type_info(TensorType::q2_0_g128);
  uint64_t bytes = static_cast<uint64_t>(tensor.values()) / older.block_values * older.block_bytes;
  if (tensor.shape[0] % older.block_values != 0 || room < bytes || room >= bytes + alignment) return;
  tensor.type = older.type;
  tensor.bytes = bytes;
}

/// Points every tensor at its bytes after checking that ranges are aligned, inside the data, and disjoint.
Expected<void> place(const std::string& file, std::span<const std::byte> data, uint32_t alignment, Table& table) {
  std::vector<size_t> order(table.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return table.offsets[a] < table.offsets[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    TensorInfo& tensor = table.tensors[order[i]];
    uint64_t offset = table.offsets[order[i]];
    if (offset % alignment != 0) {
      return fail(ErrorCode::corrupt,
                  "'{}': tensor '{}' begins at data offset {}, which is no multiple of the alignment {}", file,
                  tensor.name, offset, alignment);
    }
    bool last = i + 1 == order.size();
    uint64_t end = last ? data.size() : std::min<uint64_t>(data.size(), table.offsets[order[i + 1]]);
    if (end > offset) recognise_old_q2_0(tensor, end - offset, alignment);
    if (offset > data.size() || tensor.bytes > data.size() - offset) {
      return fail(ErrorCode::corrupt,
                  "'{}': tensor '{}' needs {} bytes at data offset {}, but the file holds {} bytes of data: it is "
                  "truncated or damaged; download it again",
                  file, tensor.name, tensor.bytes, offset, data.size());
    }
    if (!last && tensor.bytes > table.offsets[order[i + 1]] - offset) {
      return fail(ErrorCode::corrupt, "'{}': tensors '{}' and '{}' overlap at data offset {}", file, tensor.name,
                  table.tensors[order[i + 1]].name, table.offsets[order[i + 1]]);
    }
    tensor.data = data.data() + offset;
  }
  return {};
}

}  // namespace

Expected<ParsedFile> parse(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.empty()) return fail(ErrorCode::corrupt, "'{}' is empty", file);
  Cursor cursor(bytes, file);
  ParsedFile parsed;
  COHORT_ASSIGN(parsed.version, read_version(cursor));
  COHORT_ASSIGN(uint64_t tensor_count, cursor.read<uint64_t>("the number of tensors"));
  COHORT_ASSIGN(uint64_t metadata_count, cursor.read<uint64_t>("the number of metadata entries"));
  COHORT_TRY(read_metadata(cursor, metadata_count, parsed.metadata));
  auto alignment = parsed.metadata.get_u32("general.alignment", kDefaultAlignment);
  if (!alignment) return fail(alignment.error().code, "'{}': {}", file, alignment.error().message);
  if (!std::has_single_bit(*alignment) || *alignment < 8) {
    return fail(ErrorCode::corrupt, "'{}': general.alignment is {}; it must be a power of two, 8 or more", file,
                *alignment);
  }
  parsed.alignment = *alignment;
  COHORT_ASSIGN(Table table, read_table(cursor, tensor_count));
  uint64_t data_begin = (uint64_t{cursor.position()} + parsed.alignment - 1) / parsed.alignment * parsed.alignment;
  auto data = data_begin <= bytes.size() ? bytes.subspan(data_begin) : std::span<const std::byte>();
  COHORT_TRY(place(file, data, parsed.alignment, table));
  parsed.tensors = std::move(table.tensors);
  return parsed;
}

}  // namespace cohort::gguf
