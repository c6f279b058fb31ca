// The search for codes with a scale and a minimum: Q2_K, Q4_K, Q5_K, and Q4_1 and Q5_1 when there is an importance.
#include <algorithm>
#include <cmath>

#include "quant/search.h"

namespace cohort::quant {
namespace {

/// Starting points of a part: the range of the values is cut into top + t steps. Fewer steps than top let the extremes
/// overshoot, more let them be clamped; least squares does the rest.
constexpr float ladder[] = {-1.0f, -0.75f, -0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f, 1.0f};
constexpr int refinements = 3;  // of the best start: codes and least squares in turn
constexpr int rounds = 3;       // of integer neighbours and super-scales in turn

struct Search {
  const float* x;
  const float* w;
  int parts;
  int size;  // of a part
  float top;
  int scale_top;
  float d = 0;
  float dmin = 0;
  uint8_t scale[16] = {};
  uint8_t minimum[16] = {};
};

uint8_t to_integer(float value, float inverse, int top) {
  return static_cast<uint8_t>(nearest_code(value * inverse, static_cast<float>(top)));
}

/// The best integers of part p near the present ones; returns the error of the part.
float search_neighbours(Search& s, int p) {
  const float* x = s.x + p * s.size;
  const float* w = s.w + p * s.size;
  const int scale = s.scale[p];
  const int minimum = s.minimum[p];
  float best = affine_error(x, w, s.size, s.top, s.d * static_cast<float>(scale), s.dmin * static_cast<float>(minimum));
  for (int i = std::max(scale - 1, 0); i <= std::min(scale + 1, s.scale_top); ++i) {
    for (int j = std::max(minimum - 1, 0); j <= std::min(minimum + 1, s.scale_top); ++j) {
      const float error =
          affine_error(x, w, s.size, s.top, s.d * static_cast<float>(i), s.dmin * static_cast<float>(j));
      if (error < best) {
        best = error;
        s.scale[p] = static_cast<uint8_t>(i);
        s.minimum[p] = static_cast<uint8_t>(j);
      }
    }
  }
  return best;
}

/// Least squares for d and dmin with all codes and integers as they are; both rounded to f16. False when it is not
/// defined.
bool refit_super_scales(Search& s) {
  Lanes aa;  // a = scale * code, b = minimum: x ~ d * a - dmin * b
  Lanes ab;
  Lanes bb;
  Lanes xa;
  Lanes xb;
  for (int p = 0; p < s.parts; ++p) {
    const float part_scale = s.d * static_cast<float>(s.scale[p]);
    const float part_minimum = s.dmin * static_cast<float>(s.minimum[p]);
    const float inverse = reciprocal(part_scale);
    const auto scale = static_cast<float>(s.scale[p]);
    const auto b = static_cast<float>(s.minimum[p]);
    for (int j = p * s.size; j < (p + 1) * s.size; j += 8) {
      for (int k = 0; k < 8; ++k) {
        const float a = scale * nearest_code((s.x[j + k] + part_minimum) * inverse, s.top);
        const float wa = s.w[j + k] * a;
        const float wb = s.w[j + k] * b;
        aa.v[k] += wa * a;
        ab.v[k] += wa * b;
        bb.v[k] += wb * b;
        xa.v[k] += wa * s.x[j + k];
        xb.v[k] += wb * s.x[j + k];
      }
    }
  }
  const double determinant = double{aa.sum()} * bb.sum() - double{ab.sum()} * ab.sum();
  double d = s.d;
  double dmin = s.dmin;
  if (determinant > 1e-6 * double{aa.sum()} * bb.sum()) {
    d = (double{bb.sum()} * xa.sum() - double{ab.sum()} * xb.sum()) / determinant;
    dmin = (double{ab.sum()} * xa.sum() - double{aa.sum()} * xb.sum()) / determinant;
  } else if (aa.sum() > 0) {
    d = (double{xa.sum()} + dmin * ab.sum()) / aa.sum();
  }
  if (!(d > 0 && dmin >= 0 && d < 65504 && dmin < 65504)) {
    return false;
  }
  s.d = f16_to_f32(f32_to_f16(static_cast<float>(d)));
  s.dmin = f16_to_f32(f32_to_f16(static_cast<float>(dmin)));
  return true;
}

/// Integers for the real-valued scales under the present d and dmin.
void round_scales(Search& s, const AffineFit* fits) {
  const float inverse = reciprocal(s.d);
  const float inverse_min = reciprocal(s.dmin);
  for (int p = 0; p < s.parts; ++p) {
    s.scale[p] = to_integer(fits[p].scale, inverse, s.scale_top);
    s.minimum[p] = to_integer(fits[p].minimum, inverse_min, s.scale_top);
  }
}

float search_all(Search& s) {
  float error = 0;
  for (int p = 0; p < s.parts; ++p) {
    error += search_neighbours(s, p);
  }
  return error;
}

}  // namespace

void error_weights(const float* x, const float* importance, int n, float* weights) {
  float squares = 0;
  float largest = 0;
  for (int j = 0; j < n; ++j) {
    squares += x[j] * x[j];
    largest = importance == nullptr ? 0.0f : std::max(largest, importance[j]);
  }
  const float mean = squares / static_cast<float>(n);
  if (largest > 0) {
    // A floor, so that values that the calibration never excited keep their shape.
    constexpr float floor = 1e-5f;
    for (int j = 0; j < n; ++j) {
      weights[j] = (importance[j] / largest + floor) * std::sqrt(mean + x[j] * x[j]);
    }
  } else {
    const float base = std::sqrt(mean);
    for (int j = 0; j < n; ++j) {
      weights[j] = base + std::fabs(x[j]);
    }
  }
}

bool refit_affine(const float* x, const float* w, int n, float top, bool signed_minimum, AffineFit& fit) {
  const float inverse = reciprocal(fit.scale);
  Lanes lw;
  Lanes lx;
  Lanes lq;
  Lanes lqq;
  Lanes lxq;
  for (int j = 0; j < n; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float q = nearest_code((x[j + k] + fit.minimum) * inverse, top);
      const float weight = w[j + k];
      lw.v[k] += weight;
      lx.v[k] += weight * x[j + k];
      lq.v[k] += weight * q;
      lqq.v[k] += weight * q * q;
      lxq.v[k] += weight * q * x[j + k];
    }
  }
  const float sw = lw.sum();
  const float sx = lx.sum();
  const float sq = lq.sum();
  const float sqq = lqq.sum();
  const float sxq = lxq.sum();
  const float determinant = sw * sqq - sq * sq;
  if (!(sqq > 0)) {
    return false;
  }
  if (determinant > 1e-6f * sw * sqq) {
    fit.scale = (sw * sxq - sx * sq) / determinant;
    fit.minimum = (sq * sxq - sqq * sx) / determinant;
  } else {  // one code for all values: the minimum stays
    fit.scale = (sxq + fit.minimum * sq) / sqq;
  }
  if (!signed_minimum && !(fit.minimum >= 0)) {
    fit.minimum = 0;
    fit.scale = sxq / sqq;
  }
  fit.error = affine_error(x, w, n, top, fit.scale, fit.minimum);
  return fit.scale > 0;
}

AffineFit fit_affine(const float* x, const float* w, int n, float top, bool signed_minimum) {
  float low = signed_minimum ? x[0] : 0.0f;
  float high = x[0];
  for (int j = 0; j < n; ++j) {
    low = std::min(low, x[j]);
    high = std::max(high, x[j]);
  }
  AffineFit best{.scale = 0, .minimum = -low, .error = 0};
  best.error = affine_error(x, w, n, top, 0, best.minimum);
  if (high <= low) {
    return best;
  }
  for (const float t : ladder) {
    AffineFit fit{.scale = (high - low) / (top + t), .minimum = -low, .error = 0};
    if (refit_affine(x, w, n, top, signed_minimum, fit) && fit.error < best.error) {
      best = fit;
    }
  }
  for (int i = 0; i < refinements; ++i) {
    AffineFit fit = best;
    if (!refit_affine(x, w, n, top, signed_minimum, fit) || !(fit.error < best.error)) {
      break;
    }
    best = fit;
  }
  return best;
}

void encode_affine(const float* x, const float* importance, int parts, int top, int scale_top, AffineBlock& out) {
  float weights[256];
  error_weights(x, importance, 256, weights);
  Search search{.x = x,
                .w = weights,
                .parts = parts,
                .size = 256 / parts,
                .top = static_cast<float>(top),
                .scale_top = scale_top};
  AffineFit fits[16];
  float largest = 0;
  float largest_min = 0;
  for (int p = 0; p < parts; ++p) {
    fits[p] = fit_affine(x + p * search.size, weights + p * search.size, search.size, search.top, false);
    largest = std::max(largest, fits[p].scale);
    largest_min = std::max(largest_min, fits[p].minimum);
  }
  search.d = f16_to_f32(f32_to_f16(largest / static_cast<float>(scale_top)));
  search.dmin = f16_to_f32(f32_to_f16(largest_min / static_cast<float>(scale_top)));
  round_scales(search, fits);
  Search best = search;
  float best_error = search_all(best);
  for (int round = 1; round < rounds; ++round) {
    Search next = best;
    if (!refit_super_scales(next)) {
      break;
    }
    const float error = search_all(next);
    if (!(error < best_error)) {
      break;
    }
    best = next;
    best_error = error;
  }
  out.d = f32_to_f16(best.d);
  out.dmin = f32_to_f16(best.dmin);
  for (int p = 0; p < parts; ++p) {
    out.scale[p] = best.scale[p];
    out.minimum[p] = best.minimum[p];
    const float inverse = reciprocal(best.d * static_cast<float>(best.scale[p]));
    const float minimum = best.dmin * static_cast<float>(best.minimum[p]);
    for (int j = p * best.size; j < (p + 1) * best.size; ++j) {
      out.code[j] = static_cast<uint8_t>(nearest_code((x[j] + minimum) * inverse, best.top));
    }
  }
}

}  // namespace cohort::quant
