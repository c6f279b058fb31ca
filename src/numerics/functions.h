// The one definition of every transcendental function (docs/NUMERICS.md, rule 6), written once over an `Ops` policy and
// compiled per instruction set: Ops = ScalarOps here; SIMD and CUDA policies live with their kernels and provide the
// same operations on their vector type. Nothing in here may be reordered.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define COHORT_HD __host__ __device__
#else
#define COHORT_HD
#endif

namespace cohort::numerics {

// exp: beyond these the result is +inf or 0; inside them 2^n is a normal number, so the last multiplication is exact.
inline constexpr float kExpMax = 88.3762626647949F;
inline constexpr float kExpMin = -87.3365478515625F;
inline constexpr float kLog2E = 1.44269504088896341F;
// ln 2 in two parts; the first has few enough bits for n * part to be exact.
inline constexpr float kLn2High = 0.693359375F;
inline constexpr float kLn2Low = -2.12194440e-4F;
// Minimax polynomial for (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2]; Cephes expf coefficients.
inline constexpr float kExpPoly[6] = {1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                                      4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
inline constexpr float kSqrt2OverPi = 0.7978845608028654F;
inline constexpr float kGeluCubic = 0.044715F;

/// The scalar policy: plain f32.
struct ScalarOps {
  using F = float;
  COHORT_HD static F set(float x) { return x; }
  COHORT_HD static F add(F a, F b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
  }
  COHORT_HD static F sub(F a, F b) {
#if defined(__CUDA_ARCH__)
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
  }
  COHORT_HD static F mul(F a, F b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
  }
  COHORT_HD static F div(F a, F b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
  }
  COHORT_HD static F fma(F a, F b, F c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return std::fma(a, b, c);
#endif
  }
  COHORT_HD static F rint(F a) {
#if defined(__CUDA_ARCH__)
    return rintf(a);
#else
    return std::nearbyint(a);
#endif
  }
  /// 2^n for an integral n in [-126, 127].
  COHORT_HD static F exp2_int(F n) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    return std::bit_cast<float>(bits);
#endif
  }
  /// exp is evaluated on the clamped x (NaN clamps to kExpMin); finish_exp then puts 0, +inf and NaN where they belong.
  COHORT_HD static F clamp_exp(F x) {
    return x >= kExpMin ? (x <= kExpMax ? x : kExpMax) : kExpMin;
  }
  COHORT_HD static F finish_exp(F x, F inside) {
    if (x != x) return x;
    if (x < kExpMin) return 0.0F;
    return x > kExpMax ? infinity() : inside;
  }
  /// min and max that keep NaN in x: limit > 0.
  COHORT_HD static F at_most(F x, F limit) {
    return x > limit ? limit : x;
  }
  COHORT_HD static F at_least(F x, F limit) {
    return x < limit ? limit : x;
  }
  COHORT_HD static F infinity() {
#if defined(__CUDA_ARCH__)
    return __int_as_float(0x7f800000);
#else
    return std::bit_cast<float>(0x7f800000U);
#endif
  }
};

template <class Ops>
COHORT_HD inline typename Ops::F exp(typename Ops::F x) {
  using F = typename Ops::F;
  const F clamped = Ops::clamp_exp(x);
  const F n = Ops::rint(Ops::mul(clamped, Ops::set(kLog2E)));
  F r = Ops::fma(n, Ops::set(-kLn2High), clamped);
  r = Ops::fma(n, Ops::set(-kLn2Low), r);
  // Scalars, because device code cannot index a host array.
  constexpr float c0 = kExpPoly[0], c1 = kExpPoly[1], c2 = kExpPoly[2];
  constexpr float c3 = kExpPoly[3], c4 = kExpPoly[4], c5 = kExpPoly[5];
  F p = Ops::set(c0);
  p = Ops::fma(p, r, Ops::set(c1));
  p = Ops::fma(p, r, Ops::set(c2));
  p = Ops::fma(p, r, Ops::set(c3));
  p = Ops::fma(p, r, Ops::set(c4));
  p = Ops::fma(p, r, Ops::set(c5));
  const F y = Ops::add(Ops::fma(p, Ops::mul(r, r), r), Ops::set(1.0F));
  return Ops::finish_exp(x, Ops::mul(y, Ops::exp2_int(n)));
}

template <class Ops>
COHORT_HD inline typename Ops::F sigmoid(typename Ops::F x) {
  const auto one = Ops::set(1.0F);
  return Ops::div(one, Ops::add(one, exp<Ops>(Ops::mul(x, Ops::set(-1.0F)))));
}

template <class Ops>
COHORT_HD inline typename Ops::F silu(typename Ops::F x) {
  return Ops::div(x, Ops::add(Ops::set(1.0F), exp<Ops>(Ops::mul(x, Ops::set(-1.0F)))));
}

/// x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) * (x + 0.044715 x^3), as x / (1 + exp(-2u)).
template <class Ops>
COHORT_HD inline typename Ops::F gelu_tanh(typename Ops::F x) {
  const auto cubic = Ops::mul(Ops::mul(x, x), x);
  const auto u = Ops::mul(Ops::set(kSqrt2OverPi), Ops::fma(Ops::set(kGeluCubic), cubic, x));
  return Ops::div(x, Ops::add(Ops::set(1.0F), exp<Ops>(Ops::mul(u, Ops::set(-2.0F)))));
}

// OpenAI's gpt-oss: how steep its sigmoid is, and where gate and up are cut.
inline constexpr float kSwigluAlpha = 1.702F;
inline constexpr float kSwigluLimit = 7.0F;

/// g / (1 + exp(-alpha g)) * (u + 1) with g = min(gate, limit), u = up between -limit and limit; NaN stays NaN.
template <class Ops>
COHORT_HD inline typename Ops::F clamped_swiglu(typename Ops::F gate, typename Ops::F up) {
  const auto one = Ops::set(1.0F);
  const auto g = Ops::at_most(gate, Ops::set(kSwigluLimit));
  const auto u = Ops::at_least(Ops::at_most(up, Ops::set(kSwigluLimit)), Ops::set(-kSwigluLimit));
  const auto swish = Ops::div(g, Ops::add(one, exp<Ops>(Ops::mul(g, Ops::set(-kSwigluAlpha)))));
  return Ops::mul(swish, Ops::add(u, one));
}

/// 1 - 2 / (1 + exp(2x)).
template <class Ops>
COHORT_HD inline typename Ops::F tanh(typename Ops::F x) {
  const auto one = Ops::set(1.0F);
  const auto two = Ops::set(2.0F);
  return Ops::sub(one, Ops::div(two, Ops::add(one, exp<Ops>(Ops::mul(x, two)))));
}

// Minimax polynomial for (log(1 + r) - r + r^2 / 2) / r^3 on [sqrt(1/2) - 1, sqrt(2) - 1]; Cephes logf coefficients.
inline constexpr float kLogPoly[9] = {7.0376836292e-2F,  -1.1514610310e-1F, 1.1676998740e-1F,
                                      -1.2420140846e-1F, 1.4249322787e-1F,  -1.6668057665e-1F,
                                      2.0000714765e-1F,  -2.4999993993e-1F, 3.3333331174e-1F};
inline constexpr float kSqrtHalf = 0.70710678118654752F;

/// The natural logarithm of a positive normal number.
inline float log(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  auto exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x007fffffU) | 0x3f000000U);  // in [1/2, 1)
  if (m < kSqrtHalf) {
    m = m + m;
    exponent = exponent - 1.0F;
  }
  const float r = m - 1.0F;
  float p = kLogPoly[0];
  for (int i = 1; i < 9; ++i) p = std::fma(p, r, kLogPoly[i]);
  const float z = r * r;
  float y = r * z * p;
  y = std::fma(exponent, kLn2Low, y);
  y = std::fma(-0.5F, z, y);
  return std::fma(exponent, kLn2High, r + y);
}

inline float exp(float x) {
  return exp<ScalarOps>(x);
}
inline float sigmoid(float x) {
  return sigmoid<ScalarOps>(x);
}
inline float silu(float x) {
  return silu<ScalarOps>(x);
}
inline float gelu_tanh(float x) {
  return gelu_tanh<ScalarOps>(x);
}
inline float clamped_swiglu(float gate, float up) {
  return clamped_swiglu<ScalarOps>(gate, up);
}
inline float tanh(float x) {
  return tanh<ScalarOps>(x);
}

}  // namespace cohort::numerics
