// The search for codes with a scale only: Q3_K and Q6_K.
#include "quant/k_search.h"

namespace cohort::quant {
namespace {

/// Starting points of a part: the value of largest magnitude becomes -(half + t) or +(half + t) steps.
constexpr float ladder[] = {-0.9f, -0.7f, -0.5f, -0.3f, -0.1f, 0.1f, 0.3f, 0.5f, 0.7f, 0.9f};
constexpr int refinements = 3;
constexpr int rounds = 3;
constexpr int parts = 16;
constexpr int size = 16;

/// The nearest code -half .. half-1 to t.
inline float signed_code(float t, float half) {
  return nearest_code(t + half, 2 * half - 1) - half;
}

float symmetric_error(const float* x, const float* w, float half, float scale) {
  const float inverse = reciprocal(scale);
  Lanes error;
  for (int j = 0; j < size; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float difference = x[j + k] - scale * signed_code(x[j + k] * inverse, half);
      error.v[k] += w[j + k] * (difference * difference);
    }
  }
  return error.sum();
}

/// The least-squares scale for the codes that `scale` gives; 0 when all codes are 0.
float refit_symmetric(const float* x, const float* w, float half, float scale) {
  const float inverse = reciprocal(scale);
  Lanes qq;
  Lanes xq;
  for (int j = 0; j < size; j += 8) {
    for (int k = 0; k < 8; ++k) {
      const float q = signed_code(x[j + k] * inverse, half);
      qq.v[k] += w[j + k] * q * q;
      xq.v[k] += w[j + k] * q * x[j + k];
    }
  }
  const float sum = qq.sum();
  return sum > 0 ? xq.sum() / sum : 0.0f;
}

float fit_symmetric(const float* x, const float* w, float half) {
  float extreme = 0;
  for (int j = 0; j < size; ++j) {
    extreme = std::fabs(x[j]) > std::fabs(extreme) ? x[j] : extreme;
  }
  if (extreme == 0) {
    return 0;
  }
  float best = 0;
  float best_error = symmetric_error(x, w, half, 0);
  const auto offer = [&](float start) {
    const float scale = refit_symmetric(x, w, half, start);
    const float error = symmetric_error(x, w, half, scale);
    const bool better = error < best_error;
    if (better) {
      best = scale;
      best_error = error;
    }
    return better;
  };
  for (const float t : ladder) {
    offer(-extreme / (half + t));
    offer(extreme / (half + t));
  }
  for (int i = 0; i < refinements && offer(best); ++i) {
  }
  return best;
}

struct Search {
  const float* x;
  const float* w;
  float half;
  int scale_top;
  float d = 0;
  int scale[parts] = {};
};

float search_all(Search& s) {
  float total = 0;
  for (int p = 0; p < parts; ++p) {
    const float* x = s.x + p * size;
    const float* w = s.w + p * size;
    const int scale = s.scale[p];
    float best = symmetric_error(x, w, s.half, s.d * static_cast<float>(scale));
    for (int i = std::max(scale - 1, -s.scale_top - 1); i <= std::min(scale + 1, s.scale_top); ++i) {
      const float error = symmetric_error(x, w, s.half, s.d * static_cast<float>(i));
      if (error < best) {
        best = error;
        s.scale[p] = i;
      }
    }
    total += best;
  }
  return total;
}

/// Least squares for d with all codes and integers as they are, rounded to f16. False when it is not defined.
bool refit_super_scale(Search& s) {
  Lanes aa;
  Lanes xa;
  for (int p = 0; p < parts; ++p) {
    const auto scale = static_cast<float>(s.scale[p]);
    const float inverse = reciprocal(s.d * scale);
    for (int j = p * size; j < (p + 1) * size; j += 8) {
      for (int k = 0; k < 8; ++k) {
        const float a = scale * signed_code(s.x[j + k] * inverse, s.half);
        aa.v[k] += s.w[j + k] * a * a;
        xa.v[k] += s.w[j + k] * a * s.x[j + k];
      }
    }
  }
  const float d = xa.sum() / aa.sum();
  if (!(std::fabs(d) < 65504)) {
    return false;
  }
  s.d = f16_to_f32(f32_to_f16(d));
  return true;
}

}  // namespace

void encode_symmetric(const float* x, const float* importance, int bits, int scale_top, SymmetricBlock& out) {
  float weights[256];
  error_weights(x, importance, weights);
  Search search{.x = x, .w = weights, .half = static_cast<float>(1 << (bits - 1)), .scale_top = scale_top};
  float fits[parts];
  float extreme = 0;
  for (int p = 0; p < parts; ++p) {
    fits[p] = fit_symmetric(x + p * size, weights + p * size, search.half);
    extreme = std::fabs(fits[p]) > std::fabs(extreme) ? fits[p] : extreme;
  }
  // The largest scale becomes the most negative integer, whose magnitude is one more.
  search.d = f16_to_f32(f32_to_f16(extreme / static_cast<float>(-scale_top - 1)));
  const float inverse = reciprocal(search.d);
  for (int p = 0; p < parts; ++p) {
    search.scale[p] = static_cast<int>(signed_code(fits[p] * inverse, static_cast<float>(scale_top + 1)));
  }
  Search best = search;
  float best_error = search_all(best);
  for (int round = 1; round < rounds; ++round) {
    Search next = best;
    if (!refit_super_scale(next)) {
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
  for (int p = 0; p < parts; ++p) {
    out.scale[p] = static_cast<int8_t>(best.scale[p]);
    const float part_inverse = reciprocal(best.d * static_cast<float>(best.scale[p]));
    for (int j = p * size; j < (p + 1) * size; ++j) {
      out.code[j] = static_cast<int8_t>(signed_code(x[j] * part_inverse, best.half));
    }
  }
}

}  // namespace cohort::quant
