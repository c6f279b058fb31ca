// The search for codes that have a scale but no minimum (see search.h for the method): Q3_K, Q6_K, IQ4_*, Q2_0, and
// Q4_0 and Q5_0 when there is an importance.
//
// A Coder is a small value with
//   float nearest(float t)    the representable code value nearest to t (any t, NaN included)
//   float low, high           its most negative and most positive code value
//   float step                about the distance of code values near the ends
#pragma once

#include <algorithm>
#include <cmath>

#include "quant/search.h"
#include "quant/tables/grids.h"

namespace cohort::quant {

/// Whole numbers low..high.
struct UniformCoder {
  float low;
  float high;
  float step = 1;
  float nearest(float t) const { return nearest_code(t - low, high - low) + low; }
};

/// The table of IQ4_NL and IQ4_XS.
struct TableCoder {
  float low = iq4_values[0];
  float high = iq4_values[15];
  float step = 8;
  float nearest(float t) const {
    // Adding up the steps below t needs no table look-up, so it vectorises.
    float value = iq4_values[0];
    for (int i = 1; i < 16; ++i) {
      const float middle = 0.5f * static_cast<float>(iq4_values[i - 1] + iq4_values[i]);
      value += t > middle ? static_cast<float>(iq4_values[i] - iq4_values[i - 1]) : 0.0f;
    }
    return value;
  }
};

/// The weighted squared error of `n` values (a multiple of 8) when each takes its nearest code.
template <class Coder>
float scaled_error(Coder coder, const float* x, const float* w, int n, float scale) {
  const float inverse = reciprocal(scale);
  Lanes error;
  for (int j = 0; j < n; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float difference = x[j + k] - scale * coder.nearest(x[j + k] * inverse);
      error.v[k] += w[j + k] * (difference * difference);
    }
  }
  return error.sum();
}

/// The sums of a least-squares scale for the codes that `scale` gives: code^2 and code * x, weighted.
struct ScaleSums {
  float qq = 0;
  float xq = 0;
};
template <class Coder>
ScaleSums scale_sums(Coder coder, const float* x, const float* w, int n, float scale) {
  const float inverse = reciprocal(scale);
  Lanes qq;
  Lanes xq;
  for (int j = 0; j < n; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float q = coder.nearest(x[j + k] * inverse);
      qq.v[k] += w[j + k] * q * q;
      xq.v[k] += w[j + k] * q * x[j + k];
    }
  }
  return {qq.sum(), xq.sum()};
}

/// The best real-valued scale of `n` values. Starting points: the value of largest magnitude becomes one of the extreme
/// codes, or lies up to a step beyond or short of it.
template <class Coder>
float fit_scale(Coder coder, const float* x, const float* w, int n) {
  constexpr float ladder[] = {-0.9f, -0.7f, -0.5f, -0.3f, -0.1f, 0.1f, 0.3f, 0.5f, 0.7f, 0.9f};
  constexpr int refinements = 3;
  float extreme = 0;
  for (int j = 0; j < n; ++j) {
    extreme = std::fabs(x[j]) > std::fabs(extreme) ? x[j] : extreme;
  }
  if (extreme == 0) {
    return 0;
  }
  float best = 0;
  float best_error = scaled_error(coder, x, w, n, 0);
  const auto offer = [&](float start) {
    const ScaleSums sums = scale_sums(coder, x, w, n, start);
    const float scale = sums.qq > 0 ? sums.xq / sums.qq : 0.0f;
    const float error = scaled_error(coder, x, w, n, scale);
    const bool better = error < best_error;
    if (better) {
      best = scale;
      best_error = error;
    }
    return better;
  };
  for (const float t : ladder) {
    offer(extreme / (coder.low - t * coder.step));
    offer(extreme / (coder.high + t * coder.step));
  }
  for (int i = 0; i < refinements && offer(best); ++i) {
  }
  return best;
}

/// A super-block of Parts parts of 256 / Parts values: value = d * scale * code.
template <int Parts>
struct ScaledBlock {
  uint16_t d;  // f16 bits
  int8_t scale[Parts];
  float code[256];  // code values, whole numbers
};

template <class Coder, int Parts>
class ScaledSearch {
 public:
  static constexpr int size = 256 / Parts;

  /// Integer scales are -scale_top-1 .. scale_top.
  ScaledSearch(Coder coder, const float* x, const float* w, int scale_top)
      : coder_(coder), x_(x), w_(w), scale_top_(scale_top) {
    float fits[Parts];
    float extreme = 0;
    for (int p = 0; p < Parts; ++p) {
      fits[p] = fit_scale(coder, x + p * size, w + p * size, size);
      extreme = std::fabs(fits[p]) > std::fabs(extreme) ? fits[p] : extreme;
    }
    // The largest scale becomes the most negative integer, whose magnitude is one more.
    d_ = f16_to_f32(f32_to_f16(extreme / static_cast<float>(-scale_top - 1)));
    const UniformCoder integers{static_cast<float>(-scale_top - 1), static_cast<float>(scale_top)};
    for (int p = 0; p < Parts; ++p) {
      scale_[p] = integers.nearest(fits[p] * reciprocal(d_));
    }
  }

  /// Each part takes the best of its integer and the two neighbours; returns the error.
  float search_neighbours() {
    float total = 0;
    for (int p = 0; p < Parts; ++p) {
      const float* x = x_ + p * size;
      const float* w = w_ + p * size;
      const float scale = scale_[p];
      float best = scaled_error(coder_, x, w, size, d_ * scale);
      for (const float other : {scale - 1, scale + 1}) {
        if (other < static_cast<float>(-scale_top_ - 1) || other > static_cast<float>(scale_top_)) {
          continue;
        }
        const float error = scaled_error(coder_, x, w, size, d_ * other);
        if (error < best) {
          best = error;
          scale_[p] = other;
        }
      }
      total += best;
    }
    return total;
  }

  /// Least squares for d with all codes and integers as they are, rounded to f16. False when it is not defined.
  bool refit() {
    float qq = 0;
    float xq = 0;
    for (int p = 0; p < Parts; ++p) {
      const ScaleSums sums = scale_sums(coder_, x_ + p * size, w_ + p * size, size, d_ * scale_[p]);
      qq += scale_[p] * scale_[p] * sums.qq;
      xq += scale_[p] * sums.xq;
    }
    const float d = xq / qq;
    if (!(std::fabs(d) < 65504)) {
      return false;
    }
    d_ = f16_to_f32(f32_to_f16(d));
    return true;
  }

  void store(ScaledBlock<Parts>& out) const {
    out.d = f32_to_f16(d_);
    for (int p = 0; p < Parts; ++p) {
      out.scale[p] = static_cast<int8_t>(scale_[p]);
      const float inverse = reciprocal(d_ * scale_[p]);
      for (int j = p * size; j < (p + 1) * size; ++j) {
        out.code[j] = coder_.nearest(x_[j] * inverse);
      }
    }
  }

 private:
  Coder coder_;
  const float* x_;
  const float* w_;
  int scale_top_;
  float d_ = 0;
  float scale_[Parts] = {};  // whole numbers
};

/// Encodes 256 values with codes of `coder` and integer scales -scale_top-1 .. scale_top for each of Parts parts.
template <class Coder, int Parts>
void encode_scaled(Coder coder, const float* x, const float* importance, int scale_top, ScaledBlock<Parts>& out) {
  constexpr int rounds = 3;
  float weights[256];
  error_weights(x, importance, 256, weights);
  ScaledSearch<Coder, Parts> best(coder, x, weights, scale_top);
  float best_error = best.search_neighbours();
  for (int round = 1; round < rounds; ++round) {
    ScaledSearch<Coder, Parts> next = best;
    if (!next.refit()) {
      break;
    }
    const float error = next.search_neighbours();
    if (!(error < best_error)) {
      break;
    }
    best = next;
    best_error = error;
  }
  best.store(out);
}

/// Encodes `n` values (at most 256) under one f16 scale, whose bits it returns; `code` receives the code values.
template <class Coder>
uint16_t encode_single(Coder coder, const float* x, const float* importance, int n, float* code) {
  float weights[256];
  error_weights(x, importance, n, weights);
  const uint16_t d = f32_to_f16(fit_scale(coder, x, weights, n));
  const float inverse = reciprocal(f16_to_f32(d));
  for (int j = 0; j < n; ++j) {
    code[j] = coder.nearest(x[j] * inverse);
  }
  return d;
}

}  // namespace cohort::quant
