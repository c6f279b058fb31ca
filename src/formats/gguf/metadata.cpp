#include "formats/gguf/metadata.h"

#include <limits>
#include <type_traits>

#include "base/result.h"

namespace cohort::gguf {
namespace {

constexpr size_t kMaxKeyBytes = 65535;  // the format's limit

template <class T>
inline constexpr bool is_integer_v = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
inline constexpr bool is_integer_array_v = false;
template <class T>
inline constexpr bool is_integer_array_v<std::vector<T>> = is_integer_v<T>;

tl::unexpected<Error> wrong_type(std::string_view key, const Value& value, std::string_view wanted) {
  return fail(ErrorCode::corrupt, "metadata key '{}' has type {}; {} is needed", key, value.describe(), wanted);
}

template <class Out>
Expected<Out> to_integer(std::string_view key, const Value& value) {
  return std::visit(
      [&](const auto& stored) -> Expected<Out> {
        using T = std::decay_t<decltype(stored)>;
        if constexpr (is_integer_v<T>) {
          if (!std::in_range<Out>(stored)) {
            return fail(ErrorCode::corrupt, "metadata key '{}' is {}; it must lie between {} and {}", key, stored,
                        std::numeric_limits<Out>::min(), std::numeric_limits<Out>::max());
          }
          return static_cast<Out>(stored);
        } else {
          return wrong_type(key, value, "an integer");
        }
      },
      value.variant());
}

template <class Out>
Expected<Out> to_float(std::string_view key, const Value& value) {
  if (const auto* f32 = std::get_if<float>(&value.variant())) return static_cast<Out>(*f32);
  if (const auto* f64 = std::get_if<double>(&value.variant())) return static_cast<Out>(*f64);
  return wrong_type(key, value, "f32 or f64");
}

Expected<bool> to_bool(std::string_view key, const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value.variant())) return *boolean;
  return wrong_type(key, value, "bool");
}

Expected<std::string_view> to_string(std::string_view key, const Value& value) {
  if (const auto* string = std::get_if<std::string>(&value.variant())) return std::string_view(*string);
  return wrong_type(key, value, "string");
}

}  // namespace

const Value* Metadata::find(std::string_view key) const {
  auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

Expected<const Value*> Metadata::require(std::string_view key) const {
  if (const Value* value = find(key)) return value;
  return fail(ErrorCode::not_found, "metadata key '{}' is missing", key);
}

Expected<uint32_t> Metadata::get_u32(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_integer<uint32_t>(key, *value);
}
Expected<int32_t> Metadata::get_i32(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_integer<int32_t>(key, *value);
}
Expected<uint64_t> Metadata::get_u64(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_integer<uint64_t>(key, *value);
}
Expected<int64_t> Metadata::get_i64(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_integer<int64_t>(key, *value);
}
Expected<float> Metadata::get_f32(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_float<float>(key, *value);
}
Expected<double> Metadata::get_f64(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_float<double>(key, *value);
}
Expected<bool> Metadata::get_bool(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_bool(key, *value);
}
Expected<std::string_view> Metadata::get_string(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return to_string(key, *value);
}

Expected<uint32_t> Metadata::get_u32(std::string_view key, uint32_t fallback) const {
  return contains(key) ? get_u32(key) : fallback;
}
Expected<int32_t> Metadata::get_i32(std::string_view key, int32_t fallback) const {
  return contains(key) ? get_i32(key) : fallback;
}
Expected<uint64_t> Metadata::get_u64(std::string_view key, uint64_t fallback) const {
  return contains(key) ? get_u64(key) : fallback;
}
Expected<int64_t> Metadata::get_i64(std::string_view key, int64_t fallback) const {
  return contains(key) ? get_i64(key) : fallback;
}
Expected<float> Metadata::get_f32(std::string_view key, float fallback) const {
  return contains(key) ? get_f32(key) : fallback;
}
Expected<double> Metadata::get_f64(std::string_view key, double fallback) const {
  return contains(key) ? get_f64(key) : fallback;
}
Expected<bool> Metadata::get_bool(std::string_view key, bool fallback) const {
  return contains(key) ? get_bool(key) : fallback;
}
Expected<std::string_view> Metadata::get_string(std::string_view key, std::string_view fallback) const {
  return contains(key) ? get_string(key) : fallback;
}

Expected<const StringArray*> Metadata::get_string_array(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  if (const auto* array = std::get_if<StringArray>(&value->variant())) return array;
  return wrong_type(key, *value, "an array of string");
}

Expected<std::vector<int64_t>> Metadata::get_int_array(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  return std::visit(
      [&](const auto& stored) -> Expected<std::vector<int64_t>> {
        if constexpr (is_integer_array_v<std::decay_t<decltype(stored)>>) {
          std::vector<int64_t> numbers;
          numbers.reserve(stored.size());
          for (auto number : stored) {
            if (!std::in_range<int64_t>(number)) {
              return fail(ErrorCode::corrupt, "metadata key '{}' holds {}; at most {} is possible", key, number,
                          std::numeric_limits<int64_t>::max());
            }
            numbers.push_back(static_cast<int64_t>(number));
          }
          return numbers;
        } else {
          return wrong_type(key, *value, "an array of integers");
        }
      },
      value->variant());
}

Expected<std::vector<float>> Metadata::get_f32_array(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  if (const auto* array = std::get_if<std::vector<float>>(&value->variant())) return *array;
  if (const auto* array = std::get_if<std::vector<double>>(&value->variant())) {
    return std::vector<float>(array->begin(), array->end());
  }
  return wrong_type(key, *value, "an array of f32 or f64");
}

Expected<std::vector<bool>> Metadata::get_bool_array(std::string_view key) const {
  COHORT_ASSIGN(const Value* value, require(key));
  if (const auto* array = std::get_if<std::vector<bool>>(&value->variant())) return *array;
  return wrong_type(key, *value, "an array of bool");
}

Expected<void> Metadata::add(std::string key, Value value) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return fail(ErrorCode::invalid_argument, "a metadata key has {} bytes; 1 to {} are possible", key.size(),
                kMaxKeyBytes);
  }
  auto [position, inserted] = index_.emplace(key, entries_.size());
  if (!inserted) return fail(ErrorCode::invalid_argument, "metadata key '{}' occurs twice", key);
  entries_.emplace_back(std::move(key), std::move(value));
  return {};
}

}  // namespace cohort::gguf
