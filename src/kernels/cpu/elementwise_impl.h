// The elementwise kernels over an Ops policy of 16 lanes; compiled once per instruction set by elementwise_<isa>.cpp.
// All of it streams through L1, so nothing here is tuned beyond whole vectors and chains that are long enough.
//
// Functions of the library that are inline but not templates over Ops stay out of this header: the linker keeps one
// copy of those, and it could be the one that was compiled for instructions this machine lacks.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/elementwise.h"
#include "numerics/functions.h"

namespace cohort::cpu {

template <class Ops>
struct Elementwise {
  using F = typename Ops::F;
  static constexpr int kLanes = 16;

  // y[i] = function(i, n): whole vectors with n = 16, then a part. Partial loads fill with zeros.
  template <class Function>
  static void each(int64_t count, float* y, Function function) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) Ops::store(y + i, function(i, kLanes));
    if (i < count) {
      const int n = static_cast<int>(count - i);
      Ops::store_part(y + i, function(i, n), n);
    }
  }
  static F load(const float* p, int n, float fill = 0.0F) {
    return n == kLanes ? Ops::load(p) : Ops::load_part(p, n, fill);
  }

  // 1 / sqrt(mean of squares + eps). Lanes without a value add 0 * 0 to a sum that is never -0: no change.
  static float inverse_rms(const float* x, float eps, int64_t count) {
    F lanes = Ops::set(0.0F);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const F v = Ops::load(x + i);
      lanes = Ops::fma(v, v, lanes);
    }
    if (i < count) {
      const F v = Ops::load_part(x + i, static_cast<int>(count - i), 0.0F);
      lanes = Ops::fma(v, v, lanes);
    }
    const float mean = Ops::tree16(lanes) / static_cast<float>(count);
    return 1.0F / std::sqrt(mean + eps);
  }

  static void rms_norm(const float* x, const float* weight, float eps, int64_t group, int64_t groups, float* y) {
    for (int64_t g = 0; g < groups; ++g, x += group, y += group) {
      const F r = Ops::set(inverse_rms(x, eps, group));
      if (weight == nullptr) {
        each(group, y, [&](int64_t i, int n) { return Ops::mul(load(x + i, n), r); });
      } else {
        each(group, y, [&](int64_t i, int n) { return Ops::mul(Ops::mul(load(x + i, n), r), load(weight + i, n)); });
      }
    }
  }

  static void add_rms_norm(const float* x, const float* r, const float* weight, float eps, int64_t count, float* sum,
                           float* y) {
    add(x, r, count, sum);
    rms_norm(sum, weight, eps, count, 1, y);
  }

  static void rms_norm_add(const float* x, const float* r, const float* weight, float eps, int64_t count, float* y) {
    const F factor = Ops::set(inverse_rms(x, eps, count));
    if (weight == nullptr) {
      each(count, y, [&](int64_t i, int n) { return Ops::add(load(r + i, n), Ops::mul(load(x + i, n), factor)); });
      return;
    }
    each(count, y, [&](int64_t i, int n) {
      return Ops::add(load(r + i, n), Ops::mul(Ops::mul(load(x + i, n), factor), load(weight + i, n)));
    });
  }

  static F rotate_first(F x0, F x1, F c, F s) { return Ops::fma(x0, c, Ops::neg(Ops::mul(x1, s))); }
  static F rotate_second(F x0, F x1, F c, F s) { return Ops::fma(x0, s, Ops::mul(x1, c)); }

  static void rope(float* x, const float* cosines, const float* sines, int32_t pairs, RopePairing pairing,
                   int32_t heads, int32_t head_dim) {
    for (int32_t h = 0; h < heads; ++h, x += head_dim) {
      if (pairing == RopePairing::half_split) {
        for (int32_t i = 0; i < pairs; i += kLanes) {
          const int n = pairs - i < kLanes ? pairs - i : kLanes;
          const F x0 = load(x + i, n), x1 = load(x + pairs + i, n), c = load(cosines + i, n), s = load(sines + i, n);
          Ops::store_part(x + i, rotate_first(x0, x1, c, s), n);
          Ops::store_part(x + pairs + i, rotate_second(x0, x1, c, s), n);
        }
        continue;
      }
      int32_t i = 0;
      for (; i + kLanes <= pairs; i += kLanes) rotate_pairs(x + 2 * i, cosines + i, sines + i);
      if (i < pairs) {
        const int n = pairs - i;
        float values[2 * kLanes] = {}, c[kLanes] = {}, s[kLanes] = {};
        for (int j = 0; j < n; ++j) {
          values[2 * j] = x[2 * (i + j)];
          values[2 * j + 1] = x[2 * (i + j) + 1];
          c[j] = cosines[i + j];
          s[j] = sines[i + j];
        }
        rotate_pairs(values, c, s);
        for (int j = 0; j < 2 * n; ++j) x[2 * i + j] = values[j];
      }
    }
  }
  static void rotate_pairs(float* x, const float* cosines, const float* sines) {
    F x0, x1;
    Ops::load_pairs(x, x0, x1);
    const F c = Ops::load(cosines), s = Ops::load(sines);
    Ops::store_pairs(x, rotate_first(x0, x1, c, s), rotate_second(x0, x1, c, s));
  }

  static void add(const float* a, const float* b, int64_t count, float* y) {
    each(count, y, [&](int64_t i, int n) { return Ops::add(load(a + i, n), load(b + i, n)); });
  }
  static void scale(const float* x, float factor, int64_t count, float* y) {
    const F f = Ops::set(factor);
    each(count, y, [&](int64_t i, int n) { return Ops::mul(load(x + i, n), f); });
  }
  static void multiply(const float* x, const float* factors, int64_t count, float* y) {
    each(count, y, [&](int64_t i, int n) { return Ops::mul(load(x + i, n), load(factors + i, n)); });
  }
  static void softcap(const float* x, float cap, int64_t count, float* y) {
    const F c = Ops::set(cap);
    each(count, y, [&](int64_t i, int n) { return Ops::mul(c, numerics::tanh<Ops>(Ops::div(load(x + i, n), c))); });
  }
  static void gate(Activation activation, const float* gate, const float* up, int64_t count, float* y) {
    if (activation == Activation::clamped_swiglu) {
      each(count, y,
           [&](int64_t i, int n) { return numerics::clamped_swiglu<Ops>(load(gate + i, n), load(up + i, n)); });
    } else if (activation == Activation::silu) {
      each(count, y,
           [&](int64_t i, int n) { return Ops::mul(numerics::silu<Ops>(load(gate + i, n)), load(up + i, n)); });
    } else {
      each(count, y,
           [&](int64_t i, int n) { return Ops::mul(numerics::gelu_tanh<Ops>(load(gate + i, n)), load(up + i, n)); });
    }
  }

  static constexpr float kLowest = -std::numeric_limits<float>::infinity();

  static float largest_number(const float* x, int64_t count) {
    F m[4];
    for (F& part : m) part = Ops::set(kLowest);
    int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) m[j] = Ops::max_number(Ops::load(x + i + j * kLanes), m[j]);
    }
    for (; i + kLanes <= count; i += kLanes) m[0] = Ops::max_number(Ops::load(x + i), m[0]);
    if (i < count) m[1] = Ops::max_number(Ops::load_part(x + i, static_cast<int>(count - i), kLowest), m[1]);
    return Ops::max16(Ops::max_number(Ops::max_number(m[0], m[1]), Ops::max_number(m[2], m[3])));
  }

  // The lowest index of a value equal to `wanted`, or `count`.
  static int64_t index_of(const float* x, float wanted, int64_t count) {
    const F w = Ops::set(wanted);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const int lane = Ops::first_equal(Ops::load(x + i), w);
      if (lane < kLanes) return i + lane;
    }
    while (i < count && !(x[i] == wanted)) ++i;
    return i;
  }

  static int64_t argmax(const float* x, int64_t count) {
    const int64_t index = index_of(x, largest_number(x, count), count);
    return index < count ? index : 0;
  }

  static void softmax(float* x, int64_t count) {
    const F m = Ops::set(largest_number(x, count));
    const F zero = Ops::set(0.0F);
    F lanes = zero;
    each(count, x, [&](int64_t i, int n) {
      const F e = numerics::exp<Ops>(Ops::sub(load(x + i, n), m));
      // A lane without a value adds +0 to a sum that is never -0: no change.
      lanes = Ops::add(lanes, n == kLanes ? e : Ops::within(e, zero, 0, n));
      return e;
    });
    scale(x, 1.0F / Ops::tree16(lanes), count, x);
  }

  static void route(const RouteRule& rule, float* logits, int32_t* experts, float* weights) {
    constexpr float kTaken = -1.0F;  // below every probability
    softmax(logits, rule.experts);
    F lanes = Ops::set(0.0F);
    for (int32_t slot = 0; slot < rule.top_k; ++slot) {
      const float best = largest_number(logits, rule.experts);
      int64_t expert = 0;
      if (best > kTaken) {
        expert = index_of(logits, best, rule.experts);
      } else {
        while (logits[expert] == logits[expert]) ++expert;  // only NaN is left
      }
      experts[slot] = static_cast<int32_t>(expert);
      weights[slot] = logits[expert];
      logits[expert] = kTaken;
    }
    for (int32_t slot = 0; slot < rule.top_k; slot += kLanes) {
      lanes = Ops::add(lanes, load(weights + slot, rule.top_k - slot < kLanes ? rule.top_k - slot : kLanes));
    }
    const float sum = Ops::tree16(lanes);
    for (int32_t slot = 0; slot < rule.top_k; ++slot) {
      if (rule.renormalise) weights[slot] = weights[slot] / sum;
      if (rule.per_expert_scale != nullptr) weights[slot] = weights[slot] * rule.per_expert_scale[experts[slot]];
    }
  }

  // Four vectors of sums at a time: enough chains to hide the latency of fma, few enough to stay in registers.
  static void mix(const float* table, const int32_t* indices, const float* weights, int64_t count, int64_t width,
                  float* y) {
    int64_t i = 0;
    for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
      F a = Ops::load(y + i), b = Ops::load(y + i + kLanes);
      F c = Ops::load(y + i + 2 * kLanes), d = Ops::load(y + i + 3 * kLanes);
      for (int64_t k = 0; k < count; ++k) {
        const F w = Ops::set(weights[k]);
        const float* x = table + indices[k] * width + i;
        a = Ops::fma(w, Ops::load(x), a);
        b = Ops::fma(w, Ops::load(x + kLanes), b);
        c = Ops::fma(w, Ops::load(x + 2 * kLanes), c);
        d = Ops::fma(w, Ops::load(x + 3 * kLanes), d);
      }
      Ops::store(y + i, a);
      Ops::store(y + i + kLanes, b);
      Ops::store(y + i + 2 * kLanes, c);
      Ops::store(y + i + 3 * kLanes, d);
    }
    for (; i < width; i += kLanes) {
      const int n = width - i < kLanes ? static_cast<int>(width - i) : kLanes;
      F a = load(y + i, n);
      for (int64_t k = 0; k < count; ++k)
        a = Ops::fma(Ops::set(weights[k]), load(table + indices[k] * width + i, n), a);
      Ops::store_part(y + i, a, n);
    }
  }

  static constexpr ElementwiseKernels table() {
    return {rms_norm, add_rms_norm, rms_norm_add, rope,  add, scale, multiply,
            softcap,  gate,         softmax,      route, mix, argmax};
  }
};

}  // namespace cohort::cpu
