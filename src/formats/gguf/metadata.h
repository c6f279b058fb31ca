// The key-value part of a GGUF file, with typed look-ups whose errors name the key.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/error.h"
#include "formats/gguf/value.h"

namespace cohort::gguf {

/// Entries in file order. Look-ups fail with not_found (no such key) or corrupt (present with another type or out of
/// range); those with a `fallback` return it when the key is absent and still fail when the type is wrong. Integers may
/// be stored signed or unsigned and in any width; they are accepted where the value fits.
class Metadata {
 public:
  using Entry = std::pair<std::string, Value>;

  const Value* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  std::span<const Entry> entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

  Expected<uint32_t> get_u32(std::string_view key) const;
  Expected<int32_t> get_i32(std::string_view key) const;
  Expected<uint64_t> get_u64(std::string_view key) const;
  Expected<int64_t> get_i64(std::string_view key) const;
  Expected<float> get_f32(std::string_view key) const;   // f32 or f64
  Expected<double> get_f64(std::string_view key) const;  // f32 or f64
  Expected<bool> get_bool(std::string_view key) const;
  /// Views into this object.
  Expected<std::string_view> get_string(std::string_view key) const;

  Expected<uint32_t> get_u32(std::string_view key, uint32_t fallback) const;
  Expected<int32_t> get_i32(std::string_view key, int32_t fallback) const;
  Expected<uint64_t> get_u64(std::string_view key, uint64_t fallback) const;
  Expected<int64_t> get_i64(std::string_view key, int64_t fallback) const;
  Expected<float> get_f32(std::string_view key, float fallback) const;
  Expected<double> get_f64(std::string_view key, double fallback) const;
  Expected<bool> get_bool(std::string_view key, bool fallback) const;
  Expected<std::string_view> get_string(std::string_view key, std::string_view fallback) const;

  /// Pointer into this object, never null.
  Expected<const StringArray*> get_string_array(std::string_view key) const;
  /// Arrays of any integer width, each element converted.
  Expected<std::vector<int64_t>> get_int_array(std::string_view key) const;
  Expected<std::vector<float>> get_f32_array(std::string_view key) const;  // of f32 or f64
  Expected<std::vector<bool>> get_bool_array(std::string_view key) const;

  /// Adds an entry. invalid_argument when the key is empty, too long (65535 bytes) or already there.
  Expected<void> add(std::string key, Value value);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  Expected<const Value*> require(std::string_view key) const;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

}  // namespace cohort::gguf
