// The searches behind the encoders: scales (and minima) of small integers that minimise the weighted squared error.
//
// A super-block of 256 values is Parts parts of Size values. First every part finds its own real-valued scale from a
// ladder of starting points, each improved by weighted least squares; then the super-scale is taken from the largest of
// them, the scales become small integers, each part tries the neighbours of its integers, and the super-scale is fitted
// to the result. The last two steps repeat, and a round that does not lower the error ends the search.
#pragma once

#include <cstdint>

#include "quant/half.h"

namespace cohort::quant {

/// Eight partial sums: one order of additions everywhere, and one that compilers can vectorise.
struct Lanes {
  float v[8] = {};
  float sum() const { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }
};

/// Weights of the squared error of `n` values. Without importance large values count more (the root mean square plus
/// the magnitude), with it the importance times a root that grows with the magnitude.
void error_weights(const float* x, const float* importance, int n, float* weights);

/// The nearest whole number to t within 0..top; 0 for a NaN.
inline float nearest_code(float t, float top) {
  const float low = t > 0 ? t : 0;
  const float clamped = low < top ? low : top;
  // The sum is rounded once, too, as in the files that others wrote. NOLINTNEXTLINE(bugprone-incorrect-roundings)
  return static_cast<float>(static_cast<int32_t>(clamped + 0.5f));
}

inline float reciprocal(float d) {
  return d == 0 ? 0.0f : 1.0f / d;
}

/// x ~ scale * code - minimum, codes 0..top. `signed_minimum` allows minima below 0 (the K formats cannot store them).
struct AffineFit {
  float scale = 0;
  float minimum = 0;
  float error = 0;
};

/// The weighted squared error of `n` values (a multiple of 8) when each takes its nearest code.
inline float affine_error(const float* x, const float* w, int n, float top, float scale, float minimum) {
  const float inverse = reciprocal(scale);
  Lanes error;
  for (int j = 0; j < n; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float shifted = x[j + k] + minimum;
      const float difference = shifted - scale * nearest_code(shifted * inverse, top);
      error.v[k] += w[j + k] * (difference * difference);
    }
  }
  return error.sum();
}

/// The least-squares scale and minimum for the codes that (scale, minimum) gives; false when it is not defined.
bool refit_affine(const float* x, const float* w, int n, float top, bool signed_minimum, AffineFit& fit);

/// The best real-valued scale and minimum of one part.
AffineFit fit_affine(const float* x, const float* w, int n, float top, bool signed_minimum);

/// A super-block with integer scales and minima for each part: value = d * scale * code - dmin * minimum.
struct AffineBlock {
  uint16_t d;  // f16 bits
  uint16_t dmin;
  uint8_t scale[16];
  uint8_t minimum[16];
  uint8_t code[256];
};

/// Encodes 256 values as `parts` parts with codes 0..top and integer scales and minima 0..scale_top.
void encode_affine(const float* x, const float* importance, int parts, int top, int scale_top, AffineBlock& out);

}  // namespace cohort::quant
