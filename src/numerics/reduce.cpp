#include "numerics/reduce.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/clones.h"
#include "numerics/functions.h"

namespace cohort::numerics {

COHORT_FMA_CLONES float dot16(const float* x, const float* w, int64_t count) {
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = std::fma(x[k + j], w[k + j], lanes[j]);
  }
  for (int j = 0; k + j < count; ++j) lanes[j] = std::fma(x[k + j], w[k + j], lanes[j]);
  return tree16(lanes);
}

float squares16(const float* x, int64_t count) {
  return dot16(x, x, count);
}

void quantise_row(const float* x, int64_t count, int8_t* q, float* d) {
  constexpr uint32_t kInfinityBits = 0x7f800000U;
  for (int64_t block = 0; block < count / kBlock; ++block, x += kBlock, q += kBlock) {
    // Absolute values compare as integers, so NaN counts as larger than infinity and no order matters.
    uint32_t bits = 0;
    for (int j = 0; j < kBlock; ++j) bits = std::max(bits, std::bit_cast<uint32_t>(x[j]) & 0x7fffffffU);
    const auto amax = std::bit_cast<float>(bits);
    if (bits >= kInfinityBits || amax < kTinyAmax) {
      d[block] = bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
      std::fill_n(q, kBlock, int8_t{0});
      continue;
    }
    d[block] = amax / 127.0F;
    const float inverse = 127.0F / amax;
    for (int j = 0; j < kBlock; ++j) q[j] = static_cast<int8_t>(std::nearbyint(x[j] * inverse));
  }
}

void softmax(std::span<float> x) {
  float maximum = -std::numeric_limits<float>::infinity();
  for (float value : x) maximum = std::max(maximum, value);
  for (float& value : x) value = exp(value - maximum);
  const float inverse = 1.0F / sum16(x.data(), static_cast<int64_t>(x.size()));
  for (float& value : x) value *= inverse;
}

void rms_norm(const float* x, const float* w, float eps, int64_t count, float* y) {
  const float mean = squares16(x, count) / static_cast<float>(count);
  const float r = 1.0F / std::sqrt(mean + eps);
  for (int64_t i = 0; i < count; ++i) y[i] = w != nullptr ? (x[i] * r) * w[i] : x[i] * r;
}

}  // namespace cohort::numerics
