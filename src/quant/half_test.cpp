#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quant/test_data.h"

namespace cohort {
namespace {

using quant_test::stream;

static_assert(f16_to_f32(0x3c00) == 1.0f && f32_to_f16(-2.0f) == 0xc000 && f32_to_bf16(1.0f) == 0x3f80);

/// The value of a half by its definition, in double.
double half_value(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 0x3ff;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(half, every_half_converts_exactly_and_back) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if ((half & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (half & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(value), (half & 0x3ff) == 0);
      EXPECT_EQ(f32_to_f16(value), (half & 0x3ff) != 0 ? half | 0x200 : half);
    } else {
      ASSERT_EQ(static_cast<double>(value), half_value(half)) << bits;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0);
      ASSERT_EQ(f32_to_f16(value), half);
    }
  }
}

/// No half lies nearer than the result, and of two equally near ones the result is the even one.
void expect_nearest(float value) {
  const uint16_t half = f32_to_f16(value);
  ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << value;
  // 65536 takes the place of infinity in the definition of the rounding.
  const auto distance = [&](int magnitude) {
    return std::fabs(std::fabs(static_cast<double>(value)) - half_value(static_cast<uint16_t>(magnitude)));
  };
  const int magnitude = half & 0x7fff;
  if (magnitude > 0) {
    const double below = distance(magnitude - 1);
    ASSERT_TRUE(distance(magnitude) < below || (distance(magnitude) == below && magnitude % 2 == 0)) << value;
  }
  if (magnitude < 0x7c00) {
    const double above = distance(magnitude + 1);
    ASSERT_TRUE(distance(magnitude) < above || (distance(magnitude) == above && magnitude % 2 == 0)) << value;
  }
}

TEST(half, rounds_to_nearest_even) {
  for (int half = 0; half < 0x7c00; ++half) {  // around and at the middle of all neighbours
    const double low = half_value(static_cast<uint16_t>(half));
    const double high = half_value(static_cast<uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      expect_nearest(value);
      expect_nearest(-value);
    }
  }
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(stream(1, i));
    const float value = std::bit_cast<float>((bits & 0x80ffffffu) | (0x60u + (bits >> 24) % 0x30u) << 23);
    expect_nearest(value);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(half, bf16_rounds_to_nearest_even_and_keeps_nan) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(stream(2, i));
    const float value = std::bit_cast<float>(bits);
    const uint16_t rounded = f32_to_bf16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(rounded)));
      continue;
    }
    const uint32_t low = bits >> 16;
    const uint32_t rest = bits & 0xffff;
    const uint32_t expected = rest > 0x8000 || (rest == 0x8000 && low % 2 == 1) ? low + 1 : low;
    ASSERT_EQ(rounded, expected) << bits;
  }
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace cohort
