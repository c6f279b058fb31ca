// 16 lanes in plain C++: the Ops policy (numerics/functions.h) of machines without an instruction set of their own, and
// the definition of what every policy offers. All policies have 16 lanes, because docs/NUMERICS.md sums in 16 lanes;
// narrower registers come in groups.
//
// Beyond the arithmetic of functions.h a policy has
//   load, load_part(p, n, fill), store, store_part(p, v, n)   the first n lanes in memory, the others = fill
//   load/store of cached values (numerics/cached.h) and convert_part
//   within(v, other, lo, hi)   lanes lo <= i < hi of v, the others of `other`
//   max_number(v, m)           v > m ? v : m, so a NaN in v is passed over
//   at_most(v, m), at_least    v > m ? m : v, so a NaN in v stays one; v < m ? m : v
//   tree16, max16              over the lanes
//   first_equal(v, x)          the lowest lane equal to x, or 16
//   pairs                      interleaved (even, odd) values as two vectors and back
// and says how many vectors of accumulators its registers hold (kTileRows, kTileVectors).
#pragma once

#include <cstring>

#include "numerics/cached.h"
#include "numerics/functions.h"

namespace cohort::numerics {

struct GenericOps {
  struct F {
    float lane[16];
  };
  static constexpr int kTileRows = 4;     // rows of the largest tile of attention
  static constexpr int kTileVectors = 4;  // rows * vectors of any tile

  template <class Function>
  static F make(Function function) {
    F r;
    for (int i = 0; i < 16; ++i) r.lane[i] = function(i);
    return r;
  }
  static F set(float x) {
    return make([&](int) { return x; });
  }
  static F add(const F& a, const F& b) {
    return make([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(const F& a, const F& b) {
    return make([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F mul(const F& a, const F& b) {
    return make([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F div(const F& a, const F& b) {
    return make([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static F fma(const F& a, const F& b, const F& c) {
    return make([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static F neg(const F& a) {
    return make([&](int i) { return -a.lane[i]; });
  }
  static F rint(const F& a) {
    return make([&](int i) { return ScalarOps::rint(a.lane[i]); });
  }
  static F exp2_int(const F& n) {
    return make([&](int i) { return ScalarOps::exp2_int(n.lane[i]); });
  }
  static F clamp_exp(const F& x) {
    return make([&](int i) { return ScalarOps::clamp_exp(x.lane[i]); });
  }
  static F finish_exp(const F& x, const F& inside) {
    return make([&](int i) { return ScalarOps::finish_exp(x.lane[i], inside.lane[i]); });
  }

  static F at_most(const F& x, const F& limit) {
    return make([&](int i) { return ScalarOps::at_most(x.lane[i], limit.lane[i]); });
  }
  static F at_least(const F& x, const F& limit) {
    return make([&](int i) { return ScalarOps::at_least(x.lane[i], limit.lane[i]); });
  }

  static F load(const float* p) {
    return make([&](int i) { return p[i]; });
  }
  static F load(const Half* p) {
    return make([&](int i) { return f16_to_f32(p[i].bits); });
  }
  static F load(const Brain* p) {
    return make([&](int i) { return bf16_to_f32(p[i].bits); });
  }
  static F load(const Eight* p) {
    return make([&](int i) { return static_cast<float>(p[i].code); });
  }
  static F load_part(const float* p, int n, float fill) {
    return make([&](int i) { return i < n ? p[i] : fill; });
  }
  static void store(float* p, const F& v) { std::memcpy(p, v.lane, sizeof v.lane); }
  static void store(Half* p, const F& v) {
    for (int i = 0; i < 16; ++i) p[i].bits = f32_to_f16(v.lane[i]);
  }
  static void store(Brain* p, const F& v) {
    for (int i = 0; i < 16; ++i) p[i].bits = f32_to_bf16(v.lane[i]);
  }
  static void store_part(float* p, const F& v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v.lane[i];
  }
  static F within(const F& v, const F& other, int lo, int hi) {
    return make([&](int i) { return i >= lo && i < hi ? v.lane[i] : other.lane[i]; });
  }
  static F max_number(const F& v, const F& m) {
    return make([&](int i) { return v.lane[i] > m.lane[i] ? v.lane[i] : m.lane[i]; });
  }
  static float tree16(F v) {
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) v.lane[j] = v.lane[j] + v.lane[j + half];
    }
    return v.lane[0];
  }
  static float max16(const F& v) {
    float m = v.lane[0];
    for (int i = 1; i < 16; ++i) m = v.lane[i] > m ? v.lane[i] : m;
    return m;
  }
  static int first_equal(const F& v, const F& x) {
    int i = 0;
    while (i < 16 && !(v.lane[i] == x.lane[i])) ++i;
    return i;
  }
  static void load_pairs(const float* p, F& even, F& odd) {
    even = make([&](int i) { return p[2 * i]; });
    odd = make([&](int i) { return p[2 * i + 1]; });
  }
  static void store_pairs(float* p, const F& even, const F& odd) {
    for (int i = 0; i < 16; ++i) {
      p[2 * i] = even.lane[i];
      p[2 * i + 1] = odd.lane[i];
    }
  }
  static void prefetch(const void*) {}
};

}  // namespace cohort::numerics
