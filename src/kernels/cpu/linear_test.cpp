// Tile kernels of every instruction set against the scalar reference, bit for bit.
#include <gtest/gtest.h>

#include <bit>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear_lowbit.h"
#include "kernels/cpu/test_weights.h"
#include "kernels/reference/ops.h"

namespace cohort::cpu {
namespace {

struct Shape {
  int64_t outputs, cols;
};

/// The bits of a float; one value for all NaN.
uint32_t bits_of(float value) {
  return value != value ? 0x7fc00000U : std::bit_cast<uint32_t>(value);
}

struct Packed {
  PackedWeight weight;
  std::vector<std::byte> memory;
};

Packed pack(const Weight& weight) {
  Packed packed;
  packed.weight = plan_packing(weight);
  packed.memory.resize(packed.weight.bytes() + 64);
  auto* start = packed.memory.data() + (64 - reinterpret_cast<uintptr_t>(packed.memory.data()) % 64) % 64;
  packed.weight.data = start;
  for (int64_t e = 0; e < weight.experts; ++e) {
    for (int64_t t = 0; t < packed.weight.tiles; ++t)
      pack_tile(weight, packed.weight.shape, e, t,
                start + (e * packed.weight.tiles + t) * packed.weight.shape.tile_bytes);
  }
  return packed;
}

std::vector<TensorType> quantised_types() {
  std::vector<TensorType> types;
  for (const TypeInfo& info : all_types()) {
    if (info.quantised) types.push_back(info.type);
  }
  return types;
}

/// Every instruction set, 1 to 16 rows, against the scalar reference.
void expect_reference_bits(const Weight& weight) {
  const TypeInfo& info = type_info(weight.type);
  const int64_t cols = weight.cols, outputs = weight.rows;
  const Packed packed = pack(weight);
  constexpr int64_t kMaxRows = 16;
  const auto x = cohort::testing::random_rows(kMaxRows, cols, 5, true);
  std::vector<float> expected(static_cast<size_t>(kMaxRows * outputs));
  for (int64_t r = 0; r < kMaxRows; ++r) {
    reference::linear_row(weight, 0, nullptr, ActivationMode::canonical, x.data() + r * cols,
                          expected.data() + r * outputs);
  }
  const auto layout = static_cast<size_t>(packed.weight.shape.layout);
  std::vector<std::pair<Isa, TileKernel>> candidates;
  for (Isa isa : available_isas()) {
    candidates.emplace_back(isa, linear_kernels(isa).tile[layout]);
#if defined(__x86_64__)
    // What processors without GFNI run.
    if (isa == Isa::avx512 && layout < kWideLayouts) candidates.emplace_back(isa, kAvx512PlainTiles[layout]);
#endif
  }
  for (const auto& [isa, tile] : candidates) {
    const LinearKernels& kernels = linear_kernels(isa);
    for (int32_t rows = 1; rows <= kMaxRows; rows += isa == Isa::scalar || cols > 1000 ? 5 : 1) {
      ActivationBuffer buffer;
      buffer.reserve(rows, cols, layout_info(packed.weight.shape.layout).sums);
      const ActivationChunk chunk = buffer.chunk(0, rows);
      for (int32_t r = 0; r < rows; ++r) kernels.quantise(x.data() + r * cols, packed.weight.shape.blocks, chunk, r);
      std::vector<float> out(static_cast<size_t>(rows * outputs), -77.0F);
      for (int64_t t = 0; t < packed.weight.tiles; ++t) {
        TileCall call{};
        call.tile = packed.weight.tile(0, t);
        call.shape = &packed.weight.shape;
        call.x = &chunk;
        call.out = out.data() + t * kTileOutputs;
        call.out_stride = outputs;
        call.outputs = static_cast<int32_t>(std::min<int64_t>(kTileOutputs, outputs - t * kTileOutputs));
        const std::byte* next = t + 1 < packed.weight.tiles ? packed.weight.tile(0, t + 1) : nullptr;
        call.next = rows <= 8 ? next : nullptr;
        call.ahead = rows <= 8 ? nullptr : next;
        call.ahead_bytes = call.ahead != nullptr ? packed.weight.shape.tile_bytes : 0;
        tile(call);
      }
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(bits_of(out[i]), bits_of(expected[i]))
            << info.name << " " << isa_name(isa) << " rows " << rows << " K " << cols << " row "
            << i / static_cast<size_t>(outputs) << " output " << i % static_cast<size_t>(outputs) << ": " << out[i]
            << " instead of " << expected[i];
      }
    }
  }
}

TEST(cpu_linear, tiles_equal_the_reference) {
  for (TensorType type : quantised_types()) {
    for (const Shape& shape : {Shape{48, 2048}, Shape{19, 768}, Shape{16, 704}, Shape{5, 96}, Shape{16, 2816}}) {
      if (shape.cols % type_info(type).block_values != 0) continue;
      expect_reference_bits(cohort::testing::random_weight(type, 1, shape.outputs, shape.cols, 11).weight);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(cpu_linear, random_bytes_equal_the_reference) {
  for (TensorType type : quantised_types()) {
    for (const Shape& shape : {Shape{35, 768}, Shape{16, 2816}}) {
      expect_reference_bits(cohort::testing::random_bytes_weight(type, shape.outputs, shape.cols, 4).weight);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(cpu_linear, affine_weights_of_checkpoints_equal_the_reference) {
  for (const Shape& shape : {Shape{19, 768}, Shape{16, 704}}) {
    auto owned = cohort::testing::random_bytes_weight(TensorType::affine8, shape.outputs, shape.cols, 6);
    for (size_t at = 0; at < owned.data.size(); at += type_info(TensorType::affine8).block_bytes) {
      const float d = cohort::testing::random_float(1, static_cast<uint32_t>(at));
      const float m = cohort::testing::random_float(2, static_cast<uint32_t>(at));
      std::memcpy(owned.data.data() + at, &d, 4);
      std::memcpy(owned.data.data() + at + 4, &m, 4);
    }
    expect_reference_bits(owned.weight);
    if (HasFatalFailure()) return;
  }
}

TEST(cpu_linear, decoding_fp8_equals_the_reference) {
  auto owned = cohort::testing::random_bytes_weight(TensorType::fp8_e4m3, 1, 32 * 512, 8);
  for (uint32_t b = 0; b < 512; ++b) {  // all bytes with scales of every size, subnormal ones, NaN and infinity
    std::byte* block = owned.data.data() + size_t{36} * b;
    if (b < 256) {
      const float d = std::ldexp(1.0F + 0.5F * cohort::testing::random_float(3, b), static_cast<int>(b) - 148);
      std::memcpy(block, &d, 4);
    }
    for (uint32_t j = 0; j < 32; ++j) block[4 + j] = static_cast<std::byte>(32 * b + j);
  }
  std::vector<float> expected(size_t{32} * 512);
  decode_row(TensorType::fp8_e4m3, owned.data.data(), expected.data(), 32 * 512);
  for (Isa isa : available_isas()) {
    std::vector<float> out(expected.size());
    linear_kernels(isa).decode_fp8(owned.data.data(), 512, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(out[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[i])) << isa_name(isa) << " at " << i;
    }
  }
}

TEST(cpu_linear, float_rows_equal_the_reference) {
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16}) {
    for (const Shape& shape : {Shape{16, 2048}, Shape{7, 77}, Shape{9, 16}, Shape{3, 5}}) {
      const auto owned = cohort::testing::random_weight(type, 1, shape.outputs, shape.cols, 3);
      for (int32_t rows : {1, 2, 3, 4, 7, 16}) {
        const auto x = cohort::testing::random_rows(rows, shape.cols, 9, true);
        std::vector<float> expected(static_cast<size_t>(rows * shape.outputs));
        std::vector<const float*> inputs;
        for (int32_t r = 0; r < rows; ++r) {
          inputs.push_back(x.data() + r * shape.cols);
          reference::linear_row(owned.weight, 0, nullptr, ActivationMode::canonical, inputs.back(),
                                expected.data() + r * shape.outputs);
        }
        for (Isa isa : available_isas()) {
          std::vector<float> out(expected.size());
          std::vector<float*> outputs;
          outputs.reserve(static_cast<size_t>(rows));
          for (int32_t r = 0; r < rows; ++r) outputs.push_back(out.data() + r * shape.outputs);
          linear_kernels(isa).float_rows({owned.weight.slices[0], row_bytes(type, shape.cols), type, inputs.data(),
                                          outputs.data(), shape.cols, rows, static_cast<int32_t>(shape.outputs)});
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(bits_of(out[i]), bits_of(expected[i])) << type_info(type).name << " " << isa_name(isa) << " rows "
                                                             << rows << " K " << shape.cols << " at " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::cpu
