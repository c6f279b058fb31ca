// Encoders of IQ2_*, IQ3_* and IQ1_*: the grid search and the packing of its results (see iq.cpp for the layouts).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "quant/codec.h"
#include "quant/grid_search.h"
#include "quant/tables/grids.h"

namespace cohort::quant {
namespace {

constexpr std::array<uint8_t, 3> iq2_bytes = {8, 25, 43};
constexpr std::array<uint8_t, 8> iq3xxs_bytes = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<uint8_t, 8> iq3s_bytes = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::array<uint8_t, 3> iq1_bytes = {0xff, 0, 1};

using Book8 = Codebook<8, 3>;
using Book4 = Codebook<4, 8>;

// Where the best scales of bell-curved weights lie: around them the error changes by less than a percent a step.
constexpr std::array<float, 6> iq2_ladder = {0.66f, 0.75f, 0.84f, 0.93f, 1.02f, 1.14f};
constexpr std::array<float, 6> iq3_ladder = {0.80f, 0.86f, 0.92f, 0.98f, 1.04f, 1.12f};
constexpr std::array<float, 6> iq1_ladder = {0.40f, 0.50f, 0.60f, 0.70f, 0.80f, 0.95f};

GridFormat<8, 3> iq2_format(const Book8& book, int part_size) {
  return {book, 1, false, {{8, 25, 43}, {}}, part_size, 15, 0.125f, true, iq2_ladder};
}

GridFormat<8, 3> iq1_format(bool shift_per_part, int part_size) {
  static const Book8 book(iq1s_grid, 2048, iq1_bytes);
  return {book, 2, shift_per_part, {{-7, 1, 9}, {-9, -1, 7}}, part_size, 7, 0.125f, true, iq1_ladder};
}

/// Magnitudes of 256 values and the signs of each group of 8.
struct Signed {
  float magnitude[256];
  uint8_t signs[32];
};

/// What the squared error grows by when |x| takes a code of the other sign, whose least magnitude is `least`: nearly in
/// proportion to |x| for small values, to its square for large ones.
float flip_cost(float magnitude, float least) {
  if (magnitude < 2 * least) return 4 * magnitude * least;
  return magnitude * (magnitude + 2 * least);
}

/// `even`: the format stores seven signs and makes the number of negative ones even. Where it is odd, the value whose
/// flip costs least is negated, and the search sees it as a negative magnitude. `least`: the lowest level over the
/// highest; each part of `part_size` values is taken to reach from its largest magnitude down to so much of it.
void split_signs(const float* x, const float* w, bool even, int part_size, float least, Signed& out) {
  float lowest = 0;
  for (int g = 0; g < 32; ++g) {
    const int first = 8 * g;
    if (first % part_size == 0) {
      lowest = 0;
      for (int j = first; j < first + part_size; ++j) lowest = std::max(lowest, std::fabs(x[j]) * least);
    }
    uint32_t signs = 0;
    int cheapest = first;
    float cost = 0;
    for (int j = first; j < first + 8; ++j) {
      out.magnitude[j] = std::fabs(x[j]);
      signs |= (x[j] < 0 ? 1u : 0u) << (j % 8);
      const float mine = w[j] * flip_cost(out.magnitude[j], lowest);
      if (j == first || mine < cost) {
        cheapest = j;
        cost = mine;
      }
    }
    if (even && std::popcount(signs) % 2 != 0) {
      signs ^= 1u << (cheapest % 8);
      out.magnitude[cheapest] = -out.magnitude[cheapest];
    }
    out.signs[g] = static_cast<uint8_t>(signs);
  }
}

/// With importance, that alone: to count large values more, as error_weights() does, makes perplexity and divergence
/// of one and two bits larger (docs/perf/quantise.md).
void importance_weights(const float* x, const float* importance, int n, float* weights) {
  error_weights(x, importance, n, weights);
  const float largest = importance == nullptr ? 0.0f : *std::max_element(importance, importance + n);
  if (!(largest > 0)) return;
  constexpr float floor = 1e-5f;  // as there
  for (int j = 0; j < n; ++j) weights[j] = importance[j] / largest + floor;
}

/// Splits signs, searches, and returns the signs in `parts`.
template <int Dims, int Levels>
void search_magnitudes(const GridFormat<Dims, Levels>& format, const float* x, const float* importance, bool even,
                       Signed& parts, GridBlock& found) {
  float weights[256];
  (format.widens ? importance_weights : error_weights)(x, importance, 256, weights);
  split_signs(x, weights, even, format.part_size, format.values[0][0] / format.values[0][Levels - 1], parts);
  GridSearch<Dims, Levels>(format, parts.magnitude, weights).run(found);
}

void encode_iq2_xxs(const float* x, const float* importance, uint8_t* block) {
  static const Book8 book(iq2xxs_grid, 256, iq2_bytes);
  Signed parts;
  GridBlock found;
  search_magnitudes(iq2_format(book, 32), x, importance, true, parts, found);
  store_u16(block, found.d);
  for (int p = 0; p < 8; ++p) {
    uint32_t packed = static_cast<uint32_t>(found.scale[p]) << 28;
    for (int k = 0; k < 4; ++k) {
      block[2 + 8 * p + k] = static_cast<uint8_t>(found.index[4 * p + k]);
      packed |= static_cast<uint32_t>(parts.signs[4 * p + k] & 127) << (7 * k);
    }
    store_u32(block + 2 + 8 * p + 4, packed);
  }
}

/// The scales of 16 parts as nibbles.
void pack_scales(const uint8_t* scales, uint8_t* packed) {
  for (int p = 0; p < 8; ++p) {
    packed[p] = static_cast<uint8_t>(scales[2 * p] | scales[2 * p + 1] << 4);
  }
}

void encode_iq2_xs(const float* x, const float* importance, uint8_t* block) {
  static const Book8 book(iq2xs_grid, 512, iq2_bytes);
  Signed parts;
  GridBlock found;
  search_magnitudes(iq2_format(book, 16), x, importance, true, parts, found);
  store_u16(block, found.d);
  for (int g = 0; g < 32; ++g) {
    store_u16(block + 2 + 2 * g, static_cast<uint16_t>(found.index[g] | (parts.signs[g] & 127) << 9));
  }
  pack_scales(found.scale, block + 66);
}

void encode_iq2_s(const float* x, const float* importance, uint8_t* block) {
  static const Book8 book(iq2s_grid, 1024, iq2_bytes);
  Signed parts;
  GridBlock found;
  search_magnitudes(iq2_format(book, 16), x, importance, false, parts, found);
  std::memset(block, 0, 82);
  store_u16(block, found.d);
  for (int g = 0; g < 32; ++g) {
    block[2 + g] = static_cast<uint8_t>(found.index[g]);
    block[34 + g] = parts.signs[g];
    block[66 + g / 4] = static_cast<uint8_t>(block[66 + g / 4] | (found.index[g] >> 8) << (2 * (g % 4)));
  }
  pack_scales(found.scale, block + 74);
}

void encode_iq3_xxs(const float* x, const float* importance, uint8_t* block) {
  static const Book4 book(iq3xxs_grid, 256, iq3xxs_bytes);
  static const GridFormat<4, 8> format{book,  1,     false,     {{4, 12, 20, 28, 36, 44, 52, 62}, {}}, 32, 15,
                                       0.25f, false, iq3_ladder};
  Signed parts;
  GridBlock found;
  search_magnitudes(format, x, importance, true, parts, found);
  store_u16(block, found.d);
  for (int g = 0; g < 64; ++g) {
    block[2 + g] = static_cast<uint8_t>(found.index[g]);
  }
  for (int p = 0; p < 8; ++p) {
    uint32_t packed = static_cast<uint32_t>(found.scale[p]) << 28;
    for (int k = 0; k < 4; ++k) {
      packed |= static_cast<uint32_t>(parts.signs[4 * p + k] & 127) << (7 * k);
    }
    store_u32(block + 66 + 4 * p, packed);
  }
}

void encode_iq3_s(const float* x, const float* importance, uint8_t* block) {
  static const Book4 book(iq3s_grid, 512, iq3s_bytes);
  static const GridFormat<4, 8> format{book, 1,     false,     {{1, 3, 5, 7, 9, 11, 13, 15}, {}}, 32, 15,
                                       1.0f, false, iq3_ladder};
  Signed parts;
  GridBlock found;
  search_magnitudes(format, x, importance, false, parts, found);
  std::memset(block, 0, 110);
  store_u16(block, found.d);
  for (int g = 0; g < 64; ++g) {
    block[2 + g] = static_cast<uint8_t>(found.index[g]);
    block[66 + g / 8] = static_cast<uint8_t>(block[66 + g / 8] | (found.index[g] >> 8) << (g % 8));
  }
  std::memcpy(block + 74, parts.signs, 32);
  for (int p = 0; p < 4; ++p) {
    block[106 + p] = static_cast<uint8_t>(found.scale[2 * p] | found.scale[2 * p + 1] << 4);
  }
}

GridBlock search_values(const GridFormat<8, 3>& format, const float* x, const float* importance) {
  float weights[256];
  importance_weights(x, importance, 256, weights);
  GridBlock found;
  GridSearch<8, 3>(format, x, weights).run(found);
  return found;
}

void encode_iq1_s(const float* x, const float* importance, uint8_t* block) {
  static const GridFormat<8, 3> format = iq1_format(true, 32);
  const GridBlock found = search_values(format, x, importance);
  store_u16(block, found.d);
  for (int p = 0; p < 8; ++p) {
    int packed = found.scale[p] << 12 | found.variant[4 * p] << 15;
    for (int k = 0; k < 4; ++k) {
      block[2 + 4 * p + k] = static_cast<uint8_t>(found.index[4 * p + k]);
      packed |= (found.index[4 * p + k] >> 8) << (3 * k);
    }
    store_u16(block + 34 + 2 * p, static_cast<uint16_t>(packed));
  }
}

void encode_iq1_m(const float* x, const float* importance, uint8_t* block) {
  static const GridFormat<8, 3> format = iq1_format(false, 16);
  const GridBlock found = search_values(format, x, importance);
  for (int g = 0; g < 32; g += 2) {
    block[g] = static_cast<uint8_t>(found.index[g]);
    block[g + 1] = static_cast<uint8_t>(found.index[g + 1]);
    block[32 + g / 2] = static_cast<uint8_t>((found.index[g] >> 8) | found.variant[g] << 3 |
                                             (found.index[g + 1] >> 8) << 4 | found.variant[g + 1] << 7);
  }
  for (int i = 0; i < 4; ++i) {
    int packed = ((found.d >> (4 * i)) & 15) << 12;
    for (int k = 0; k < 4; ++k) {
      packed |= found.scale[4 * i + k] << (3 * k);
    }
    store_u16(block + 48 + 2 * i, static_cast<uint16_t>(packed));
  }
}

}  // namespace

BlockEncoder iq_encoder(TensorType type) {
  switch (type) {
    case TensorType::iq2_xxs:
      return encode_iq2_xxs;
    case TensorType::iq2_xs:
      return encode_iq2_xs;
    case TensorType::iq2_s:
      return encode_iq2_s;
    case TensorType::iq3_xxs:
      return encode_iq3_xxs;
    case TensorType::iq3_s:
      return encode_iq3_s;
    case TensorType::iq1_s:
      return encode_iq1_s;
    case TensorType::iq1_m:
      return encode_iq1_m;
    default:
      return nullptr;
  }
}

}  // namespace cohort::quant
