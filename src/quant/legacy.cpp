// The formats of 32 values with one f16 scale (and, for *_1, an f16 minimum): Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#include <cstring>

#include "quant/codec.h"

namespace cohort::quant {
namespace {

/// Low nibbles are values 0-15, high nibbles values 16-31.
void unpack_nibbles(const uint8_t* packed, int bias, CodeBlock& out) {
  for (int j = 0; j < 16; ++j) {
    out.code[j] = static_cast<int8_t>((packed[j] & 15) - bias);
    out.code[j + 16] = static_cast<int8_t>((packed[j] >> 4) - bias);
  }
}

/// As unpack_nibbles, with bit j of `high` as the fifth bit of value j.
void unpack_five_bits(const uint8_t* packed, uint32_t high, int bias, CodeBlock& out) {
  for (int j = 0; j < 16; ++j) {
    out.code[j] = static_cast<int8_t>(((packed[j] & 15) | (((high >> j) & 1) << 4)) - bias);
    out.code[j + 16] = static_cast<int8_t>(((packed[j] >> 4) | (((high >> (j + 16)) & 1) << 4)) - bias);
  }
}

void set_minimum(CodeBlock& out, float minimum) {
  out.offset[0] = out.offset[1] = 1;
  out.d_offset = minimum;
  out.has_offset = true;
}

struct Q4_0 {  // d, 16 nibble pairs
  static constexpr int values = 32, bytes = 18;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    unpack_nibbles(block + 2, 8, out);
  }
};

struct Q4_1 {  // d, m, 16 nibble pairs
  static constexpr int values = 32, bytes = 20;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    set_minimum(out, load_f16(block + 2));
    unpack_nibbles(block + 4, 0, out);
  }
};

struct Q5_0 {  // d, 32 high bits, 16 nibble pairs
  static constexpr int values = 32, bytes = 22;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    unpack_five_bits(block + 6, load_u32(block + 2), 16, out);
  }
};

struct Q5_1 {  // d, m, 32 high bits, 16 nibble pairs
  static constexpr int values = 32, bytes = 24;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    set_minimum(out, load_f16(block + 2));
    unpack_five_bits(block + 8, load_u32(block + 4), 0, out);
  }
};

struct Q8_0 {  // d, 32 int8
  static constexpr int values = 32, bytes = 34;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    std::memcpy(out.code, block + 2, 32);
  }
};

constexpr Codec q4_0 = make_codec<Q4_0>();
constexpr Codec q4_1 = make_codec<Q4_1>();
constexpr Codec q5_0 = make_codec<Q5_0>();
constexpr Codec q5_1 = make_codec<Q5_1>();
constexpr Codec q8_0 = make_codec<Q8_0>();

}  // namespace

const Codec* legacy_codec(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return &q4_0;
    case TensorType::q4_1:
      return &q4_1;
    case TensorType::q5_0:
      return &q5_0;
    case TensorType::q5_1:
      return &q5_1;
    case TensorType::q8_0:
      return &q8_0;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
