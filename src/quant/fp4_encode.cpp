// Encoders of MXFP4 and NVFP4.
#include <algorithm>
#include <cmath>

#include "quant/codec.h"
#include "quant/search.h"
#include "quant/tables/grids.h"

namespace cohort::quant {
namespace {

/// The code nearest to `value` at scale d; of two equally near ones the lower.
int nearest(float value, float d) {
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    if (std::fabs(d * fp4_values[code] - value) < std::fabs(d * fp4_values[best] - value)) {
      best = code;
    }
  }
  return best;
}

float error_at(const float* x, const float* w, int n, float d) {
  float error = 0;
  for (int j = 0; j < n; ++j) {
    const float difference = x[j] - d * fp4_values[nearest(x[j], d)];
    error += w[j] * (difference * difference);
  }
  return error;
}

/// The scale code of least error among `first` .. `last`; `decode` gives the scale of a code.
template <class Decode>
uint8_t best_scale(const float* x, const float* importance, int n, int first, int last, Decode decode) {
  float weights[32];
  error_weights(x, importance, n, weights);
  int best = first;
  float best_error = error_at(x, weights, n, decode(static_cast<uint8_t>(first)));
  for (int code = first + 1; code <= last; ++code) {
    const float error = error_at(x, weights, n, decode(static_cast<uint8_t>(code)));
    if (error < best_error) {
      best = code;
      best_error = error;
    }
  }
  return static_cast<uint8_t>(best);
}

float largest_magnitude(const float* x, int n) {
  float largest = 0;
  for (int j = 0; j < n; ++j) {
    largest = std::max(largest, std::fabs(x[j]));
  }
  return largest;
}

/// Without importance the rule of the OCP specification: the largest magnitude lies in [4, 8) steps, whose codes
/// reach 6.
void encode_mxfp4(const float* x, const float* importance, uint8_t* block) {
  const float largest = largest_magnitude(x, 32);
  // The logarithm is rounded to f32 before floor, as the reference quantisers do: a value just below a power of two
  // counts as that power.
  const float logarithm = largest > 0 ? static_cast<float>(std::log2(static_cast<double>(largest))) : -1000.0f;
  const auto exponent = static_cast<int>(std::clamp(std::floor(logarithm) + 125.0f, 0.0f, 254.0f));
  block[0] = importance == nullptr
                 ? static_cast<uint8_t>(exponent)
                 : best_scale(x, importance, 32, std::max(exponent - 1, 0), std::min(exponent + 1, 254), e8m0_half);
  const float d = e8m0_half(block[0]);
  for (int j = 0; j < 16; ++j) {
    block[1 + j] = static_cast<uint8_t>(nearest(x[j], d) | nearest(x[j + 16], d) << 4);
  }
}

/// Searches around the scale that puts the largest magnitude on the largest code.
void encode_nvfp4(const float* x, const float* importance, uint8_t* block) {
  constexpr int reach = 4;   // half an octave: beyond it the largest value is clamped or the codes are left unused
  constexpr int top = 0x7e;  // 448; 0x7f is not a number
  for (int group = 0; group < 4; ++group) {
    const float* values = x + 16 * group;
    const float wanted = largest_magnitude(values, 16) / 12.0f;
    int start = 0;
    while (start < top && ue4m3_half(static_cast<uint8_t>(start)) < wanted) {
      ++start;
    }
    block[group] = best_scale(values, importance == nullptr ? nullptr : importance + 16 * group, 16,
                              std::max(start - reach, 0), std::min(start + reach, top), ue4m3_half);
    const float d = ue4m3_half(block[group]);
    for (int j = 0; j < 8; ++j) {
      block[4 + 8 * group + j] = static_cast<uint8_t>(nearest(values[j], d) | nearest(values[j + 8], d) << 4);
    }
  }
}

}  // namespace

BlockEncoder fp4_encoder(TensorType type) {
  switch (type) {
    case TensorType::mxfp4:
      return encode_mxfp4;
    case TensorType::nvfp4:
      return encode_nvfp4;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
