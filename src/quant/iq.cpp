// The IQ formats. IQ1, IQ2 and IQ3 look groups of 4 or 8 values up in a grid (tables/grids.h); IQ2 and IQ3 add signs,
// IQ1 a shift of +-1/8. IQ4 maps each 4-bit code through one table of 16.
//
// The published scales hold halves and quarters: IQ2 d*(s+1/2)/4, IQ3_XXS d*(s+1/2)/2, IQ1 d*(2s+1)*(grid +- 1/8). Here
// the integer part is (2s+1) and the power of two goes into d (exactly: d is an f16), so that sums of codes stay whole.
#include <bit>

#include "quant/codec.h"
#include "quant/tables/grids.h"

namespace cohort::quant {
namespace {

/// Seven sign bits; the eighth makes the number of negative values even.
uint8_t complete_signs(uint32_t seven) {
  return static_cast<uint8_t>(seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7);
}

/// `count` values of a grid entry, negated where `signs` has a bit.
void place(int8_t* code, uint64_t entry, int count, uint8_t signs) {
  for (int j = 0; j < count; ++j) {
    const auto magnitude = static_cast<int>((entry >> (8 * j)) & 0xff);
    const int negative = (signs >> j) & 1;
    code[j] = static_cast<int8_t>((magnitude ^ -negative) + negative);  // no branch on random signs
  }
}

/// `count` bytes of a grid entry of IQ1 as (grid + shift/8) * 8.
void place_shifted(int8_t* code, uint64_t entry, int shift) {
  for (int j = 0; j < 8; ++j) {
    const auto value = static_cast<int8_t>((entry >> (8 * j)) & 0xff);
    code[j] = static_cast<int8_t>(8 * value + shift);
  }
}

int16_t odd(uint32_t s) {
  return static_cast<int16_t>(2 * s + 1);
}

struct IQ2_XXS {  // d, then for each part four grid indices and a u32: four 7-bit signs, 4-bit s
  static constexpr int values = 256, bytes = 66;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block) * 0.125f);
    const uint8_t* indices = block + 2 + 8 * part;
    const uint32_t packed = load_u32(indices + 4);
    out.scale[0] = out.scale[1] = odd(packed >> 28);
    for (int k = 0; k < 4; ++k) {
      place(out.code + 8 * k, iq2xxs_grid[indices[k]], 8, complete_signs((packed >> (7 * k)) & 127));
    }
  }
};

struct IQ2_XS {  // d, 32 u16 (9-bit index, 7-bit signs), a nibble of s for every 16 values
  static constexpr int values = 256, bytes = 74;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block) * 0.125f);
    out.scale[0] = odd(block[66 + part] & 15);
    out.scale[1] = odd(block[66 + part] >> 4);
    for (int k = 0; k < 4; ++k) {
      const uint16_t packed = load_u16(block + 2 + 2 * (4 * part + k));
      place(out.code + 8 * k, iq2xs_grid[packed & 511], 8, complete_signs(packed >> 9));
    }
  }
};

struct IQ2_S {  // d, 32 index bytes, 32 sign bytes, 8 bytes of two high index bits each, a nibble of s for every 16
                // values
  static constexpr int values = 256, bytes = 82;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block) * 0.125f);
    out.scale[0] = odd(block[74 + part] & 15);
    out.scale[1] = odd(block[74 + part] >> 4);
    for (int k = 0; k < 4; ++k) {
      const int index = block[2 + 4 * part + k] | (((block[66 + part] >> (2 * k)) & 3) << 8);
      place(out.code + 8 * k, iq2s_grid[index], 8, block[34 + 4 * part + k]);
    }
  }
};

struct IQ3_XXS {  // d, 64 indices (4 values each), 8 u32: four 7-bit signs (of 8 values), 4-bit s
  static constexpr int values = 256, bytes = 98;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block) * 0.25f);
    const uint32_t packed = load_u32(block + 66 + 4 * part);
    out.scale[0] = out.scale[1] = odd(packed >> 28);
    for (int k = 0; k < 8; ++k) {
      const uint8_t signs = complete_signs((packed >> (7 * (k / 2))) & 127);
      place(out.code + 4 * k, iq3xxs_grid[block[2 + 8 * part + k]], 4, static_cast<uint8_t>(signs >> (4 * (k % 2))));
    }
  }
};

struct IQ3_S {  // d, 64 index bytes, 8 bytes of ninth index bits, 32 sign bytes, 4 bytes with a nibble of s for each
                // part
  static constexpr int values = 256, bytes = 110;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block));
    out.scale[0] = out.scale[1] = odd((block[106 + part / 2] >> (4 * (part % 2))) & 15);
    for (int k = 0; k < 8; ++k) {
      const int index = block[2 + 8 * part + k] | (((block[66 + part] >> k) & 1) << 8);
      place(out.code + 4 * k, iq3s_grid[index], 4, static_cast<uint8_t>(block[74 + 4 * part + k / 2] >> (4 * (k % 2))));
    }
  }
};

struct IQ1_S {  // d, 32 index bytes, 8 u16: four times three high index bits, 3-bit s, sign of the shift
  static constexpr int values = 256, bytes = 50;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block) * 0.125f);
    const uint32_t packed = load_u16(block + 34 + 2 * part);
    out.scale[0] = out.scale[1] = odd((packed >> 12) & 7);
    for (int k = 0; k < 4; ++k) {
      const uint32_t index = block[2 + 4 * part + k] | (((packed >> (3 * k)) & 7) << 8);
      place_shifted(out.code + 8 * k, iq1s_grid[index], (packed & 0x8000) != 0 ? -1 : 1);
    }
  }
};

struct IQ1_M {  // 32 index bytes, a nibble (three high index bits, sign of the shift) for each, 4 u16: four 3-bit s, 4
                // bits of d
  static constexpr int values = 256, bytes = 56;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    uint32_t half = 0;
    for (int i = 0; i < 4; ++i) {
      half |= static_cast<uint32_t>(load_u16(block + 48 + 2 * i) >> 12) << (4 * i);
    }
    plain_block(out, f16_to_f32(static_cast<uint16_t>(half)) * 0.125f);
    const uint32_t scales = load_u16(block + 48 + 2 * (part / 2)) >> (6 * (part % 2));
    out.scale[0] = odd(scales & 7);
    out.scale[1] = odd((scales >> 3) & 7);
    for (int k = 0; k < 4; ++k) {
      const int entry = 4 * part + k;
      const int high = (block[32 + entry / 2] >> (4 * (entry % 2))) & 15;
      place_shifted(out.code + 8 * k, iq1s_grid[block[entry] | ((high & 7) << 8)], (high & 8) != 0 ? -1 : 1);
    }
  }
};

void unpack_table(const uint8_t* packed, CodeBlock& out) {
  for (int j = 0; j < 16; ++j) {
    out.code[j] = iq4_values[packed[j] & 15];
    out.code[j + 16] = iq4_values[packed[j] >> 4];
  }
}

struct IQ4_NL {  // d, 16 nibble pairs
  static constexpr int values = 32, bytes = 18;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f16(block));
    unpack_table(block + 2, out);
  }
};

struct IQ4_XS {  // d, u16 of two high scale bits each, 4 bytes of low scale nibbles, 16 nibble pairs for each part
  static constexpr int values = 256, bytes = 136;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block));
    const int high = (load_u16(block + 2) >> (2 * part)) & 3;
    const int low = (block[4 + part / 2] >> (4 * (part % 2))) & 15;
    out.scale[0] = out.scale[1] = static_cast<int16_t>((low | (high << 4)) - 32);
    unpack_table(block + 8 + 16 * part, out);
  }
};

constexpr Codec iq2_xxs = make_codec<IQ2_XXS>();
constexpr Codec iq2_xs = make_codec<IQ2_XS>();
constexpr Codec iq2_s = make_codec<IQ2_S>();
constexpr Codec iq3_xxs = make_codec<IQ3_XXS>();
constexpr Codec iq3_s = make_codec<IQ3_S>();
constexpr Codec iq1_s = make_codec<IQ1_S>();
constexpr Codec iq1_m = make_codec<IQ1_M>();
constexpr Codec iq4_nl = make_codec<IQ4_NL>();
constexpr Codec iq4_xs = make_codec<IQ4_XS>();

}  // namespace

const Codec* iq_codec(TensorType type) {
  switch (type) {
    case TensorType::iq2_xxs:
      return &iq2_xxs;
    case TensorType::iq2_xs:
      return &iq2_xs;
    case TensorType::iq2_s:
      return &iq2_s;
    case TensorType::iq3_xxs:
      return &iq3_xxs;
    case TensorType::iq3_s:
      return &iq3_s;
    case TensorType::iq1_s:
      return &iq1_s;
    case TensorType::iq1_m:
      return &iq1_m;
    case TensorType::iq4_nl:
      return &iq4_nl;
    case TensorType::iq4_xs:
      return &iq4_xs;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
