#include "kernels/cuda/exp_below.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace cohort::cuda {
namespace {

void expect_equal(float x) {
  const float want = numerics::exp<numerics::ScalarOps>(x), got = exp_below(x);
  ASSERT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(got)) << x;
}

TEST(ExpBelow, GivesTheBitsOfExp) {
  // Every 509th number (a prime, so that low bits vary) from -0 to -infinity.
  for (uint32_t bits = 0x80000000U; bits <= 0xff800000U; bits += 509) expect_equal(std::bit_cast<float>(bits));
  // Closely around the least argument whose result is not 0, and around ties of the exponent's rounding.
  const auto around = [](float at) {
    float below = at, above = at;
    for (int i = 0; i < 200; ++i) {
      expect_equal(below);
      expect_equal(above);
      below = std::nextafter(below, -1e9F);
      above = std::nextafter(above, 0.0F);
    }
  };
  around(numerics::kExpMin);
  for (int half = 1; half < 250; half += 2)
    around(static_cast<float>(-0.5 * half / static_cast<double>(numerics::kLog2E)));
  expect_equal(0.0F);
  expect_equal(-std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(exp_below(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace cohort::cuda
