// Encoders of the K formats: the searches of search.h and the packing of their results (see k_quants.cpp for the
// layouts).
#include <cstring>

#include "quant/codec.h"
#include "quant/scale_search.h"
#include "quant/search.h"

namespace cohort::quant {
namespace {

/// Two bits of each of 256 codes, as Q2_K and Q3_K store them.
void pack_two_bits(const uint8_t* codes, uint8_t* packed) {
  for (int j = 0; j < 64; ++j) {
    const uint8_t* first = codes + 128 * (j / 32) + j % 32;
    packed[j] =
        static_cast<uint8_t>((first[0] & 3) | (first[32] & 3) << 2 | (first[64] & 3) << 4 | (first[96] & 3) << 6);
  }
}

/// Four bits of each of 256 codes, as Q4_K and Q5_K store them.
void pack_nibbles(const uint8_t* codes, uint8_t* packed) {
  for (int j = 0; j < 128; ++j) {
    const uint8_t* first = codes + 64 * (j / 32) + j % 32;
    packed[j] = static_cast<uint8_t>((first[0] & 15) | (first[32] & 15) << 4);
  }
}

/// The inverse of unpack_k_scales for all eight parts.
void pack_k_scales(const AffineBlock& from, uint8_t* packed) {
  for (int p = 0; p < 4; ++p) {
    packed[p] = static_cast<uint8_t>(from.scale[p] | (from.scale[p + 4] >> 4) << 6);
    packed[p + 4] = static_cast<uint8_t>(from.minimum[p] | (from.minimum[p + 4] >> 4) << 6);
    packed[p + 8] = static_cast<uint8_t>((from.scale[p + 4] & 15) | (from.minimum[p + 4] & 15) << 4);
  }
}

void encode_q2_k(const float* x, const float* importance, uint8_t* block) {
  AffineBlock found;
  encode_affine(x, importance, 16, 3, 15, found);
  for (int p = 0; p < 16; ++p) {
    block[p] = static_cast<uint8_t>(found.scale[p] | found.minimum[p] << 4);
  }
  pack_two_bits(found.code, block + 16);
  store_u16(block + 80, found.d);
  store_u16(block + 82, found.dmin);
}

void encode_q3_k(const float* x, const float* importance, uint8_t* block) {
  ScaledBlock<16> found;
  encode_scaled(UniformCoder{-4, 3}, x, importance, 31, found);
  std::memset(block, 0, 110);
  uint8_t low[256];
  for (int j = 0; j < 256; ++j) {
    const int code = static_cast<int>(found.code[j]) + 4;
    low[j] = static_cast<uint8_t>(code & 3);
    block[j % 32] = static_cast<uint8_t>(block[j % 32] | (code >> 2) << (j / 32));
  }
  pack_two_bits(low, block + 32);
  for (int p = 0; p < 16; ++p) {
    const int scale = found.scale[p] + 32;
    block[96 + p % 8] = static_cast<uint8_t>(block[96 + p % 8] | (scale & 15) << (4 * (p / 8)));
    block[104 + p % 4] = static_cast<uint8_t>(block[104 + p % 4] | (scale >> 4) << (2 * (p / 4)));
  }
  store_u16(block + 108, found.d);
}

void encode_q4_k(const float* x, const float* importance, uint8_t* block) {
  AffineBlock found;
  encode_affine(x, importance, 8, 15, 63, found);
  store_u16(block, found.d);
  store_u16(block + 2, found.dmin);
  pack_k_scales(found, block + 4);
  pack_nibbles(found.code, block + 16);
}

void encode_q5_k(const float* x, const float* importance, uint8_t* block) {
  AffineBlock found;
  encode_affine(x, importance, 8, 31, 63, found);
  store_u16(block, found.d);
  store_u16(block + 2, found.dmin);
  pack_k_scales(found, block + 4);
  std::memset(block + 16, 0, 32);
  for (int j = 0; j < 256; ++j) {
    block[16 + j % 32] = static_cast<uint8_t>(block[16 + j % 32] | (found.code[j] >> 4) << (j / 32));
  }
  pack_nibbles(found.code, block + 48);
}

void encode_q6_k(const float* x, const float* importance, uint8_t* block) {
  ScaledBlock<16> found;
  encode_scaled(UniformCoder{-32, 31}, x, importance, 127, found);
  std::memset(block, 0, 192);
  for (int j = 0; j < 256; ++j) {
    const int code = static_cast<int>(found.code[j]) + 32;
    const int half = j / 128;
    const int quarter = j % 128 / 32;
    uint8_t& low = block[64 * half + 32 * (quarter % 2) + j % 32];
    uint8_t& high = block[128 + 32 * half + j % 32];
    low = static_cast<uint8_t>(low | (code & 15) << (4 * (quarter / 2)));
    high = static_cast<uint8_t>(high | (code >> 4) << (2 * quarter));
  }
  std::memcpy(block + 192, found.scale, 16);
  store_u16(block + 208, found.d);
}

}  // namespace

BlockEncoder k_encoder(TensorType type) {
  switch (type) {
    case TensorType::q2_k:
      return encode_q2_k;
    case TensorType::q3_k:
      return encode_q3_k;
    case TensorType::q4_k:
      return encode_q4_k;
    case TensorType::q5_k:
      return encode_q5_k;
    case TensorType::q6_k:
      return encode_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
