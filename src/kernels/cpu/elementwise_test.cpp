#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "kernels/cpu/test_values.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort::cpu {
namespace {

using test::same;
using test::Values;
using Vector = std::vector<float>;

const int64_t kSizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 704, 2048, 2816};

class Elementwise : public ::testing::TestWithParam<Isa> {
 protected:
  const ElementwiseKernels& kernels = elementwise_kernels(GetParam());
  // Calls check(kind, size, seed) for every kind of values and every size.
  void over_sizes(const std::function<void(Values, int64_t, uint32_t)>& check) {
    uint32_t seed = 0;
    for (Values kind : test::kAllValues) {
      for (int64_t size : kSizes) {
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " size " + std::to_string(size));
        check(kind, size, seed += 10);
        if (HasFatalFailure()) return;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(cpu, Elementwise, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

// A vector with guards on both sides, to see writes outside.
struct Guarded {
  explicit Guarded(const Vector& values) : all(values.size() + 64, 12345.0F) {
    std::copy(values.begin(), values.end(), all.begin() + 32);
  }
  explicit Guarded(size_t count) : Guarded(Vector(count)) {}
  float* data() { return all.data() + 32; }
  Vector inside() const { return {all.begin() + 32, all.end() - 32}; }
  bool intact() const {
    return std::all_of(all.begin(), all.begin() + 32, [](float x) { return x == 12345.0F; }) &&
           std::all_of(all.end() - 32, all.end(), [](float x) { return x == 12345.0F; });
  }
  Vector all;
};

TEST_P(Elementwise, rms_norms) {
  over_sizes([&](Values kind, int64_t n, uint32_t seed) {
    const Vector x = test::values(kind, 3 * n, seed), w = test::values(kind, n, seed + 1);
    const Vector r = test::values(kind, n, seed + 2);
    for (const float* weight : {w.data(), static_cast<const float*>(nullptr)}) {
      Vector expected(x.size());
      for (int64_t g = 0; g < 3; ++g) numerics::rms_norm(x.data() + g * n, weight, 1e-6F, n, expected.data() + g * n);
      Guarded y(x.size());
      kernels.rms_norm(x.data(), weight, 1e-6F, n, 3, y.data());
      ASSERT_TRUE(same(y.inside(), expected));
      ASSERT_TRUE(y.intact());
      Guarded in_place(x);
      kernels.rms_norm(in_place.data(), weight, 1e-6F, n, 3, in_place.data());
      ASSERT_TRUE(same(in_place.inside(), expected));

      Vector sum(r.size()), normed(r.size()), after(r.size());
      for (size_t i = 0; i < r.size(); ++i) sum[i] = x[i] + r[i];
      numerics::rms_norm(sum.data(), weight, 1e-5F, n, normed.data());
      Guarded s(r.size()), t(r.size());
      kernels.add_rms_norm(x.data(), r.data(), weight, 1e-5F, n, s.data(), t.data());
      ASSERT_TRUE(same(s.inside(), sum));
      ASSERT_TRUE(same(t.inside(), normed));
      ASSERT_TRUE(s.intact() && t.intact());

      numerics::rms_norm(x.data(), weight, 1e-5F, n, after.data());
      for (size_t i = 0; i < r.size(); ++i) after[i] = r[i] + after[i];
      Guarded u(r.size());
      kernels.rms_norm_add(x.data(), r.data(), weight, 1e-5F, n, u.data());
      ASSERT_TRUE(same(u.inside(), after));
      ASSERT_TRUE(u.intact());
    }
  });
}

TEST_P(Elementwise, rope_of_both_pairings) {
  over_sizes([&](Values kind, int64_t pairs, uint32_t seed) {
    if (pairs > 300) return;
    const int64_t heads = 3;
    for (int64_t head_dim : {2 * pairs, 2 * pairs + 5}) {
      const Vector x = test::values(kind, heads * head_dim, seed);
      const Vector c = test::values(Values::ordinary, pairs, seed + 1), s = test::values(kind, pairs, seed + 2);
      for (RopePairing pairing : {RopePairing::half_split, RopePairing::adjacent}) {
        Vector expected = x;
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < pairs; ++i) {
            const bool half = pairing == RopePairing::half_split;
            float& first = expected[static_cast<size_t>(h * head_dim + (half ? i : 2 * i))];
            float& second = expected[static_cast<size_t>(h * head_dim + (half ? i + pairs : 2 * i + 1))];
            const float x0 = first, x1 = second;
            const auto p = static_cast<size_t>(i);
            first = std::fma(x0, c[p], -(x1 * s[p]));
            second = std::fma(x0, s[p], x1 * c[p]);
          }
        }
        Guarded y(x);
        kernels.rope(y.data(), c.data(), s.data(), static_cast<int32_t>(pairs), pairing, static_cast<int32_t>(heads),
                     static_cast<int32_t>(head_dim));
        ASSERT_TRUE(same(y.inside(), expected));
        ASSERT_TRUE(y.intact());
      }
    }
  });
}

TEST_P(Elementwise, one_value_at_a_time) {
  over_sizes([&](Values kind, int64_t n, uint32_t seed) {
    const auto count = static_cast<size_t>(n);
    const Vector a = test::values(kind, n, seed), b = test::values(kind, n, seed + 1);
    const auto check = [&](const std::function<float(size_t)>& definition, const std::function<void(float*)>& kernel) {
      Vector expected(count);
      for (size_t i = 0; i < count; ++i) expected[i] = definition(i);
      Guarded y(count);
      kernel(y.data());
      ASSERT_TRUE(same(y.inside(), expected));
      ASSERT_TRUE(y.intact());
    };
    check([&](size_t i) { return a[i] + b[i]; }, [&](float* y) { kernels.add(a.data(), b.data(), n, y); });
    check([&](size_t i) { return a[i] * 0.3F; }, [&](float* y) { kernels.scale(a.data(), 0.3F, n, y); });
    check([&](size_t i) { return a[i] * b[i]; }, [&](float* y) { kernels.multiply(a.data(), b.data(), n, y); });
    for (float cap : {30.0F, 0.7F}) {
      check([&](size_t i) { return cap * numerics::tanh(a[i] / cap); },
            [&](float* y) { kernels.softcap(a.data(), cap, n, y); });
    }
    check([&](size_t i) { return numerics::silu(a[i]) * b[i]; },
          [&](float* y) { kernels.gate(Activation::silu, a.data(), b.data(), n, y); });
    check([&](size_t i) { return numerics::gelu_tanh(a[i]) * b[i]; },
          [&](float* y) { kernels.gate(Activation::gelu_tanh, a.data(), b.data(), n, y); });
    check([&](size_t i) { return numerics::clamped_swiglu(a[i], b[i]); },
          [&](float* y) { kernels.gate(Activation::clamped_swiglu, a.data(), b.data(), n, y); });
  });
}

// exp and what is built on it, over the whole range of floats (every 4099th).
TEST_P(Elementwise, functions_over_all_floats) {
  Vector x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float edge : {numerics::kExpMin, numerics::kExpMax, 0.0F, 44.0F, -43.7F}) {
    for (int i = 0, step = 1; i < 20; ++i, step = -step) {
      edge = std::nextafter(edge, static_cast<float>(step) * 1e30F * static_cast<float>(i % 3));
      x.insert(x.end(), {edge, -edge, edge / 2, -edge / 2});
    }
  }
  const Vector ones(x.size(), 1.0F);
  Vector y(x.size()), expected(x.size());
  const auto n = static_cast<int64_t>(x.size());
  kernels.gate(Activation::silu, x.data(), ones.data(), n, y.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = numerics::silu(x[i]);
  EXPECT_TRUE(same(y, expected));
  kernels.gate(Activation::gelu_tanh, x.data(), ones.data(), n, y.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = numerics::gelu_tanh(x[i]);
  EXPECT_TRUE(same(y, expected));
  kernels.gate(Activation::clamped_swiglu, x.data(), ones.data(), n, y.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = numerics::clamped_swiglu(x[i], 1.0F);
  EXPECT_TRUE(same(y, expected));
  kernels.gate(Activation::clamped_swiglu, ones.data(), x.data(), n, y.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = numerics::clamped_swiglu(1.0F, x[i]);
  EXPECT_TRUE(same(y, expected));
  kernels.softcap(x.data(), 1.0F, n, y.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = numerics::tanh(x[i]);
  EXPECT_TRUE(same(y, expected));
}

TEST_P(Elementwise, softmax) {
  over_sizes([&](Values kind, int64_t n, uint32_t seed) {
    Vector expected = test::values(kind, n, seed);
    Guarded y(expected);
    numerics::softmax(expected);
    kernels.softmax(y.data(), n);
    ASSERT_TRUE(same(y.inside(), expected));
    ASSERT_TRUE(y.intact());
  });
}

TEST_P(Elementwise, argmax) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  over_sizes([&](Values kind, int64_t n, uint32_t seed) {
    Vector x = test::values(kind, n, seed);
    for (float& value : x) {
      if (kind == Values::ordinary) value = std::floor(value);  // many ties
    }
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i) {
      const float value = x[static_cast<size_t>(i)];
      if (!std::isnan(value) && (best < 0 || value > x[static_cast<size_t>(best)])) best = i;
    }
    ASSERT_EQ(kernels.argmax(x.data(), n), std::max<int64_t>(best, 0));
  });
  for (int64_t n : kSizes) {
    Vector x(static_cast<size_t>(n), nan);
    EXPECT_EQ(kernels.argmax(x.data(), n), 0);
    x.back() = -infinity;
    EXPECT_EQ(kernels.argmax(x.data(), n), n - 1);
    std::fill(x.begin(), x.end(), -0.0F);
    x.back() = 0.0F;
    EXPECT_EQ(kernels.argmax(x.data(), n), 0);
  }
}

struct Routes {
  std::vector<int32_t> experts;
  Vector weights;
};

// Rule 5 by sorting.
Routes plain_route(const RouteRule& rule, Vector p) {
  numerics::softmax(p);
  std::vector<int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float pa = p[static_cast<size_t>(a)], pb = p[static_cast<size_t>(b)];
    return std::isnan(pb) ? !std::isnan(pa) : pa > pb;
  });
  order.resize(static_cast<size_t>(rule.top_k));
  Routes routes{order, {}};
  for (int32_t expert : order) routes.weights.push_back(p[static_cast<size_t>(expert)]);
  const float sum = numerics::sum16(routes.weights.data(), rule.top_k);
  for (size_t s = 0; s < order.size(); ++s) {
    if (rule.renormalise) routes.weights[s] /= sum;
    if (rule.per_expert_scale != nullptr) routes.weights[s] *= rule.per_expert_scale[order[s]];
  }
  return routes;
}

TEST_P(Elementwise, route) {
  uint32_t seed = 0;
  for (int32_t experts : {1, 2, 5, 16, 60, 64, 128, 160, 257, 512, 1000}) {
    for (int32_t top_k : {1, 2, 3, 8, 16, 20}) {
      if (top_k > experts) continue;
      const Vector scales = test::values(Values::ordinary, experts, ++seed);
      for (int variant = 0; variant < 12; ++variant) {
        RouteRule rule{experts, top_k, variant % 2 == 0, variant % 3 == 0 ? scales.data() : nullptr};
        Vector logits = test::values(test::kAllValues[variant % 3], experts, ++seed);
        if (variant == 4) std::fill(logits.begin(), logits.end(), 0.5F);           // all tie
        if (variant == 5) std::fill(logits.begin(), logits.end(), std::nanf(""));  // nothing to prefer
        if (variant >= 6) {
          for (float& x : logits) x = std::floor(x) * (variant >= 9 ? 100.0F : 1.0F);  // ties, and exact zeros
        }
        const Routes expected = plain_route(rule, logits);
        std::vector<int32_t> chosen(static_cast<size_t>(top_k), -1);
        Guarded weights(static_cast<size_t>(top_k));
        kernels.route(rule, logits.data(), chosen.data(), weights.data());
        ASSERT_EQ(chosen, expected.experts) << experts << " " << top_k << " " << variant;
        ASSERT_TRUE(same(weights.inside(), expected.weights)) << experts << " " << top_k << " " << variant;
        ASSERT_TRUE(weights.intact());
      }
    }
  }
}

}  // namespace
}  // namespace cohort::cpu
