#include "formats/gguf/value.h"

#include <fmt/format.h>

#include <type_traits>

namespace cohort::gguf {
namespace {

template <class T>
constexpr ValueType type_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return ValueType::u8;
  if constexpr (std::is_same_v<T, int8_t>) return ValueType::i8;
  if constexpr (std::is_same_v<T, uint16_t>) return ValueType::u16;
  if constexpr (std::is_same_v<T, int16_t>) return ValueType::i16;
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::u32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::i32;
  if constexpr (std::is_same_v<T, float>) return ValueType::f32;
  if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
  if constexpr (std::is_same_v<T, std::string>) return ValueType::string;
  if constexpr (std::is_same_v<T, uint64_t>) return ValueType::u64;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::i64;
  if constexpr (std::is_same_v<T, double>) return ValueType::f64;
  return ValueType::array;
}

template <class T>
struct ElementOf {
  static constexpr ValueType type = type_of<T>();
};
template <class T>
struct ElementOf<std::vector<T>> {
  static constexpr ValueType type = type_of<T>();
};
template <>
struct ElementOf<StringArray> {
  static constexpr ValueType type = ValueType::string;
};
template <>
struct ElementOf<NestedArray> {
  static constexpr ValueType type = ValueType::array;
};

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::u8:
      return "u8";
    case ValueType::i8:
      return "i8";
    case ValueType::u16:
      return "u16";
    case ValueType::i16:
      return "i16";
    case ValueType::u32:
      return "u32";
    case ValueType::i32:
      return "i32";
    case ValueType::f32:
      return "f32";
    case ValueType::boolean:
      return "bool";
    case ValueType::string:
      return "string";
    case ValueType::array:
      return "array";
    case ValueType::u64:
      return "u64";
    case ValueType::i64:
      return "i64";
    case ValueType::f64:
      return "f64";
  }
  return "?";
}

bool NestedArray::operator==(const NestedArray& other) const {
  if (items.size() != other.items.size()) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].variant() != other.items[i].variant()) return false;
  }
  return true;
}

ValueType Value::type() const {
  return std::visit([](const auto& value) { return type_of<std::decay_t<decltype(value)>>(); }, variant());
}

ValueType Value::element_type() const {
  return std::visit([](const auto& value) { return ElementOf<std::decay_t<decltype(value)>>::type; }, variant());
}

size_t Value::count() const {
  return std::visit(
      [](const auto& value) -> size_t {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, NestedArray>) {
          return value.items.size();
        } else if constexpr (type_of<T>() == ValueType::array) {
          return value.size();
        } else {
          return 1;
        }
      },
      variant());
}

std::string Value::describe() const {
  if (type() != ValueType::array) return std::string(value_type_name(type()));
  return fmt::format("array of {} ({})", value_type_name(element_type()), count());
}

}  // namespace cohort::gguf
