#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/test_data.h"
#include "quant/types.h"

namespace cohort {
namespace {

using namespace quant_test;

std::vector<std::byte> encode(TensorType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(row_bytes(type, static_cast<int64_t>(values.size())));
  const auto result = encode_row(type, values.data(), bytes.data(), static_cast<int64_t>(values.size()));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return bytes;
}

TEST(encode, bytes_equal_gguf_where_it_has_a_quantiser) {
  size_t cases = 0;
  for (const auto& fields : read_fixture("encode.txt")) {
    const TypeInfo* info = find_type(fields[0]);
    ASSERT_NE(info, nullptr) << fields[0];
    const auto values = random_row(std::stoi(fields[1]), std::stoi(fields[2]), std::stoul(fields[3]));
    EXPECT_EQ(digest_bytes(encode(info->type, values)), from_hex(fields[4]))
        << info->name << " mode " << fields[1] << " exponent " << fields[2];
    ++cases;
  }
  EXPECT_GE(cases, 56u);
}

struct Quality {
  std::string_view type;
  double relative_error;  // root mean square, relative to that of the values, on a bell curve
  uint64_t digest;        // of the bytes: the search takes the same decisions on every machine and compiler
};

std::vector<float> round_trip(TensorType type, const std::vector<float>& values, const float* importance = nullptr) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(row_bytes(type, count));
  EXPECT_TRUE(encode_row(type, values.data(), bytes.data(), count, importance).has_value());
  std::vector<float> decoded(values.size());
  decode_row(type, bytes.data(), decoded.data(), count);
  return decoded;
}

/// sum weight (a-b)^2 / sum weight a^2; without weights all are 1.
double relative_square(const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& weights = {}) {
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    error += weight * std::pow(double{a[i]} - b[i], 2);
    power += weight * std::pow(double{a[i]}, 2);
  }
  return error / power;
}

// The bound is what llama.cpp's quantiser reaches on the same values, without importance; for IQ2_XXS, IQ2_XS and
// IQ1_S, for which it demands one, a little more than our own error.
constexpr Quality qualities[] = {
    {"q2_k", 0.2856, 0x7214ff87fd846a1f},    {"q3_k", 0.14588, 0xf2635501c73f1799},
    {"q4_k", 0.06846, 0x23efa99d9abe48cd},   {"q5_k", 0.03479, 0x7a1833880d996fe9},
    {"q6_k", 0.01709, 0x44c17cfb6b19c7f8},   {"q1_0", 0.58767, 0xc33f80b6fdf61e37},
    {"q2_0", 0.6915, 0x9d8cc1355eb54a13},    {"iq4_nl", 0.07381, 0x8b7e3917b4b11811},
    {"iq4_xs", 0.07427, 0x9c52c845d0ce6a78}, {"nvfp4", 0.09566, 0xe2ee181d3aac4e5a},
    {"iq2_xxs", 0.34, 0x341dc6e9c4eb4e74},   {"iq2_xs", 0.295, 0xb3b8d3b2cfb7c3f9},
    {"iq2_s", 0.25588, 0x3ee294cdf26133c4},  {"iq3_xxs", 0.20846, 0x661d63aedae53257},
    {"iq3_s", 0.15943, 0xc4ecd40d3644dc14},  {"iq1_s", 0.47, 0xaaa27dac02842c6c},
    {"iq1_m", 0.57852, 0xc64abedf90edf531},
};

TEST(encode, searches_reach_their_quality_everywhere_alike) {
  for (const Quality& expected : qualities) {
    const TensorType type = find_type(expected.type)->type;
    const auto values = random_row(0, -17, 1 << 14);
    EXPECT_LT(std::sqrt(relative_square(values, round_trip(type, values))), expected.relative_error) << expected.type;
    EXPECT_EQ(digest_bytes(encode(type, values)), expected.digest) << expected.type;
  }
}

TEST(encode, searches_follow_the_importance) {
  const auto values = random_row(0, -17, 1 << 14);
  auto importance = random_row(2, -17, 1 << 14);
  for (float& weight : importance) {
    weight *= weight * weight;
  }
  for (const TypeInfo& info : all_types()) {
    // Q8_0 is precise enough without, and ternary formats are for weights that already have three values.
    if (!info.quantised || info.type == TensorType::q8_0 || info.type == TensorType::tq1_0 ||
        info.type == TensorType::tq2_0) {
      continue;
    }
    const TensorType type = info.type;
    const double plain = relative_square(values, round_trip(type, values), importance);
    const double weighted = relative_square(values, round_trip(type, values, importance.data()), importance);
    EXPECT_LT(weighted, 0.99 * plain) << info.name;
  }
  std::vector<float> zeros(values.size());
  EXPECT_EQ(round_trip(TensorType::q4_k, values, zeros.data()), round_trip(TensorType::q4_k, values));
  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    importance[99] = bad;
    std::vector<std::byte> bytes(1 << 14);
    const auto result = encode_row(TensorType::q4_k, values.data(), bytes.data(), 1 << 14, importance.data());
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message.find("position 99"), std::string::npos);
  }
}

// Formats with seven signs for eight values negate one where the number of negative values is odd. A large value of
// little importance is not that one: its error grows with its square, those of small values with their magnitude.
TEST(encode, odd_signs_do_not_turn_large_values) {
  for (const auto& [name, little] : {std::pair("iq2_xxs", 0.08f), {"iq2_xs", 0.08f}, {"iq3_xxs", 0.03f}}) {
    std::vector<float> values(256, 0.1f);
    std::vector<float> importance(256, 1.0f);
    for (size_t i = 0; i < values.size(); i += 8) {
      values[i] = -1.0f;
      importance[i] = little;
    }
    const auto decoded = round_trip(find_type(name)->type, values, importance.data());
    for (size_t i = 0; i < values.size(); i += 8) {
      ASSERT_LT(decoded[i], -0.5f) << name << ' ' << i;
    }
  }
}

/// Rows of one shape that searches could stumble over; every decoded value must stay within `slack` steps of the range.
TEST(encode, handles_degenerate_blocks) {
  const float huge = 65504;
  const auto make = [](auto value_of) {
    std::vector<float> values(512);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = value_of(static_cast<int>(i));
    }
    return values;
  };
  const std::vector<float> rows[] = {
      make([](int) { return 0.0f; }),
      make([](int) { return -0.0f; }),
      make([](int) { return 3.0f; }),
      make([](int) { return -3.0f; }),
      make([=](int) { return huge; }),
      make([=](int i) { return i % 2 == 0 ? huge : -huge; }),
      make([=](int i) { return i == 300 ? huge : 0.0f; }),
      make([](int i) { return std::ldexp(1.0f, -149 + i % 3); }),
      make([](int i) { return std::ldexp(i % 2 == 0 ? 1.0f : -1.5f, -i % 140); }),
      make([](int i) { return 1.0f + std::ldexp(static_cast<float>(i % 7), -20); }),
      make([](int i) { return i % 32 == 0 ? -1.0f : 0.0f; }),
      make([](int i) { return i < 256 ? 1e-8f * static_cast<float>(i) : static_cast<float>(i); }),
  };
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised || !has_encoder(info.type)) {
      continue;
    }
    for (const auto& values : rows) {
      const auto decoded = round_trip(info.type, values);
      float largest = 0;
      for (const float value : values) {
        largest = std::max(largest, std::fabs(value));
      }
      // The grids of IQ1 to IQ3 hold few flat entries.
      const bool grid = info.name.starts_with("iq") && !info.name.starts_with("iq4");
      for (const float value : decoded) {
        ASSERT_LE(std::fabs(value), (grid ? 2.0f : 1.5f) * largest + 1e-7f) << info.name << " row " << &values - rows;
      }
      if (values[0] == values[1] && std::fabs(values[0]) == 3.0f) {  // a row of one value survives in every type
        EXPECT_LT(relative_square(values, decoded), grid ? 0.2 : 1e-3) << info.name;
      }
    }
  }
}

TEST(encode, refuses_what_a_type_cannot_hold) {
  std::vector<float> values(256, 1.0f);
  std::vector<std::byte> bytes(4096);
  for (const TypeInfo& info : all_types()) {
    EXPECT_EQ(has_encoder(info.type), info.weight) << info.name;
    const auto run = [&](int64_t count) { return encode_row(info.type, values.data(), bytes.data(), count); };
    if (!has_encoder(info.type)) {
      EXPECT_EQ(run(256).error().code, ErrorCode::unsupported) << info.name;
      continue;
    }
    EXPECT_TRUE(run(256).has_value()) << info.name;
    EXPECT_TRUE(run(0).has_value()) << info.name;
    if (!info.quantised) {
      continue;
    }
    EXPECT_EQ(run(info.block_values - 1).error().code, ErrorCode::invalid_argument) << info.name;
    EXPECT_NE(run(info.block_values + 1).error().message.find(info.name), std::string::npos) << info.name;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e6f}) {
      values[17] = bad;
      const auto result = run(256);
      ASSERT_FALSE(result.has_value()) << info.name << ' ' << bad;
      EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
      EXPECT_NE(result.error().message.find("17"), std::string::npos) << result.error().message;
      values[17] = 1.0f;
    }
  }
  values[3] = 1e5f;
  EXPECT_FALSE(encode_row(TensorType::f16, values.data(), bytes.data(), 256).has_value());
  EXPECT_TRUE(encode_row(TensorType::bf16, values.data(), bytes.data(), 256).has_value());
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(encode_row(TensorType::f16, values.data(), bytes.data(), 256).has_value());
}

}  // namespace
}  // namespace cohort
