// Test data and comparison by bits, shared by the tests of the CPU kernels.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace cohort::cpu::test {

/// ordinary: about -4 .. 4. extreme: all magnitudes, subnormal to huge, both zeros. special: also infinities and NaN.
enum class Values { ordinary, extreme, special };
inline constexpr Values kAllValues[] = {Values::ordinary, Values::extreme, Values::special};

inline float value(Values kind, uint32_t index, uint32_t seed) {
  const auto words = philox4x32({index, seed, 0, 0}, {12345U, 678U});
  const float ordinary = (static_cast<float>(words[0] >> 8) * 0x1p-24F - 0.5F) * 8.0F;
  if (kind == Values::ordinary || words[1] % 4 != 0) return ordinary;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (words[2] % (kind == Values::special ? 256U : 5U)) {
    case 0:
      return 0.0F;
    case 1:
      return -0.0F;
    case 2:
      return std::bit_cast<float>((words[3] & 0x807fffffU) | (words[3] >> 9 & 3U) << 23);  // subnormal and just above
    case 3:
      return std::ldexp(ordinary, static_cast<int>(words[3] % 60) + 60);
    case 4:
      return std::ldexp(ordinary, -static_cast<int>(words[3] % 120));
    case 5:
      return kInfinity;
    case 6:
      return -kInfinity;
    case 7:
      return std::bit_cast<float>(0x7f800001U + words[3] % 0x7ffffeU);
    default:
      return ordinary;
  }
}

inline std::vector<float> values(Values kind, int64_t count, uint32_t seed) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = value(kind, static_cast<uint32_t>(i), seed);
  return x;
}

/// Equal bits, or both NaN (payloads are not promised).
inline bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline ::testing::AssertionResult same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace cohort::cpu::test
