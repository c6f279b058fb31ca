#include "kernels/cuda/pack.h"

#include <cstring>
#include <vector>

#include "quant/half.h"

namespace cohort::cuda {
namespace {

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Byte j of lane word (g, t): the values 4t + j (first half of the block) and 16 + 4t + j (second half).
template <class Put>
void for_lane_bytes(const CodeBlock& block, Put&& put) {
  for (int t = 0; t < 4; ++t) {
    for (int j = 0; j < 4; ++j)
      put(t, j, static_cast<uint8_t>(block.code[4 * t + j]), static_cast<uint8_t>(block.code[16 + 4 * t + j]));
  }
}

void put_nibbles(const CodeBlock& block, int g, int high, std::byte* out) {
  for_lane_bytes(block, [&](int t, int j, uint8_t first, uint8_t second) {
    out[(g * 4 + t) * 8 + high * 4 + j] = static_cast<std::byte>((first & 15) | (second & 15) << 4);
  });
}

void put_bytes(const CodeBlock& block, int g, int high, std::byte* out) {
  for_lane_bytes(block, [&](int t, int j, uint8_t first, uint8_t second) {
    std::byte* lane = out + (g * 4 + t) * 16 + high * 4 + j;
    lane[0] = static_cast<std::byte>(first);
    lane[8] = static_cast<std::byte>(second);
  });
}

/// Two bits for each of the four operand registers r = high + 2 * half.
void put_upper_bits(const CodeBlock& block, int g, int high, std::byte* out) {
  for_lane_bytes(block, [&](int t, int j, uint8_t first, uint8_t second) {
    out[(g * 4 + t) * 4 + j] |=
        static_cast<std::byte>(((first >> 4) & 3) << (2 * high) | ((second >> 4) & 3) << (2 * high + 4));
  });
}

/// Row `row` (0..15) of one block into its place; `block_out` and `super_out` are zeroed before.
void put_row(Format format, const CodeBlock& code, int row, std::byte* block_out, std::byte* super_out) {
  const int g = row % 8, high = row / 8;
  const int pair = g * 2 + high;  // rows g and g + 8 stand side by side
  switch (format) {
    case Format::q4:
      put_nibbles(code, g, high, block_out);
      store(block_out + 256 + pair * 2, f32_to_f16(code.d[0]));
      break;
    case Format::q8:
      put_bytes(code, g, high, block_out);
      store(block_out + 512 + pair * 2, f32_to_f16(code.d[0]));
      break;
    case Format::k4:
      put_nibbles(code, g, high, block_out);
      block_out[256 + pair * 2] = static_cast<std::byte>(code.scale[0]);
      block_out[257 + pair * 2] = static_cast<std::byte>(code.offset[0]);
      store(super_out + pair * 4, f32_to_f16(code.d[0]));
      store(super_out + pair * 4 + 2, f32_to_f16(code.d_offset));
      break;
    case Format::k6:
      put_nibbles(code, g, high, block_out);
      put_upper_bits(code, g, high, block_out + 256);
      block_out[384 + pair * 2] = static_cast<std::byte>(code.scale[0]);
      block_out[385 + pair * 2] = static_cast<std::byte>(code.scale[1]);
      store(super_out + pair * 2, f32_to_f16(code.d[0]));
      break;
    case Format::generic:
      put_bytes(code, g, high, block_out);
      store(block_out + 512 + pair * 4, code.d[0]);
      store(block_out + 576 + pair * 4, code.d[1]);
      store(block_out + 640 + pair * 4, code.d_offset);
      for (int i = 0; i < 2; ++i) {
        store(block_out + 704 + pair * 8 + 2 * i, code.scale[i]);
        store(block_out + 708 + pair * 8 + 2 * i, code.offset[i]);
      }
      break;
  }
}

}  // namespace

Format format_of(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return Format::q4;
    case TensorType::q8_0:
      return Format::q8;
    case TensorType::q4_k:
      return Format::k4;
    case TensorType::q6_k:
      return Format::k6;
    default:
      return Format::generic;
  }
}

bool has_two_groups(TensorType type) {
  return type == TensorType::nvfp4;
}

void pack_tile(Format format, const Weight& weight, int64_t expert, int64_t tile, std::byte* out) {
  const FormatShape shape = shape_of(format);
  const int64_t blocks = weight.cols / 32;
  const int64_t supers = blocks / shape.super_blocks;
  std::memset(out, 0, static_cast<size_t>(supers * shape.super_bytes));
  const size_t stride = row_bytes(weight.type, weight.cols);
  CodeBlock code;
  for (int row = 0; row < kTileRows; ++row) {
    const int64_t source_row = tile * kTileRows + row;
    if (source_row >= weight.rows) break;
    const std::byte* source = weight.slices[static_cast<size_t>(expert)] + static_cast<size_t>(source_row) * stride;
    for (int64_t b = 0; b < blocks; ++b) {
      std::byte* super = out + b / shape.super_blocks * shape.super_bytes;
      decode_code_block(weight.type, source, b, code);
      put_row(format, code, row, super + b % shape.super_blocks * shape.block_bytes,
              super + shape.super_blocks * shape.block_bytes);
    }
  }
}

FloatType float_type(TensorType type) {
  return type == TensorType::f16 ? FloatType::f16 : type == TensorType::bf16 ? FloatType::bf16 : FloatType::f32;
}

void pack_float_row(const Weight& weight, int64_t expert, int64_t row, std::byte* out) {
  const FloatType type = float_type(weight.type);
  const auto n = static_cast<size_t>(float_values(type));
  std::memset(out, 0, static_cast<size_t>(float_row_bytes(type, weight.cols)));
  const std::byte* source =
      weight.slices[static_cast<size_t>(expert)] + static_cast<size_t>(row) * row_bytes(weight.type, weight.cols);
  const auto place = [&](size_t k) { return (k / (16 * n) * 16 + k % 16) * n + k / 16 % n; };
  const auto cols = static_cast<size_t>(weight.cols);
  if (type != FloatType::f32) {
    for (size_t k = 0; k < cols; ++k) std::memcpy(out + place(k) * 2, source + k * 2, 2);
    return;
  }
  std::vector<float> values(cols);
  decode_row(weight.type, source, values.data(), weight.cols);
  for (size_t k = 0; k < cols; ++k) store(out + place(k) * 4, values[k]);
}

}  // namespace cohort::cuda
