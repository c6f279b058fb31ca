#include <gtest/gtest.h>

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

TEST(encode, refuses_what_a_type_cannot_hold) {
  std::vector<float> values(256, 1.0f);
  std::vector<std::byte> bytes(4096);
  for (const TypeInfo& info : all_types()) {
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
