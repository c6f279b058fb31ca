// Formats of one and two bits with one f16 scale: TQ1_0 and TQ2_0 (-1, 0, 1), Q1_0 (-1, 1), Q2_0 (-1 .. 2).
#include "quant/codec.h"

namespace cohort::quant {
namespace {

/// Trit n of a byte that holds five of them as a fraction: byte/256 * 3^n, whose whole part modulo 3 is the trit.
int8_t trit(uint8_t byte, int n) {
  constexpr uint8_t powers[] = {1, 3, 9, 27, 81};
  const auto fraction = static_cast<uint8_t>(byte * powers[n]);
  return static_cast<int8_t>(((fraction * 3) >> 8) - 1);
}

struct TQ1_0 {  // 32 bytes for values 0-159 (trit n of byte j is value 32n+j), 16 for 160-239, 4 for 240-255, d
  static constexpr int values = 256, bytes = 54;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block + 52));
    if (part < 5) {
      for (int j = 0; j < 32; ++j) {
        out.code[j] = trit(block[j], part);
      }
      return;
    }
    for (int j = 0; j < 16; ++j) {
      out.code[j] = trit(block[32 + j], 2 * (part - 5));
      out.code[j + 16] = part < 7 ? trit(block[32 + j], 2 * (part - 5) + 1) : trit(block[48 + j % 4], j / 4);
    }
  }
};

struct TQ2_0 {  // qs64, d; the 32 values of part p are bits 2*(p%4) of 32 bytes
  static constexpr int values = 256, bytes = 66;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block + 64));
    for (int j = 0; j < 32; ++j) {
      out.code[j] = static_cast<int8_t>(((block[32 * (part / 4) + j] >> (2 * (part % 4))) & 3) - 1);
    }
  }
};

struct Q1_0 {  // d, 128 bits, the lowest first: 1 is +d, 0 is -d
  static constexpr int values = 128, bytes = 18;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block));
    for (int j = 0; j < 32; ++j) {
      out.code[j] = static_cast<int8_t>(2 * ((block[2 + 4 * part + j / 8] >> (j % 8)) & 1) - 1);
    }
  }
};

/// d, then two bits for each value, the lowest first; d * (q - 1).
template <int Group>
struct Q2_0 {
  static constexpr int values = Group, bytes = 2 + Group / 4;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block));
    for (int j = 0; j < 32; ++j) {
      out.code[j] = static_cast<int8_t>(((block[2 + 8 * part + j / 4] >> (2 * (j % 4))) & 3) - 1);
    }
  }
};

constexpr Codec tq1_0 = make_codec<TQ1_0>();
constexpr Codec tq2_0 = make_codec<TQ2_0>();
constexpr Codec q1_0 = make_codec<Q1_0>();
constexpr Codec q2_0 = make_codec<Q2_0<64>>();
constexpr Codec q2_0_g128 = make_codec<Q2_0<128>>();

}  // namespace

const Codec* ternary_codec(TensorType type) {
  switch (type) {
    case TensorType::tq1_0:
      return &tq1_0;
    case TensorType::tq2_0:
      return &tq2_0;
    case TensorType::q1_0:
      return &q1_0;
    case TensorType::q2_0:
      return &q2_0;
    case TensorType::q2_0_g128:
      return &q2_0_g128;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
