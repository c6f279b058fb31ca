// GGUF metadata values. A vocabulary is one of them: arrays of strings keep all their bytes in one buffer.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::gguf {

/// Type ids of the file format.
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

/// "u32", "string", "array", ...; "?" for an id that the format does not define.
std::string_view value_type_name(ValueType type);

/// An immutable-by-element list of strings in two allocations: 515k merges are read at the speed of a copy.
class StringArray {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;
    Iterator() = default;
    Iterator(const StringArray* array, size_t index) : array_(array), index_(index) {}
    std::string_view operator*() const { return (*array_)[index_]; }
    Iterator& operator++() { return ++index_, *this; }
    Iterator operator++(int) { return {array_, index_++}; }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const StringArray* array_ = nullptr;
    size_t index_ = 0;
  };

  StringArray() = default;
  template <class Strings>
  static StringArray from(const Strings& strings) {
    StringArray array;
    for (const auto& string : strings) array.push_back(string);
    return array;
  }

  void reserve(size_t strings, size_t bytes) { ends_.reserve(strings), bytes_.reserve(bytes); }
  void push_back(std::string_view string) { bytes_.append(string), ends_.push_back(bytes_.size()); }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  /// The string `index`, valid while the array lives and is not appended to.
  std::string_view operator[](size_t index) const {
    size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::string_view(bytes_).substr(begin, ends_[index] - begin);
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  size_t total_bytes() const { return bytes_.size(); }
  bool operator==(const StringArray&) const = default;

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

struct Value;

/// An array whose elements are arrays (rare, but the format has it). Elements are arrays themselves.
struct NestedArray {
  std::vector<Value> items;
  bool operator==(const NestedArray&) const;
};

using ValueVariant =
    std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string, uint64_t, int64_t,
                 double, std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                 std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>, StringArray,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, NestedArray>;

/// One metadata value: a scalar, a string, or an array of one element type.
struct Value : ValueVariant {
  using ValueVariant::ValueVariant;
  using ValueVariant::operator=;

  const ValueVariant& variant() const { return *this; }
  ValueType type() const;
  /// Type of the elements; only for arrays (type() == ValueType::array).
  ValueType element_type() const;
  /// Number of elements of an array, 1 for anything else.
  size_t count() const;
  /// "u32" or "array of string (151936)": for messages and `cohort inspect`.
  std::string describe() const;
};

}  // namespace cohort::gguf
