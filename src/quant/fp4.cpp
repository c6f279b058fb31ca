// The four-bit float formats: MXFP4 (one power of two for 32 values) and NVFP4 (an E4M3 scale for every 16 values). The
// codes are twice the E2M1 values, so that they are whole; the half is in the scale.
#include <bit>

#include "quant/codec.h"
#include "quant/tables/grids.h"

namespace cohort::quant {

float e8m0_half(uint8_t exponent) {
  // 2^(e-128); the two smallest are subnormal. 255 is a NaN in the OCP specification but 2^127 in every GGUF reader.
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23);
}

float ue4m3_half(uint8_t bits) {
  if (bits == 0x7f) {  // the NaN of E4M3, read as zero
    return 0;
  }
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  const float raw = exponent == 0
                        ? static_cast<float>(mantissa) * 0x1p-9f
                        : static_cast<float>(8 + mantissa) * 0.125f * std::bit_cast<float>((exponent + 120) << 23);
  return raw * 0.5f;
}

namespace {

struct MXFP4 {  // e8m0, 16 nibble pairs (low nibble value j, high nibble value j+16)
  static constexpr int values = 32, bytes = 17;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, e8m0_half(block[0]));
    for (int j = 0; j < 16; ++j) {
      out.code[j] = fp4_values[block[1 + j] & 15];
      out.code[j + 16] = fp4_values[block[1 + j] >> 4];
    }
  }
};

struct NVFP4 {  // 4 scales, then 8 bytes for each 16 values (low nibble value j, high nibble value j+8)
  static constexpr int values = 64, bytes = 36;
  static void unpack(const uint8_t* block, int part, CodeBlock& out) {
    plain_block(out, 0);
    for (int group = 0; group < 2; ++group) {
      const int index = 2 * part + group;
      out.d[group] = ue4m3_half(block[index]);
      for (int j = 0; j < 8; ++j) {
        const uint8_t packed = block[4 + 8 * index + j];
        out.code[16 * group + j] = fp4_values[packed & 15];
        out.code[16 * group + j + 8] = fp4_values[packed >> 4];
      }
    }
  }
};

constexpr Codec mxfp4 = make_codec<MXFP4>();
constexpr Codec nvfp4 = make_codec<NVFP4>();

}  // namespace

const Codec* fp4_codec(TensorType type) {
  switch (type) {
    case TensorType::mxfp4:
      return &mxfp4;
    case TensorType::nvfp4:
      return &nvfp4;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
