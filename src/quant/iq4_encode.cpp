// Encoders of IQ4_NL and IQ4_XS: the scale search of scale_search.h with the table of 16 values.
#include <algorithm>
#include <cstring>

#include "quant/codec.h"
#include "quant/scale_search.h"

namespace cohort::quant {
namespace {

/// The index of a value of the table.
uint8_t index_of(float value) {
  const auto* found = std::lower_bound(std::begin(iq4_values), std::end(iq4_values), static_cast<int>(value));
  return static_cast<uint8_t>(found - std::begin(iq4_values));
}

void pack_32(const float* codes, uint8_t* packed) {
  for (int j = 0; j < 16; ++j) {
    packed[j] = static_cast<uint8_t>(index_of(codes[j]) | index_of(codes[j + 16]) << 4);
  }
}

void encode_iq4_nl(const float* x, const float* importance, uint8_t* block) {
  float codes[32];
  store_u16(block, encode_single(TableCoder{}, x, importance, 32, codes));
  pack_32(codes, block + 2);
}

void encode_iq4_xs(const float* x, const float* importance, uint8_t* block) {
  ScaledBlock<8> found;
  encode_scaled(TableCoder{}, x, importance, 31, found);
  std::memset(block, 0, 8);
  uint16_t high = 0;
  for (int p = 0; p < 8; ++p) {
    const int scale = found.scale[p] + 32;
    high = static_cast<uint16_t>(high | (scale >> 4) << (2 * p));
    block[4 + p / 2] = static_cast<uint8_t>(block[4 + p / 2] | (scale & 15) << (4 * (p % 2)));
    pack_32(found.code + 32 * p, block + 8 + 16 * p);
  }
  store_u16(block, found.d);
  store_u16(block + 2, high);
}

}  // namespace

BlockEncoder iq4_encoder(TensorType type) {
  switch (type) {
    case TensorType::iq4_nl:
      return encode_iq4_nl;
    case TensorType::iq4_xs:
      return encode_iq4_xs;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
