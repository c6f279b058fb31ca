// Encoders of TQ1_0 and TQ2_0: the scale is the largest magnitude of the block, every value goes to the nearest of -d,
// 0, d.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/codec.h"
#include "quant/scale_search.h"
#include "quant/search.h"

namespace cohort::quant {
namespace {

/// Codes 0, 1, 2 of 256 values; returns d.
float ternary_codes(const float* x, uint8_t* codes) {
  float largest = 0;
  for (int j = 0; j < 256; ++j) {
    largest = std::max(largest, std::fabs(x[j]));
  }
  const float scale = largest == 0 ? 0.0f : 1.0f / largest;
  for (int j = 0; j < 256; ++j) {
    const float rounded = std::round(x[j] * scale);
    codes[j] = static_cast<uint8_t>(rounded >= 1 ? 2 : rounded <= -1 ? 0 : 1);
  }
  return largest;
}

/// Up to five trits, `stride` codes apart, as the fraction sum trit_n * 3^-(n+1) in 256ths, rounded up so that decoding
/// by repeated multiplication with 3 gives them back.
uint8_t pack_trits(const uint8_t* codes, int count, int stride) {
  int sum = 0;
  for (int n = 0; n < 5; ++n) {
    sum = 3 * sum + (n < count ? codes[n * stride] : 0);
  }
  return static_cast<uint8_t>((sum * 256 + 242) / 243);
}

void encode_tq1_0(const float* x, const float*, uint8_t* block) {
  uint8_t codes[256];
  store_u16(block + 52, f32_to_f16(ternary_codes(x, codes)));
  for (int j = 0; j < 32; ++j) {
    block[j] = pack_trits(codes + j, 5, 32);
  }
  for (int j = 0; j < 16; ++j) {
    block[32 + j] = pack_trits(codes + 160 + j, 5, 16);
  }
  for (int j = 0; j < 4; ++j) {
    block[48 + j] = pack_trits(codes + 240 + j, 4, 4);
  }
}

void encode_tq2_0(const float* x, const float*, uint8_t* block) {
  uint8_t codes[256];
  store_u16(block + 64, f32_to_f16(ternary_codes(x, codes)));
  for (int j = 0; j < 64; ++j) {
    const uint8_t* first = codes + 128 * (j / 32) + j % 32;
    block[j] = static_cast<uint8_t>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
}

/// The scale of least squared error for the signs: the mean magnitude, weighted by the importance.
void encode_q1_0(const float* x, const float* importance, uint8_t* block) {
  constexpr int values = 128;
  std::memset(block, 0, 18);
  float sum = 0;
  float total = 0;
  for (int j = 0; j < values; ++j) {
    const float weight = importance == nullptr ? 1.0f : importance[j];
    sum += weight * std::fabs(x[j]);
    total += weight;
    block[2 + j / 8] = static_cast<uint8_t>(block[2 + j / 8] | (x[j] >= 0 ? 1 : 0) << (j % 8));
  }
  const float mean = sum / total;
  // Without any importance, or one too large to add up, the mean is not a number: then all values count alike.
  if (std::isfinite(mean) || importance == nullptr) {
    store_u16(block, f32_to_f16(mean));
  } else {
    encode_q1_0(x, nullptr, block);
  }
}

/// Codes -1 .. 2 under a scale of either sign.
template <int Values>
void encode_q2_0(const float* x, const float* importance, uint8_t* block) {
  float codes[Values];
  store_u16(block, encode_single(UniformCoder{-1, 2}, x, importance, Values, codes));
  std::memset(block + 2, 0, Values / 4);
  for (int j = 0; j < Values; ++j) {
    block[2 + j / 4] = static_cast<uint8_t>(block[2 + j / 4] | (static_cast<int>(codes[j]) + 1) << (2 * (j % 4)));
  }
}

}  // namespace

BlockEncoder ternary_encoder(TensorType type) {
  switch (type) {
    case TensorType::tq1_0:
      return encode_tq1_0;
    case TensorType::tq2_0:
      return encode_tq2_0;
    case TensorType::q1_0:
      return encode_q1_0;
    case TensorType::q2_0:
      return encode_q2_0<64>;
    case TensorType::q2_0_g128:
      return encode_q2_0<128>;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
