// Encoder of MXFP4.
#include <algorithm>
#include <cmath>

#include "quant/codec.h"
#include "quant/tables/grids.h"

namespace cohort::quant {
namespace {

void encode_mxfp4(const float* x, const float*, uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    largest = std::max(largest, std::fabs(x[j]));
  }
  // The largest magnitude lies in [4, 8) steps of the scale, whose codes reach 6. The logarithm is rounded to f32
  // before floor, as the reference quantisers do: a value just below a power of two counts as that power.
  const float logarithm = largest > 0 ? static_cast<float>(std::log2(static_cast<double>(largest))) : -1000.0f;
  block[0] = static_cast<uint8_t>(std::clamp(std::floor(logarithm) + 125.0f, 0.0f, 254.0f));
  const float d = e8m0_half(block[0]);
  const auto nearest = [d](float value) {
    int best = 0;
    for (int code = 1; code < 16; ++code) {
      if (std::fabs(d * fp4_values[code] - value) < std::fabs(d * fp4_values[best] - value)) {
        best = code;
      }
    }
    return best;
  };
  for (int j = 0; j < 16; ++j) {
    block[1 + j] = static_cast<uint8_t>(nearest(x[j]) | nearest(x[j + 16]) << 4);
  }
}

}  // namespace

BlockEncoder fp4_encoder(TensorType type) {
  return type == TensorType::mxfp4 ? encode_mxfp4 : nullptr;
}

}  // namespace cohort::quant
