// The device layout, checked where there is no device: what pack_tile writes, read back the way formats.cuh reads it.
#include "kernels/cuda/pack.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/plans.h"
#include "quant/half.h"

namespace cohort::cuda {
namespace {

constexpr TensorType kTypes[] = {TensorType::q4_0, TensorType::q8_0, TensorType::q4_k,   TensorType::q6_k,
                                 TensorType::q5_1, TensorType::q2_k, TensorType::iq4_xs, TensorType::nvfp4};

/// Value k of row `row` of block b of a packed tile, as scale * code + offset, in double.
double read_back(Format format, const std::byte* tile, int b, int row, int k) {
  const FormatShape shape = shape_of(format);
  const std::byte* super = tile + b / shape.super_blocks * shape.super_bytes;
  const std::byte* block = super + b % shape.super_blocks * shape.block_bytes;
  const std::byte* super_scales = super + shape.super_blocks * shape.block_bytes;
  const int g = row % 8, high = row / 8, t = k % 16 / 4, j = k % 4, second = k / 16, lane = g * 4 + t,
            pair = g * 2 + high;
  const auto nibble = (static_cast<int>(block[lane * 8 + high * 4 + j]) >> (4 * second)) & 15;
  const auto half = [](const std::byte* at) { return static_cast<double>(f16_to_f32(load<uint16_t>(at))); };
  switch (format) {
    case Format::q4:
      return half(block + 256 + pair * 2) * (nibble < 8 ? nibble : nibble - 16);
    case Format::q8:
      return half(block + 512 + pair * 2) * load<int8_t>(block + lane * 16 + high * 4 + second * 8 + j);
    case Format::k4:
      return half(super_scales + pair * 4) * static_cast<int>(block[256 + pair * 2]) * nibble +
             half(super_scales + pair * 4 + 2) * static_cast<int>(block[257 + pair * 2]);
    case Format::k6: {
      const int upper = (static_cast<int>(block[256 + lane * 4 + j]) >> (2 * (high + 2 * second))) & 3;
      const int code = nibble | upper << 4;
      return half(super_scales + pair * 2) * load<int8_t>(block + 384 + pair * 2 + second) *
             (code < 32 ? code : code - 64);
    }
    case Format::generic:
      break;
  }
  const double d = static_cast<double>(load<float>(block + 512 + second * 64 + pair * 4));
  return d * load<int16_t>(block + 704 + pair * 8 + 2 * second) *
             load<int8_t>(block + lane * 16 + high * 4 + second * 8 + j) +
         static_cast<double>(load<float>(block + 640 + pair * 4)) * load<int16_t>(block + 708 + pair * 8 + 2 * second);
}

TEST(cuda_pack, every_value_can_be_read_back) {
  constexpr int64_t kRows = 21, kColumns = 512;
  for (TensorType type : kTypes) {
    std::vector<std::byte> bytes(row_bytes(type, kColumns) * kRows);
    for (size_t i = 0; i < bytes.size(); ++i) {
      // The top bit pair is kept off, so that no scale is infinite or NaN.
      bytes[i] = static_cast<std::byte>(philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {3, 4})[0] & 0x3f);
    }
    Weight weight{"w", type, 1, kRows, kColumns, {bytes.data()}};
    const Format format = format_of(type);
    const FormatShape shape = shape_of(format);
    std::vector<std::byte> tile(static_cast<size_t>(kColumns / 32 / shape.super_blocks * shape.super_bytes),
                                std::byte{77});
    for (int64_t t = 0; t < 2; ++t) {
      pack_tile(format, weight, 0, t, tile.data());
      std::vector<float> expected(kColumns);
      for (int row = 0; row < 16; ++row) {
        const bool inside = t * 16 + row < kRows;
        if (inside) {
          decode_row(type, bytes.data() + static_cast<size_t>(t * 16 + row) * row_bytes(type, kColumns),
                     expected.data(), kColumns);
        }
        for (int k = 0; k < kColumns; ++k) {
          const double value = read_back(format, tile.data(), k / 32, row, k % 32);
          const double wanted = inside ? static_cast<double>(expected[static_cast<size_t>(k)]) : 0.0;
          ASSERT_NEAR(value, wanted, 1e-6 * std::abs(wanted))
              << type_info(type).name << " row " << row << " value " << k;
        }
      }
    }
  }
}

TEST(cuda_pack, activations_of_a_lane_are_adjacent) {
  bool seen[32] = {};
  for (int k = 0; k < 32; ++k) {
    EXPECT_EQ(activation_slot(k) / 8, k % 16 / 4);
    seen[activation_slot(k)] = true;
  }
  for (bool slot : seen) EXPECT_TRUE(slot);
}

constexpr Format kAllFormats[] = {Format::q4, Format::q8, Format::k4, Format::k6, Format::generic};

bool with_sums(Format format) {
  return format == Format::k4 || format == Format::generic;
}

TEST(cuda_layout, tiles_cover_the_matrix_and_copies_are_aligned) {
  for (Format format : kAllFormats) {
    for (int blocks : {8, 16, 24, 32, 64, 128, 448}) {
      for (int64_t rows : {16, 96, 768, 5120}) {
        for (int matrices : {1, 2}) {
          const Geometry g = make_geometry(format, rows, blocks, matrices);
          EXPECT_GE(int64_t{g.tiles} * kTileRows, rows * matrices);
          EXPECT_EQ(g.segments * g.segment_blocks, g.blocks);
          EXPECT_EQ(g.tile_bytes % 16, 0);
        }
      }
      EXPECT_EQ(record_bytes(blocks, true) % 16, 0);
      EXPECT_GE(record_bytes(blocks, false), blocks * 36);
      // Eight columns by four lanes read 8 bytes each without a bank conflict.
      EXPECT_EQ(shared_record(blocks, with_sums(format)) % 64, 32);
    }
  }
}

TEST(cuda_plans, fit_the_memory_they_claim_and_cut_at_segments) {
  for (Format format : kAllFormats) {
    for (int blocks : {3, 8, 12, 16, 22, 24, 44, 64, 88}) {
      const FormatShape shape = shape_of(format);
      if (blocks % shape.super_blocks != 0) continue;
      const Geometry pair = make_geometry(format, 768, blocks, 2);
      const UpPlan up = up_plan(shape, with_sums(format), pair);
      if (up.slots == 0) {
        // An odd number of super-blocks leaves one warp all of K, whose chunk is too large: the tiled kernels run.
        EXPECT_TRUE(shape.super_blocks == 8 && blocks == 88);
      } else {
        EXPECT_LE(up.slots, kUpSlots);
        EXPECT_LE(up.total, up.per_sm == 2 ? kSharedTwo : kSharedOne);
        EXPECT_EQ(up.parts * up.cuts * up.chunk_segments, pair.segments);
        EXPECT_EQ(up.parts * up.cuts * up.chunk_bytes, pair.tile_bytes);
        EXPECT_EQ(up.chunk_bytes % 16, 0);
        EXPECT_EQ(up.columns, kUpWarps * up.slots * up.chunk_bytes);
        // A chunk is whole groups of blocks that share super-scales.
        EXPECT_EQ(pair.blocks / (up.parts * up.cuts) % shape.super_blocks, 0);
      }
      const Geometry g = make_geometry(format, 2048, blocks, 1);
      for (int routes : {0, 64, 256}) {
        const DownPlan down = down_plan(with_sums(format), g, routes, kSharedOne);
        ASSERT_GT(down.workers, 0) << blocks;
        EXPECT_LE(down.workers, kDownWarps);
        EXPECT_LE(down.total, kSharedOne);
        EXPECT_GE(down.slot_bytes, g.tile_bytes);
        EXPECT_EQ(down.columns, down.workers * down.slots * down.slot_bytes);
      }
      const StreamPlan stream = stream_plan(g, 1, 1, with_sums(format));
      EXPECT_LE(stream.total, kSharedOne);
      EXPECT_EQ(stream.parts * stream.aside, kStreamWarps);
      EXPECT_LE(g.segments / stream.parts, 2);
    }
  }
}

TEST(cuda_backend, says_why_there_is_no_device) {
  const auto device = describe_cuda_device(0);
  if (device) GTEST_SKIP() << "there is a device: " << *device;
  EXPECT_TRUE(device.error().code == ErrorCode::not_found || device.error().code == ErrorCode::unsupported);
  EXPECT_NE(device.error().message.find("--device cpu"), std::string::npos) << device.error().message;
}

TEST(cuda_pack, floats_keep_their_type_and_stand_by_lane) {
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::fp8_e4m3}) {
    Weight w;
    w.name = "w";
    w.type = type;
    w.rows = 3;
    w.cols = 160;  // no whole number of blocks of either size
    w.experts = 2;
    std::vector<std::byte> bytes(2 * w.slice_bytes());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 37 + i / 7) % 59);
    w.slices = {bytes.data(), bytes.data() + w.slice_bytes()};
    const FloatType as = float_type(type);
    const bool wide = as == FloatType::f32;
    EXPECT_EQ(wide, type == TensorType::f32 || type == TensorType::fp8_e4m3);
    EXPECT_EQ(float_row_bytes(as, 160), wide ? 768 : 512);
    std::vector<std::byte> packed(static_cast<size_t>(float_row_bytes(as, 160)));
    std::vector<float> expected(160);
    for (int64_t expert = 0; expert < 2; ++expert) {
      for (int64_t row = 0; row < 3; ++row) {
        pack_float_row(w, expert, row, packed.data());
        decode_row(type, w.slices[static_cast<size_t>(expert)] + static_cast<size_t>(row) * row_bytes(type, 160),
                   expected.data(), 160);
        for (size_t k = 0; k < 160; ++k) {
          const size_t n = wide ? 4 : 8;
          const std::byte* at = packed.data() + (k / (16 * n)) * 256 + k % 16 * 16 + k / 16 % n * (16 / n);
          const float value = wide                      ? load<float>(at)
                              : type == TensorType::f16 ? f16_to_f32(load<uint16_t>(at))
                                                        : bf16_to_f32(load<uint16_t>(at));
          ASSERT_EQ(value, expected[k]) << type_info(type).name << " row " << row << " value " << k;
        }
        // Lane 15 of the last block: past the end.
        EXPECT_EQ(load<uint32_t>(packed.data() + packed.size() - 4), 0U);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::cuda
