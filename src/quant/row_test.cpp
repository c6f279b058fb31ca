// Every type against the fixtures of the Python package `gguf`, and the views of one row against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "quant/test_data.h"
#include "quant/types.h"

namespace cohort {
namespace {

using namespace quant_test;

TEST(types, table_is_consistent) {
  for (const TypeInfo& info : all_types()) {
    EXPECT_EQ(&type_info(info.type), &info);
    EXPECT_EQ(find_type(info.name), &info);
    EXPECT_EQ(row_bytes(info.type, 3 * int64_t{info.block_values}), 3 * size_t{info.block_bytes});
    EXPECT_TRUE(!info.quantised || (info.weight && info.block_values % 32 == 0)) << info.name;
    if (info.type != TensorType::q2_0_g128) {
      EXPECT_EQ(find_type(static_cast<uint32_t>(info.type)), &info);
    }
  }
  EXPECT_EQ(find_type("Q4_K"), &type_info(TensorType::q4_k));
  EXPECT_EQ(find_type("q4_x"), nullptr);
  for (const uint32_t unknown : {4u, 5u, 9u, 31u, 43u, 1000u, static_cast<uint32_t>(TensorType::q2_0_g128)}) {
    EXPECT_EQ(find_type(unknown), nullptr) << unknown;
  }
}

TEST(types, layouts_that_share_an_id_are_told_apart_by_size) {
  EXPECT_EQ(find_type(42, 256, 72)->type, TensorType::q2_0);
  EXPECT_EQ(find_type(42, 256, 96)->type, TensorType::q2_0);
  EXPECT_EQ(find_type(42, 256, 68)->type, TensorType::q2_0_g128);
  EXPECT_EQ(find_type(42, 256, 60)->type, TensorType::q2_0);  // neither fits: the caller reports the newer one
  EXPECT_EQ(find_type(42, 192, 51)->type, TensorType::q2_0);  // no multiple of 128
  EXPECT_EQ(find_type(2, 256, 1)->type, TensorType::q4_0);
  EXPECT_EQ(find_type(5, 256, 1), nullptr);
}

TEST(decode, equals_gguf_on_random_blocks) {
  size_t types = 0;
  for (const auto& fields : read_fixture("decode.txt")) {
    if (fields[0] != "random") {
      continue;
    }
    ++types;
    const TypeInfo* info = find_type(fields[1]);
    ASSERT_NE(info, nullptr) << fields[1];
    const size_t blocks = std::stoul(fields[2]);
    const size_t chunk = std::stoul(fields[3]);
    ASSERT_EQ(fields.size(), 4 + blocks / chunk);
    const auto bytes = random_bytes(static_cast<uint64_t>(info->type), blocks * info->block_bytes);
    std::vector<float> values(chunk * info->block_values);
    for (size_t i = 0; i < blocks / chunk; ++i) {
      decode_row(info->type, bytes.data() + i * chunk * info->block_bytes, values.data(),
                 static_cast<int64_t>(values.size()));
      EXPECT_EQ(digest_floats(values), from_hex(fields[4 + i])) << info->name << " from block " << i * chunk;
    }
  }
  const auto weights = [](const TypeInfo& info) { return info.weight && info.type != TensorType::f32; };
  EXPECT_EQ(types, std::count_if(all_types().begin(), all_types().end(), weights));
}

TEST(decode, equals_gguf_on_special_scales) {
  std::map<std::string_view, int> blocks;
  for (const auto& fields : read_fixture("decode.txt")) {
    if (fields[0] != "special") {
      continue;
    }
    const TypeInfo* info = find_type(fields[1]);
    ASSERT_NE(info, nullptr) << fields[1];
    const auto bytes = bytes_from_hex(fields[2]);
    ASSERT_EQ(bytes.size(), info->block_bytes);
    std::vector<float> values(info->block_values);
    decode_row(info->type, bytes.data(), values.data(), info->block_values);
    EXPECT_EQ(digest_floats(values), from_hex(fields[3])) << info->name << ' ' << fields[2];
    ++blocks[info->name];
  }
  for (const TypeInfo& info : all_types()) {
    EXPECT_TRUE(!info.quantised || blocks[info.name] >= 8) << info.name;
  }
}

TEST(decode, f32_is_copied_bit_for_bit) {
  const auto bytes = random_bytes(7, 4096);
  std::vector<float> values(1024);
  decode_row(TensorType::f32, bytes.data(), values.data(), 1024);
  EXPECT_EQ(std::memcmp(values.data(), bytes.data(), bytes.size()), 0);
}

/// Random bytes, so scales of any size, sign and kind; most blocks are finite.
TEST(int_block, reproduces_decode_row) {
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised) {
      continue;
    }
    constexpr int64_t blocks = 512;
    const int64_t values = blocks * info.block_values;
    const auto bytes = random_bytes(99 + static_cast<uint64_t>(info.type), row_bytes(info.type, values));
    std::vector<float> decoded(static_cast<size_t>(values));
    decode_row(info.type, bytes.data(), decoded.data(), values);
    int64_t compared = 0;
    for (int64_t index = 0; index < values / 32; ++index) {
      IntBlock block;
      CodeBlock code;
      decode_int_block(info.type, bytes.data(), index, block);
      decode_code_block(info.type, bytes.data(), index, code);
      ASSERT_EQ(block.groups, info.type == TensorType::nvfp4 ? 2 : 1) << info.name;
      ASSERT_EQ(block.has_offset, code.has_offset);
      for (int j = 0; j < 32; ++j) {
        const int group = j / 16;
        const float scale = block.groups == 2 && group == 1 ? block.scale2 : block.scale;
        float value = scale * static_cast<float>(block.coeff[j]);
        float parts = code.d[group] * static_cast<float>(code.scale[group]) * static_cast<float>(code.code[j]);
        if (block.has_offset) {
          value += block.offset_scale * static_cast<float>(block.offset[j]);
          parts += code.d_offset * static_cast<float>(code.offset[group]);
        } else {
          ASSERT_EQ(block.offset[j], 0) << info.name;
        }
        const float expected = decoded[static_cast<size_t>(32 * index + j)];
        ASSERT_EQ(canonical_bits(parts), canonical_bits(expected)) << info.name << " block " << index << " value " << j;
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(value));
        } else {
          ASSERT_EQ(value, expected) << info.name << " block " << index << " value " << j;  // not the sign of a zero
        }
        compared += std::isfinite(expected) ? 1 : 0;
      }
    }
    EXPECT_GT(compared, values / 2) << info.name;
  }
}

/// Rule 3 needs |isum| and |msum| below 2^24 for any bytes and any int8 activations: bounded by the extremes of each
/// factor that occur in many random blocks (every code and every sub-scale of every type occurs).
TEST(int_block, sums_stay_exact_in_float) {
  for (const TypeInfo& info : all_types()) {
    if (!info.quantised) {
      continue;
    }
    constexpr int64_t blocks = 4096;
    const int64_t values = blocks * info.block_values;
    const auto bytes = random_bytes(5 + static_cast<uint64_t>(info.type), row_bytes(info.type, values));
    int64_t code_limit = 0;
    int64_t scale_limit = 0;
    int64_t offset_limit = 0;
    for (int64_t index = 0; index < values / 32; ++index) {
      CodeBlock block;
      decode_code_block(info.type, bytes.data(), index, block);
      for (int j = 0; j < 32; ++j) {
        code_limit = std::max<int64_t>(code_limit, std::abs(block.code[j]));
        scale_limit = std::max<int64_t>(scale_limit, std::abs(block.scale[j / 16]));
        offset_limit = std::max<int64_t>(offset_limit, std::abs(block.offset[j / 16]));
      }
    }
    EXPECT_GT(code_limit * scale_limit, 0) << info.name;
    EXPECT_LT(code_limit * scale_limit * 127 * 32, 1 << 24) << info.name;
    EXPECT_LT(offset_limit * 127 * 32, 1 << 24) << info.name;
  }
}

}  // namespace
}  // namespace cohort
