#include "measure/synth_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/half.h"

namespace cohort {
namespace {

constexpr std::array kTypes = {TensorType::f32,  TensorType::f16,  TensorType::bf16, TensorType::q4_0,
                               TensorType::q4_1, TensorType::q5_0, TensorType::q5_1, TensorType::q8_0,
                               TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::mxfp4};

void put_half(std::byte* out, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(out, &bits, sizeof bits);
}

// Standard deviation of an integer that is uniform over `levels` values.
float uniform_deviation(int levels) {
  return std::sqrt((static_cast<float>(levels) * static_cast<float>(levels) - 1.0F) / 12.0F);
}

// The 12 bytes of Q4_K's and Q5_K's eight 6-bit scales and minima; scale j and minimum j are the same number, 32 to 63.
void put_k_scales(std::byte* out, uint64_t word) {
  std::array<uint8_t, 8> s;
  for (size_t j = 0; j < 8; ++j) s[j] = static_cast<uint8_t>(32 + (word >> (5 * j)) % 32);
  for (size_t j = 0; j < 4; ++j) {
    const auto high = static_cast<uint8_t>((s[j + 4] >> 4) << 6);
    out[j] = static_cast<std::byte>(s[j] | high);
    out[j + 4] = out[j];
    out[j + 8] = static_cast<std::byte>((s[j + 4] & 15) | (s[j + 4] & 15) << 4);
  }
}

// Root mean square of a number that is uniform over 32 .. 63.
constexpr float kScaleRms = 48.39F;

// The exponent of an MXFP4 block of random codes. Scales are powers of two: one of the two around the wanted one, each
// so often that the mean of the squares is right.
std::byte mxfp4_exponent(uint64_t word, float sigma) {
  constexpr float kCodeRms = 2.9262F;  // of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, equally often
  const float wanted = sigma / kCodeRms, exponent = std::floor(std::log2(wanted));
  const float above = wanted / std::exp2(exponent), share = (above * above - 1.0F) / 3.0F;
  const bool larger = static_cast<float>(word >> 40) * 0x1p-24F < share;
  return static_cast<std::byte>(static_cast<int>(exponent) + 127 + (larger ? 1 : 0));
}

// One value, uniform over +-sigma * sqrt(3).
float uniform_value(uint64_t word, float sigma) {
  const float centred = static_cast<float>(word >> 40) * 0x1p-23F - 1.0F + 0x1p-24F;
  return centred * (sigma * 1.7320508F);
}

struct BlockFiller {
  TensorType type;
  uint64_t seed;
  float sigma;

  void random_bytes(std::byte* out, size_t bytes, uint64_t& counter) const {
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = random_word(seed, counter++);
      std::memcpy(out + i, &word, std::min<size_t>(8, bytes - i));
    }
  }

  void fill(int64_t index, std::byte* out) const {
    const TypeInfo& info = type_info(type);
    uint64_t counter = static_cast<uint64_t>(index) * 64;  // at most 27 words of a block are used
    const uint64_t first = random_word(seed, counter++);
    // Quants that are not symmetric around zero get a random sign of the scale, so that the mean is zero anyway.
    const float sign = (first & 1) != 0 ? -1.0F : 1.0F;
    switch (type) {
      case TensorType::f32: {
        const float value = uniform_value(first, sigma);
        std::memcpy(out, &value, sizeof value);
        return;
      }
      case TensorType::f16:
        return put_half(out, uniform_value(first, sigma));
      case TensorType::bf16: {
        const uint16_t bits = f32_to_bf16(uniform_value(first, sigma));
        std::memcpy(out, &bits, sizeof bits);
        return;
      }
      default:
        break;
    }
    random_bytes(out, info.block_bytes, counter);
    const float d16 = sigma / uniform_deviation(16), d32 = sigma / uniform_deviation(32);
    switch (type) {
      case TensorType::q4_0:
        return put_half(out, sign * d16);
      case TensorType::q5_0:
        return put_half(out, sign * d32);
      case TensorType::q4_1:
        put_half(out, d16);
        return put_half(out + 2, -7.5F * d16);
      case TensorType::q5_1:
        put_half(out, d32);
        return put_half(out + 2, -15.5F * d32);
      case TensorType::q8_0:
        return put_half(out, sign * sigma / uniform_deviation(256));
      case TensorType::q4_k:
        put_half(out, d16 / kScaleRms);
        put_half(out + 2, 7.5F * d16 / kScaleRms);
        return put_k_scales(out + 4, first >> 1);
      case TensorType::q5_k:
        put_half(out, d32 / kScaleRms);
        put_half(out + 2, 15.5F * d32 / kScaleRms);
        return put_k_scales(out + 4, first >> 1);
      case TensorType::q6_k:
        for (size_t j = 0; j < 16; ++j) {
          const auto scale = static_cast<int>(32 + (first >> (2 * j + 1)) % 32);
          out[192 + j] = static_cast<std::byte>((first >> (j + 40) & 1) != 0 ? -scale : scale);
        }
        return put_half(out + 208, sigma / (uniform_deviation(64) * kScaleRms));
      case TensorType::mxfp4:
        out[0] = mxfp4_exponent(first, sigma);
        return;
      default:
        return;
    }
  }
};

}  // namespace

std::span<const TensorType> synthesised_types() {
  return kTypes;
}

bool can_synthesise(TensorType type) {
  return std::ranges::find(kTypes, type) != kTypes.end();
}

void fill_random_blocks(TensorType type, uint64_t seed, int64_t first, int64_t count, float sigma, std::byte* out) {
  const size_t bytes = type_info(type).block_bytes;
  const BlockFiller filler{type, seed, sigma};
  for (int64_t i = first; i < first + count; ++i, out += bytes) filler.fill(i, out);
}

}  // namespace cohort
