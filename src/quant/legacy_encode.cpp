// Encoders of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0. Without importance the scale comes from the extreme value of the block
// and every value is rounded to the nearest step, the rounding that the field's reference quantisers use, so that files
// compare equal. With importance (not for Q8_0, whose error is far below the others') the scale is searched.
#include <algorithm>
#include <cmath>

#include "quant/codec.h"
#include "quant/scale_search.h"
#include "quant/search.h"

namespace cohort::quant {
namespace {

/// Truncates to an integer in 0..top. Inputs below 0 and NaN (0 * infinity of a block of subnormals) become 0.
int clamp_code(float value, int top) {
  return value > 0 ? static_cast<int>(std::min(value, static_cast<float>(top))) : 0;
}

/// Writes 32 codes of 4 or 5 bits: nibbles to `packed`; the fifth bits are returned, bit j for value j.
uint32_t pack_codes(const int* codes, uint8_t* packed) {
  uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    packed[j] = static_cast<uint8_t>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
  }
  for (int j = 0; j < 32; ++j) {
    high |= static_cast<uint32_t>(codes[j] >> 4) << j;
  }
  return high;
}

/// Symmetric codes of `bits` bits: the value of largest magnitude becomes code 0, that is -2^(bits-1) steps. Returns d
/// as f16.
uint16_t symmetric_codes(const float* x, const float* importance, int bits, int* codes) {
  const int half = 1 << (bits - 1);
  if (importance != nullptr) {
    float found[32];
    const UniformCoder coder{static_cast<float>(-half), static_cast<float>(half - 1)};
    const uint16_t d = encode_single(coder, x, importance, 32, found);
    for (int j = 0; j < 32; ++j) {
      codes[j] = static_cast<int>(found[j]) + half;
    }
    return d;
  }
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(extreme)) {
      extreme = x[j];
    }
  }
  const float d = extreme / static_cast<float>(-half);
  const float scale = reciprocal(d);
  for (int j = 0; j < 32; ++j) {
    codes[j] = clamp_code(x[j] * scale + (static_cast<float>(half) + 0.5f), 2 * half - 1);
  }
  return f32_to_f16(d);
}

/// Codes of `bits` bits between the smallest and the largest value of the block; d and the minimum as f16 go to
/// `header`.
void ranged_codes(const float* x, const float* importance, int bits, int* codes, uint8_t* header) {
  const int top = (1 << bits) - 1;
  float d = 0;
  float minimum = 0;
  if (importance != nullptr) {
    float weights[32];
    error_weights(x, importance, 32, weights);
    const AffineFit fit = fit_affine(x, weights, 32, static_cast<float>(top), true);
    d = f16_to_f32(f32_to_f16(fit.scale));
    minimum = f16_to_f32(f32_to_f16(-fit.minimum));
  } else {
    const auto [low, high] = std::minmax_element(x, x + 32);
    minimum = *low;
    d = (*high - *low) / static_cast<float>(top);
  }
  const float scale = reciprocal(d);
  for (int j = 0; j < 32; ++j) {
    codes[j] = clamp_code((x[j] - minimum) * scale + 0.5f, top);
  }
  store_u16(header, f32_to_f16(d));
  store_u16(header + 2, f32_to_f16(minimum));
}

void encode_q4_0(const float* x, const float* importance, uint8_t* block) {
  int codes[32];
  store_u16(block, symmetric_codes(x, importance, 4, codes));
  pack_codes(codes, block + 2);
}

void encode_q4_1(const float* x, const float* importance, uint8_t* block) {
  int codes[32];
  ranged_codes(x, importance, 4, codes, block);
  pack_codes(codes, block + 4);
}

void encode_q5_0(const float* x, const float* importance, uint8_t* block) {
  int codes[32];
  store_u16(block, symmetric_codes(x, importance, 5, codes));
  store_u32(block + 2, pack_codes(codes, block + 6));
}

void encode_q5_1(const float* x, const float* importance, uint8_t* block) {
  int codes[32];
  ranged_codes(x, importance, 5, codes, block);
  store_u32(block + 4, pack_codes(codes, block + 8));
}

void encode_q8_0(const float* x, const float*, uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    largest = std::max(largest, std::fabs(x[j]));
  }
  const float d = largest / 127.0f;
  const float scale = reciprocal(d);
  store_u16(block, f32_to_f16(d));
  for (int j = 0; j < 32; ++j) {
    const float rounded = std::round(x[j] * scale);
    // A block of subnormals has an infinite 1/d; its codes do not matter (d is 0 as f16) but must be defined.
    block[2 + j] = static_cast<uint8_t>(std::fabs(rounded) <= 127.0f ? static_cast<int>(rounded) : 0);
  }
}

}  // namespace

BlockEncoder legacy_encoder(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return encode_q4_0;
    case TensorType::q4_1:
      return encode_q4_1;
    case TensorType::q5_0:
      return encode_q5_0;
    case TensorType::q5_1:
      return encode_q5_1;
    case TensorType::q8_0:
      return encode_q8_0;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
