// Random data that tools/make_quant_fixtures.py makes in the same way, and the hashes of its files.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace cohort::quant_test {

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Word `index` of the splitmix64 stream of `seed`.
inline uint64_t stream(uint64_t seed, uint64_t index) {
  return mix(seed + (index + 1) * 0x9E3779B97F4A7C15u);
}

inline std::vector<std::byte> random_bytes(uint64_t seed, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(stream(seed, i / 8) >> (8 * (i % 8)));
  }
  return bytes;
}

/// The rows of the script's row(): whole numbers in a bell curve, shaped by `mode`, times 2^exponent.
inline std::vector<float> random_row(int mode, int exponent, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = stream(1000 + 16 * static_cast<uint64_t>(mode), i);
    int64_t whole = -131070;
    for (int part = 0; part < 4; ++part) {
      whole += static_cast<int64_t>((word >> (16 * part)) & 0xffff);
    }
    switch (mode) {
      case 1:  // outliers
        whole = i % 61 == 7 ? whole * 32 : whole;
        break;
      case 2:  // one sign
        whole = std::abs(whole);
        break;
      case 3:  // coarse: many ties
        whole = (whole >> 13) * 8192;
        break;
      case 4:  // zeros, and blocks of one value
        whole = i % 512 < 256 ? 0 : 77777;
        break;
      case 5:  // exactly on the steps of a quantiser
        whole = (whole >> 14) * 2048;
        break;
      default:
        break;
    }
    values[i] = std::ldexp(static_cast<float>(whole), exponent);
  }
  return values;
}

inline uint64_t digest_bytes(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += mix(static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(bytes[i]));
  }
  return sum;
}

inline uint32_t canonical_bits(float value) {
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
}

inline uint64_t digest_floats(std::span<const float> values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += mix(static_cast<uint64_t>(i) << 32 | canonical_bits(values[i]));
  }
  return sum;
}

/// The lines of tests/golden/quant/NAME, cut at blanks.
inline std::vector<std::vector<std::string>> read_fixture(const std::string& name) {
  std::ifstream file(std::string(COHORT_SOURCE_DIR) + "/tests/golden/quant/" + name);
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string>& fields = lines.emplace_back();
    for (std::string word; words >> word;) {
      fields.push_back(word);
    }
  }
  return lines;
}

inline uint64_t from_hex(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 16);
}

inline std::vector<std::byte> bytes_from_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(from_hex(text.substr(2 * i, 2)));
  }
  return bytes;
}

}  // namespace cohort::quant_test
