#include "kernels/cpu/layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "kernels/cpu/layout_k.h"
#include "kernels/cpu/layout_lowbit.h"
#include "numerics/reduce.h"
#include "quant/half.h"

namespace cohort::cpu {
namespace {

constexpr int32_t kSuperBlocks = 8;  // 32-blocks in a block of 256

uint16_t half_of(float exact) {
  return f32_to_f16(exact);
}  // the file's own f16, so nothing rounds

/// The byte of an unsigned E4M3 whose half is `value`, as ScaleStore::e4m3_two decodes it: its bits are those of an f16
/// 2^8 times smaller.
uint8_t e4m3_of(float value) {
  return static_cast<uint8_t>(half_of(value * 0x1p-7F) >> 7);
}

/// The exponent e of 2^(e - 128), the two smallest of which are subnormal.
uint8_t e8m0_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>(bits < 0x00800000U ? bits >> 22 : (bits >> 23) + 1);
}

void pack_scales(const CodeBlock& code, const LayoutInfo& info, int64_t block, int32_t lane, std::byte* at) {
  const auto in_super = block % kSuperBlocks;
  switch (info.scales) {
    case ScaleStore::one:
      store(at + 2 * lane, half_of(code.d[0]));
      break;
    case ScaleStore::one_min:
      store(at + 2 * lane, half_of(code.d[0]));
      store(at + 32 + 2 * lane, half_of(code.d_offset));
      break;
    case ScaleStore::k_min:
      store(at + 2 * lane, half_of(code.d[0]));
      store(at + 32 + 2 * lane, half_of(code.d_offset));
      at[64 + 32 * in_super + lane] = static_cast<std::byte>(code.scale[0]);
      at[64 + 32 * in_super + 16 + lane] = static_cast<std::byte>(code.offset[0]);
      break;
    case ScaleStore::k_sixteen:
      store(at + 2 * lane, half_of(code.d[0]));
      at[32 + 32 * in_super + lane] = static_cast<std::byte>(code.scale[0]);
      at[32 + 32 * in_super + 16 + lane] = static_cast<std::byte>(code.scale[1]);
      break;
    case ScaleStore::affine:
      store(at + 4 * lane, code.d[0]);
      store(at + 64 + 4 * lane, code.d_offset);
      break;
    case ScaleStore::k_pairs:
      store(at + 2 * lane, half_of(code.d[0]));
      store(at + 32 + 2 * lane, half_of(code.d_offset));
      for (int half = 0; half < 2; ++half)
        at[64 + 32 * in_super + 2 * lane + half] = static_cast<std::byte>(code.scale[half] | code.offset[half] << 4);
      break;
    case ScaleStore::k_one:
      store(at + 2 * lane, half_of(code.d[0]));
      at[32 + 16 * in_super + lane] = static_cast<std::byte>(code.scale[0]);
      break;
    case ScaleStore::e8m0:
      at[lane] = static_cast<std::byte>(e8m0_of(code.d[0]));
      break;
    case ScaleStore::e4m3_two:
      for (int half = 0; half < 2; ++half) at[16 * half + lane] = static_cast<std::byte>(e4m3_of(code.d[half]));
      break;
    case ScaleStore::odd_one:
    case ScaleStore::odd_two:
      break;  // with the quants: pack_grid_block
  }
}

void pack_quants(const int8_t* codes, const LayoutInfo& info, int32_t lane, std::byte* at) {
  std::array<uint8_t, 32> value;
  for (size_t j = 0; j < 32; ++j) value[j] = static_cast<uint8_t>(codes[j] + info.bias);
  if (info.quants == QuantStore::iq4_nibbles || info.quants == QuantStore::fp4_nibbles) {
    return pack_small_codes(info.quants, codes, lane, at);
  }
  if (info.quants > QuantStore::bytes) {
    return pack_small_codes(info.quants, reinterpret_cast<const int8_t*>(value.data()), lane, at);
  }
  if (info.quants == QuantStore::bytes) {
    for (size_t i = 0; i < 8; ++i) std::memcpy(at + 64 * i + 4 * lane, value.data() + 4 * i, 4);
    return;
  }
  for (size_t j = 0; j < 16; ++j) {
    at[64 * (j / 4) + 4 * static_cast<size_t>(lane) + j % 4] =
        static_cast<std::byte>((value[j] & 15) | ((value[j + 16] & 15) << 4));
  }
  if (info.quants == QuantStore::five_bits) {
    for (size_t i = 0; i < 8; ++i) {
      auto mask = load<uint64_t>(at + 256 + 8 * i);
      for (size_t k = 0; k < 4; ++k) {
        mask |= uint64_t{value[4 * i + k] >> 4 != 0} << (4 * static_cast<size_t>(lane) + k);
      }
      store(at + 256 + 8 * i, mask);
    }
  } else if (info.quants == QuantStore::six_bits) {
    for (size_t j = 0; j < 32; ++j) {
      const size_t vector = j / 4;
      at[256 + 64 * (vector / 4) + 4 * static_cast<size_t>(lane) + j % 4] |=
          static_cast<std::byte>((value[j] >> 4) << (2 * (vector % 4)));
    }
  }
}

/// Q4_0 and Q8_0 need no decoding: their bytes are already in the order of the layout.
bool pack_plain(const Weight& weight, const LayoutInfo& info, const std::byte* row, int64_t blocks, int32_t lane,
                std::byte* scales, std::byte* quants) {
  if (weight.type == TensorType::q4_0) {
    for (int64_t b = 0; b < blocks; ++b, row += 18) {
      std::memcpy(scales + b * info.scale_bytes + 2 * lane, row, 2);
      std::byte* at = quants + b * info.quant_bytes + 4 * lane;
      for (int64_t i = 0; i < 4; ++i) std::memcpy(at + 64 * i, row + 2 + 4 * i, 4);
    }
    return true;
  }
  if (weight.type == TensorType::q8_0) {
    for (int64_t b = 0; b < blocks; ++b, row += 34) {
      std::memcpy(scales + b * info.scale_bytes + 2 * lane, row, 2);
      std::byte* at = quants + b * info.quant_bytes + 4 * lane;
      for (int64_t i = 0; i < 8; ++i) store(at + 64 * i, load<uint32_t>(row + 2 + 4 * i) ^ 0x80808080U);
    }
    return true;
  }
  return false;
}

}  // namespace

Layout layout_of(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return Layout::q4_0;
    case TensorType::q4_1:
      return Layout::q4_1;
    case TensorType::q5_0:
      return Layout::q5_0;
    case TensorType::q5_1:
      return Layout::q5_1;
    case TensorType::q8_0:
      return Layout::q8_0;
    case TensorType::q4_k:
      return Layout::q4_k;
    case TensorType::q5_k:
      return Layout::q5_k;
    case TensorType::q6_k:
      return Layout::q6_k;
    case TensorType::q1_0:
      return Layout::q1_0;
    case TensorType::q2_0:
      return Layout::q2_0;
    case TensorType::q2_0_g128:
      return Layout::q2_0_g128;
    case TensorType::tq1_0:
    case TensorType::tq2_0:
      return Layout::ternary;
    case TensorType::q2_k:
      return Layout::q2_k;
    case TensorType::q3_k:
      return Layout::q3_k;
    case TensorType::iq4_nl:
      return Layout::iq4_nl;
    case TensorType::iq4_xs:
      return Layout::iq4_xs;
    case TensorType::mxfp4:
      return Layout::mxfp4;
    case TensorType::nvfp4:
      return Layout::nvfp4;
    case TensorType::iq2_xxs:
      return Layout::iq2_xxs;
    case TensorType::iq2_xs:
      return Layout::iq2_xs;
    case TensorType::iq2_s:
      return Layout::iq2_s;
    case TensorType::iq3_xxs:
      return Layout::iq3_xxs;
    case TensorType::iq3_s:
      return Layout::iq3_s;
    case TensorType::iq1_s:
      return Layout::iq1_s;
    case TensorType::iq1_m:
      return Layout::iq1_m;
    default:
      return Layout::affine8;
  }
}

PackedShape packed_shape(Layout layout, int64_t cols) {
  const LayoutInfo& info = layout_info(layout);
  const auto whole_lines = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  PackedShape shape;
  shape.layout = layout;
  shape.blocks = static_cast<int32_t>(cols / kBlockValues);
  shape.segments = numerics::segments_of(cols);
  shape.scale_bytes = whole_lines(shape.blocks / info.scale_blocks * info.scale_bytes);
  shape.tile_bytes = whole_lines(shape.scale_bytes + int64_t{shape.blocks} * info.quant_bytes);
  return shape;
}

PackedWeight plan_packing(const Weight& weight) {
  PackedWeight packed;
  packed.shape = packed_shape(layout_of(weight.type), weight.cols);
  packed.rows = weight.rows;
  packed.cols = weight.cols;
  packed.experts = weight.experts;
  packed.tiles = (weight.rows + kTileOutputs - 1) / kTileOutputs;
  return packed;
}

void pack_tile(const Weight& weight, const PackedShape& shape, int64_t expert, int64_t t, std::byte* out) {
  const LayoutInfo& info = layout_info(shape.layout);
  std::byte* quants = out + shape.scale_bytes;
  const auto scales_at = [&](int64_t block) { return out + block / info.scale_blocks * info.scale_bytes; };
  const bool partial = (t + 1) * kTileOutputs > weight.rows;
  const bool whole_bytes = info.quants == QuantStore::nibbles || info.quants == QuantStore::bytes;
  if (partial || !whole_bytes) std::memset(out, 0, static_cast<size_t>(shape.tile_bytes));
  const size_t row_size = row_bytes(weight.type, weight.cols);
  const std::byte* slice = weight.slices[static_cast<size_t>(expert)];
  for (int32_t lane = 0; lane < kTileOutputs && t * kTileOutputs + lane < weight.rows; ++lane) {
    const std::byte* row = slice + static_cast<size_t>(t * kTileOutputs + lane) * row_size;
    if (pack_plain(weight, info, row, shape.blocks, lane, out, quants)) continue;
    if (pack_k_row(weight, row, shape.blocks, lane, out, quants)) continue;
    CodeBlock code;
    for (int64_t b = 0; b < shape.blocks; ++b) {
      if (is_grid(shape.layout)) {
        pack_grid_block(weight.type, row, shape.layout, b, lane, scales_at(b), quants + b * info.quant_bytes);
        continue;
      }
      decode_code_block(weight.type, row, b, code);
      pack_scales(code, info, b, lane, scales_at(b));
      pack_quants(code.code, info, lane, quants + b * info.quant_bytes);
    }
  }
}

namespace {

void read_scales(const std::byte* at, const LayoutInfo& info, int64_t block, int64_t lane, PackedBlock& out) {
  const int64_t in_super = block % kSuperBlocks;
  const auto half_at = [at](int64_t offset) { return f16_to_f32(load<uint16_t>(at + offset)); };
  out.scale[0] = out.scale[1] = 1;
  out.offset[0] = out.offset[1] = 0;
  out.d_offset = 0;
  switch (info.scales) {
    case ScaleStore::one:
      out.d[0] = out.d[1] = half_at(2 * lane);
      break;
    case ScaleStore::one_min:
      out.d[0] = out.d[1] = half_at(2 * lane);
      out.d_offset = half_at(32 + 2 * lane);
      out.offset[0] = out.offset[1] = 1;
      break;
    case ScaleStore::k_min:
      out.d[0] = out.d[1] = half_at(2 * lane);
      out.d_offset = half_at(32 + 2 * lane);
      out.scale[0] = out.scale[1] = load<uint8_t>(at + 64 + 32 * in_super + lane);
      out.offset[0] = out.offset[1] = load<uint8_t>(at + 64 + 32 * in_super + 16 + lane);
      break;
    case ScaleStore::k_sixteen:
      out.d[0] = out.d[1] = half_at(2 * lane);
      // These scales are signed. NOLINTNEXTLINE(bugprone-signed-char-misuse)
      for (int half = 0; half < 2; ++half) out.scale[half] = load<int8_t>(at + 32 + 32 * in_super + 16 * half + lane);
      break;
    case ScaleStore::affine:
      out.d[0] = out.d[1] = load<float>(at + 4 * lane);
      out.d_offset = load<float>(at + 64 + 4 * lane);
      out.offset[0] = out.offset[1] = 1;
      break;
    case ScaleStore::k_pairs:
      out.d[0] = out.d[1] = half_at(2 * lane);
      out.d_offset = half_at(32 + 2 * lane);
      for (int half = 0; half < 2; ++half) {
        const auto pair = load<uint8_t>(at + 64 + 32 * in_super + 2 * lane + half);
        out.scale[half] = pair & 15;
        out.offset[half] = pair >> 4;
      }
      break;
    case ScaleStore::k_one:
      out.d[0] = out.d[1] = half_at(2 * lane);
      // Signed. NOLINTNEXTLINE(bugprone-signed-char-misuse)
      out.scale[0] = out.scale[1] = load<int8_t>(at + 32 + 16 * in_super + lane);
      break;
    case ScaleStore::odd_one:
      out.d[0] = out.d[1] = std::ldexp(half_at(2 * lane), info.exponent);
      out.scale[0] = out.scale[1] =
          2 * ((load<uint8_t>(at + 32 + 4 * lane + in_super / 2) >> (4 * (in_super % 2))) & 15) + 1;
      break;
    case ScaleStore::odd_two: {
      const auto pair = load<uint8_t>(at + 32 + 64 * (in_super / 4) + 4 * lane + in_super % 4);
      out.d[0] = out.d[1] = std::ldexp(half_at(2 * lane), info.exponent);
      out.scale[0] = 2 * (pair & 15) + 1;
      out.scale[1] = 2 * (pair >> 4) + 1;
      break;
    }
    case ScaleStore::e8m0: {
      const uint32_t e = load<uint8_t>(at + lane);
      out.d[0] = out.d[1] = std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1) << 23);
      break;
    }
    case ScaleStore::e4m3_two:
      for (int half = 0; half < 2; ++half)
        out.d[half] = f16_to_f32(static_cast<uint16_t>(load<uint8_t>(at + 16 * half + lane) << 7)) * 0x1p7F;
      break;
  }
}

}  // namespace

void read_block(const std::byte* tile, const PackedShape& shape, int64_t block, int32_t output, PackedBlock& out) {
  const LayoutInfo& info = layout_info(shape.layout);
  const auto lane = static_cast<int64_t>(output);
  read_scales(shape.block_scales(tile, block), info, block, lane, out);
  const std::byte* quants = shape.block_quants(tile, block);
  if (info.quants == QuantStore::iq4_nibbles || info.quants == QuantStore::fp4_nibbles) {
    return read_small_codes(info.quants, quants, output, out.code);
  }
  if (info.quants > QuantStore::bytes) {
    if (is_grid(shape.layout)) {
      read_grid_codes(shape.layout, quants, output, out.code);
    } else {
      read_small_codes(info.quants, quants, output, out.code);
    }
    for (int8_t& code : out.code) code = static_cast<int8_t>(code - info.bias);
    return;
  }
  for (int64_t j = 0; j < 32; ++j) {
    const int64_t vector = j / 4, in_lane = 4 * lane + j % 4;
    int value = 0;
    if (info.quants == QuantStore::bytes) {
      value = load<uint8_t>(quants + 64 * vector + in_lane);
    } else {
      value = load<uint8_t>(quants + 64 * (vector % 4) + in_lane);
      value = vector < 4 ? value & 15 : value >> 4;
      if (info.quants == QuantStore::five_bits)
        value |= static_cast<int>((load<uint64_t>(quants + 256 + 8 * vector) >> in_lane) & 1U) << 4;
      if (info.quants == QuantStore::six_bits)
        value |= ((load<uint8_t>(quants + 256 + 64 * (vector / 4) + in_lane) >> (2 * (vector % 4))) & 3) << 4;
    }
    out.code[j] = static_cast<int8_t>(value - info.bias);
  }
}

}  // namespace cohort::cpu
