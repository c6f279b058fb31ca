// For tests of the file formats: raw bytes, built field by field, and the fixtures that tools/make_format_seeds.py
// wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace cohort {

/// Little-endian fields one after another.
class TestBytes {
 public:
  template <class T>
  TestBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  TestBytes& text(std::string_view text) {
    bytes_.append(text);
    return *this;
  }
  /// A GGUF string: length and bytes.
  TestBytes& string(std::string_view text) { return put<uint64_t>(text.size()).text(text); }
  TestBytes& pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back('\0');
    return *this;
  }
  TestBytes& zeros(size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::filesystem::path seed_path(std::string_view name) {
  return std::filesystem::path(COHORT_SOURCE_DIR) / "tests/fuzz/seeds" / name;
}

inline std::string read_seed(std::string_view name) {
  std::ifstream stream(seed_path(name), std::ios::binary);
  EXPECT_TRUE(stream.good()) << seed_path(name);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace cohort
