#include "kernels/cpu/grid_tables.h"

#include <array>
#include <memory>

#include "kernels/cpu/layout_lowbit.h"
#include "quant/tables/grids.h"

namespace cohort::cpu {
namespace {

int byte_of(uint64_t entry, int j) {
  return static_cast<int>((entry >> (8 * j)) & 0xff);
}

/// 8, 25 and 43 become 0, 1 and 2.
uint32_t eight_code(int magnitude) {
  return magnitude == 8 ? 0 : magnitude == 25 ? 1 : 2;
}
constexpr int kEightMagnitudes[4] = {8, 25, 43, 43};

/// IQ3_XXS: 4, 12, ..., 44, 52, 62.
constexpr int kFourMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};

template <class Magnitude>
void fill_values(GridTable& table, int bias, const Magnitude& magnitude) {
  for (int i = 0; i < 64; ++i) {
    const int code = magnitude(i % 8);
    table.values[i] = static_cast<uint8_t>((i & 8) != 0 ? bias - code : bias + code);
  }
}

void fill_eights(GridTable& table, const uint64_t* grid, int32_t entries, int bias) {
  constexpr int kPlace[4] = {0, 4, 2, 6};
  table.entries = entries;
  for (int32_t i = 0; i < entries; ++i) {
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) word |= eight_code(byte_of(grid[i], j)) << (8 * (j / 4) + kPlace[j % 4]);
    table.words[i] = word * 0x10001U;
  }
  fill_values(table, bias, [](int code) { return kEightMagnitudes[code % 4]; });
}

template <class Code, class Magnitude>
void fill_fours(GridTable& table, const uint32_t* grid, int32_t entries, int bias, const Code& code_of,
                const Magnitude& magnitude) {
  table.entries = entries;
  for (int32_t i = 0; i < entries; ++i) {
    uint32_t word = 0;
    for (int j = 0; j < 4; ++j) word |= static_cast<uint32_t>(code_of(byte_of(grid[i], j))) << (4 * j);
    table.words[i] = word * 0x10001U;
  }
  fill_values(table, bias, magnitude);
}

/// Nibbles 0, 1, 2 are -8, 0, 8 shifted by 1, and 4, 5, 6 shifted by -1.
void fill_shifted(GridTable& table, int bias) {
  constexpr int kNibble[8] = {0, 1, 4, 5, 2, 3, 6, 7};
  table.entries = 4096;
  for (int32_t i = 0; i < 2048; ++i) {
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) {
      const int value = static_cast<int8_t>(byte_of(quant::iq1s_grid[i], j));
      word |= static_cast<uint32_t>(value + 1) << (4 * kNibble[j]);
    }
    table.words[i] = word;
    table.words[i + 2048] = word | 0x44444444U;
  }
  for (int i = 0; i < 64; ++i) {
    const int shift = (i & 4) != 0 ? -1 : 1;
    table.values[i] = static_cast<uint8_t>(8 * (i % 4 - 1) + shift + bias);
  }
}

using Tables = std::array<GridTable, kGridLayouts>;

std::unique_ptr<Tables> make_tables() {
  auto tables = std::make_unique<Tables>();
  for (int i = 0; i < kGridLayouts; ++i) {
    GridTable& table = (*tables)[static_cast<size_t>(i)];
    const auto layout = static_cast<Layout>(kFirstGrid + i);
    const int bias = layout_info(layout).bias;
    switch (layout) {
      case Layout::iq2_xxs:
        fill_eights(table, quant::iq2xxs_grid, 256, bias);
        break;
      case Layout::iq2_xs:
        fill_eights(table, quant::iq2xs_grid, 512, bias);
        break;
      case Layout::iq2_s:
        fill_eights(table, quant::iq2s_grid, 1024, bias);
        break;
      case Layout::iq3_xxs:
        fill_fours(
            table, quant::iq3xxs_grid, 256, bias, [](int m) { return m == 62 ? 7 : m / 8; },
            [](int code) { return kFourMagnitudes[code]; });
        break;
      case Layout::iq3_s:
        fill_fours(
            table, quant::iq3s_grid, 512, bias, [](int m) { return m / 2; }, [](int code) { return 2 * code + 1; });
        break;
      default:
        fill_shifted(table, bias);
    }
    for (size_t e = 0; e < 512; ++e) {
      table.bytes[0][e] = static_cast<uint8_t>(table.words[e]);
      table.bytes[1][e] = static_cast<uint8_t>(table.words[e] >> 8);
    }
  }
  return tables;
}

}  // namespace

const GridTable& grid_table(Layout layout) {
  static const std::unique_ptr<Tables> tables = make_tables();
  return (*tables)[static_cast<size_t>(static_cast<int>(layout) - kFirstGrid)];
}

}  // namespace cohort::cpu
