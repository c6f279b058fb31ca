// The K formats: 256 values with f16 super-scales and small integer scales for every 16 or 32 values.
#include "quant/codec.h"

namespace cohort::quant {

void unpack_k_scales(const uint8_t* packed, int index, int& scale, int& minimum) {
  if (index < 4) {
    scale = packed[index] & 63;
    minimum = packed[index + 4] & 63;
  } else {
    scale = (packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4);
    minimum = (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4);
  }
}

namespace {

/// Q2_K and Q3_K store 32 values of part p in bits 2*(p%4) of 32 bytes; the first four parts share bytes 0-31.
int two_bits(const uint8_t* packed, int part, int j) {
  return (packed[32 * (part / 4) + j] >> (2 * (part % 4))) & 3;
}

/// Q4_K and Q5_K store parts 2i and 2i+1 in the low and high nibbles of 32 bytes.
int nibble(const uint8_t* packed, int part, int j) {
  return (packed[32 * (part / 2) + j] >> (4 * (part % 2))) & 15;
}

struct Q2_K {  // 16 bytes of scale (low nibble) and minimum (high nibble), qs64, d, dmin
  static constexpr int values = 256, bytes = 84;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block + 80));
    out.d_offset = -load_f16(block + 82);
    out.has_offset = true;
    for (int group = 0; group < 2; ++group) {
      const uint8_t packed = block[2 * part + group];
      out.scale[group] = packed & 15;
      out.offset[group] = packed >> 4;
    }
    for (int j = 0; j < 32; ++j) {
      out.code[j] = static_cast<int8_t>(two_bits(block + 16, part, j));
    }
  }
};

struct Q3_K {  // 32 bytes of high bits (bit p for part p), qs64, 16 six-bit scales in 12 bytes, d
  static constexpr int values = 256, bytes = 110;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block + 108));
    const uint8_t* scales = block + 96;
    for (int group = 0; group < 2; ++group) {
      const int index = 2 * part + group;
      const int low = (scales[index % 8] >> (4 * (index / 8))) & 15;
      const int high = (scales[8 + index % 4] >> (2 * (index / 4))) & 3;
      out.scale[group] = static_cast<int16_t>((low | (high << 4)) - 32);
    }
    for (int j = 0; j < 32; ++j) {
      const int high = (block[j] >> part) & 1;
      out.code[j] = static_cast<int8_t>(two_bits(block + 32, part, j) + 4 * high - 4);
    }
  }
};

/// What Q4_K and Q5_K share: d, dmin and the six-bit scales and minima of the eight parts.
void unpack_header(const uint8_t* block, int part, CodeBlock& out) {
  plain_block(out, load_f16(block));
  out.d_offset = -load_f16(block + 2);
  out.has_offset = true;
  int scale = 0;
  int minimum = 0;
  unpack_k_scales(block + 4, part, scale, minimum);
  out.scale[0] = out.scale[1] = static_cast<int16_t>(scale);
  out.offset[0] = out.offset[1] = static_cast<int16_t>(minimum);
}

struct Q4_K {  // d, dmin, 12 bytes of scales and minima, qs128
  static constexpr int values = 256, bytes = 144;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    unpack_header(block, part, out);
    for (int j = 0; j < 32; ++j) {
      out.code[j] = static_cast<int8_t>(nibble(block + 16, part, j));
    }
  }
};

struct Q5_K {  // as Q4_K with 32 bytes of fifth bits (bit p for part p) before the nibbles
  static constexpr int values = 256, bytes = 176;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    unpack_header(block, part, out);
    for (int j = 0; j < 32; ++j) {
      const int high = (block[16 + j] >> part) & 1;
      out.code[j] = static_cast<int8_t>(nibble(block + 48, part, j) | (high << 4));
    }
  }
};

struct Q6_K {  // ql128, qh64, 16 int8 scales, d; each half of 128 values has 64 and 32 bytes of them
  static constexpr int values = 256, bytes = 210;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, load_f16(block + 208));
    out.scale[0] = static_cast<int8_t>(block[192 + 2 * part]);  // NOLINT(bugprone-signed-char-misuse): is signed
    out.scale[1] = static_cast<int8_t>(block[193 + 2 * part]);  // NOLINT(bugprone-signed-char-misuse): is signed
    const int quarter = part % 4;
    const uint8_t* low = block + 64 * (part / 4) + 32 * (quarter % 2);
    const uint8_t* high = block + 128 + 32 * (part / 4);
    for (int j = 0; j < 32; ++j) {
      const int nibble = (low[j] >> (4 * (quarter / 2))) & 15;
      out.code[j] = static_cast<int8_t>((nibble | (((high[j] >> (2 * quarter)) & 3) << 4)) - 32);
    }
  }
};

constexpr Codec q2_k = make_codec<Q2_K>();
constexpr Codec q3_k = make_codec<Q3_K>();
constexpr Codec q4_k = make_codec<Q4_K>();
constexpr Codec q5_k = make_codec<Q5_K>();
constexpr Codec q6_k = make_codec<Q6_K>();

}  // namespace

const Codec* k_codec(TensorType type) {
  switch (type) {
    case TensorType::q2_k:
      return &q2_k;
    case TensorType::q3_k:
      return &q3_k;
    case TensorType::q4_k:
      return &q4_k;
    case TensorType::q5_k:
      return &q5_k;
    case TensorType::q6_k:
      return &q6_k;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
