// Random weights of any type for tests and benchmarks: encoded where an encoder exists, else random blocks whose values
// are finite.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "models/weights.h"

namespace cohort::testing {

/// Uniform in [-1, 1).
inline float random_float(uint64_t seed, uint32_t index) {
  return 2.0F * uniform(seed, index, 0, 0) - 1.0F;
}

/// A weight that owns its data.
struct OwnedWeight {
  Weight weight;
  std::vector<std::byte> data;
};

inline void fill_random_row(TensorType type, int64_t cols, uint64_t seed, uint32_t row, std::byte* out) {
  const TypeInfo& info = type_info(type);
  if (has_encoder(type)) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (int64_t k = 0; k < cols; ++k)
      values[static_cast<size_t>(k)] = 0.1F * random_float(seed, row * 65536U + static_cast<uint32_t>(k));
    if (encode_row(type, values.data(), out, cols)) return;
  }
  std::vector<float> decoded(info.block_values);
  uint32_t draw = 0;
  for (int64_t b = 0; b < cols / info.block_values; ++b, out += info.block_bytes) {
    bool fine = false;
    while (!fine) {
      for (uint32_t i = 0; i < info.block_bytes; i += 4) {
        const auto words = philox4x32({row, static_cast<uint32_t>(b), draw++, 7U}, {static_cast<uint32_t>(seed), 1U});
        std::memcpy(out + i, words.data(), std::min<size_t>(4, info.block_bytes - i));
      }
      decode_row(type, out, decoded.data(), info.block_values);
      fine = true;
      for (float v : decoded) fine = fine && std::isfinite(v) && std::fabs(v) < 1e4F;
    }
  }
}

inline OwnedWeight random_weight(TensorType type, int64_t experts, int64_t rows, int64_t cols, uint64_t seed) {
  OwnedWeight owned;
  owned.weight.name = "test";
  owned.weight.type = type;
  owned.weight.experts = experts;
  owned.weight.rows = rows;
  owned.weight.cols = cols;
  const size_t stride = row_bytes(type, cols);
  owned.data.resize(stride * static_cast<size_t>(rows * experts));
  for (int64_t r = 0; r < rows * experts; ++r)
    fill_random_row(type, cols, seed, static_cast<uint32_t>(r), owned.data.data() + static_cast<size_t>(r) * stride);
  for (int64_t e = 0; e < experts; ++e)
    owned.weight.slices.push_back(owned.data.data() + static_cast<size_t>(e * rows) * stride);
  return owned;
}

/// Blocks of random bytes: every code, scale, NaN and infinity that a file can hold.
inline OwnedWeight random_bytes_weight(TensorType type, int64_t rows, int64_t cols, uint64_t seed) {
  OwnedWeight owned;
  owned.weight.name = "bytes";
  owned.weight.type = type;
  owned.weight.experts = 1;
  owned.weight.rows = rows;
  owned.weight.cols = cols;
  owned.data.resize(row_bytes(type, cols) * static_cast<size_t>(rows));
  for (size_t i = 0; i < owned.data.size(); i += 4) {
    const auto words =
        philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(type), 3U, 7U}, {static_cast<uint32_t>(seed), 2U});
    std::memcpy(owned.data.data() + i, words.data(), std::min<size_t>(4, owned.data.size() - i));
  }
  owned.weight.slices.push_back(owned.data.data());
  return owned;
}

/// Rows of activations with some hard blocks: zeros, tiny, large, infinite and NaN values when `nasty`.
inline std::vector<float> random_rows(int64_t rows, int64_t cols, uint64_t seed, bool nasty) {
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 3.0F * random_float(seed, static_cast<uint32_t>(i));
  if (!nasty) return x;
  const auto block = [&](int64_t row, int64_t index) { return x.data() + row * cols + index * 32; };
  for (int64_t r = 0; r < rows && cols >= 64; ++r) {
    if (r % 5 == 1) std::fill_n(block(r, 0), 32, 0.0F);
    if (r % 5 == 2) std::fill_n(block(r, 1), 32, 1e-35F);
    if (r % 5 == 3) block(r, 0)[7] = 1e30F;
    if (r % 11 == 4) block(r, 1)[3] = INFINITY;
    if (r % 13 == 6) block(r, 0)[31] = NAN;
  }
  return x;
}

}  // namespace cohort::testing
