#include "kernels/cpu/grid_tables.h"

#include <algorithm>
#include <array>
#include <memory>

#include "kernels/cpu/grid_numbers.h"
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
/// IQ3_S.
constexpr int kOddMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/// The value of a code of `bits` bits from `at` on in six bits, with its sign at bit `sign`.
uint8_t value_at(int six_bits, int at, int bits, int sign, int bias, const int* magnitudes) {
  const int magnitude = magnitudes[(six_bits >> at) & ((1 << bits) - 1)];
  return static_cast<uint8_t>(((six_bits >> sign) & 1) != 0 ? bias - magnitude : bias + magnitude);
}

/// IQ2_XXS, for lookups of 32 bits.
void fill_numbered(GridTable& table, int bias) {
  constexpr int kPlace[4] = {0, 4, 2, 6};
  table.entries = kEntryNumbers;
  // Numbers that no entry has are the same to all kernels: codes of 0.
  std::fill_n(table.eights, kEntryNumbers, 0x0808080808080808U);
  for (int e = 0; e < 256; ++e) {
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i)
      word |= eight_code(byte_of(quant::iq2xxs_grid[e], kPairValues[i / 2][i % 2])) << (8 * (i / 4) + kPlace[i % 4]);
    table.words[kEntryNumber[e]] = word * 0x10001U;
    table.eights[kEntryNumber[e]] = quant::iq2xxs_grid[e];
  }
  for (int i = 0; i < 64; ++i) table.nibble_values[i] = value_at(i, 0, 2, 3, bias, kEightMagnitudes);
}

void fill_eights(GridTable& table, const uint64_t* grid, int32_t entries, int bias) {
  constexpr int kPlace[4] = {0, 4, 2, 6};
  table.entries = entries;
  for (int32_t i = 0; i < entries; ++i) {
    uint32_t word = 0, codes = 0;
    for (int j = 0; j < 8; ++j) {
      const uint32_t code = eight_code(byte_of(grid[i], j));
      word |= code << (8 * (j / 4) + kPlace[j % 4]);
      codes |= code << (2 * j);
    }
    table.words[i] = word * 0x10001U;
    table.eights[i] = grid[i];
    table.gathered[i] = codes * 0x10001U;
    for (int p = 0; i < 512 && p < 2; ++p) table.bytes[p][i] = static_cast<uint8_t>(codes >> (8 * p));
  }
  for (int i = 0; i < 64; ++i) {
    table.nibble_values[i] = value_at(i, 0, 2, 3, bias, kEightMagnitudes);
    table.values[0][i] = value_at(i, 0, 2, 4, bias, kEightMagnitudes);
    table.values[1][i] = value_at(i, 2, 2, 5, bias, kEightMagnitudes);
    table.values[2][i] = value_at(i, 2, 2, 0, bias, kEightMagnitudes);
    table.values[3][i] = value_at(i, 4, 2, 1, bias, kEightMagnitudes);
  }
}

template <class Code>
void fill_fours(GridTable& table, const uint32_t* grid, int32_t entries, int bias, const Code& code_of,
                const int* magnitudes) {
  table.entries = entries;
  for (int32_t i = 0; i < entries; ++i) {
    uint32_t word = 0;
    for (int j = 0; j < 4; ++j) {
      const auto code = static_cast<uint32_t>(code_of(byte_of(grid[i], j)));
      word |= code << (4 * j);
      const uint32_t placed = j < 2 ? code : (code & 3) | (code & 4) << 1;
      table.bytes[j / 2][i] = static_cast<uint8_t>(table.bytes[j / 2][i] | placed << (4 * (j % 2)));
    }
    table.words[i] = word * 0x10001U;
    table.fours[i] = grid[i];
  }
  for (int i = 0; i < 64; ++i) {
    table.nibble_values[i] = table.values[0][i] = value_at(i, 0, 3, 3, bias, magnitudes);
    const int moved = (i & 3) | (i & 8) >> 1 | (i & 4) << 1;  // bits 2 and 3 change places
    table.values[1][i] = value_at(moved, 0, 3, 3, bias, magnitudes);
  }
}

/// Nibbles 0, 1, 2 are -8, 0, 8 shifted by 1, and 4, 5, 6 shifted by -1.
void fill_shifted(GridTable& table, int bias) {
  constexpr int kNibble[8] = {0, 1, 4, 5, 2, 3, 6, 7};
  table.entries = 4096;
  for (int32_t i = 0; i < 2048; ++i) {
    uint32_t word = 0, five = 0;
    for (int j = 0; j < 8; ++j) {
      const auto code = static_cast<uint32_t>(static_cast<int8_t>(byte_of(quant::iq1s_grid[i], j)) + 1);
      table.eights[i] |= static_cast<uint64_t>(8 * (static_cast<int>(code) - 1) + bias) << (8 * j);
      word |= code << (4 * kNibble[j]);
      five |= code << (8 * (kNibble[j] / 2) + 2 * (kNibble[j] % 2));
    }
    table.words[i] = word;
    table.words[i + 2048] = word | 0x44444444U;
    table.gathered[i] = five;
    table.gathered[i + 2048] = five | 0x10101010U;
  }
  const auto value = [bias](int code, bool negative) {
    return static_cast<uint8_t>(8 * (code - 1) + (negative ? -1 : 1) + bias);
  };
  for (int i = 0; i < 64; ++i) {
    table.nibble_values[i] = value(i & 3, (i & 4) != 0);
    table.values[0][i] = value(i & 3, (i & 16) != 0);
    table.values[1][i] = value((i >> 2) & 3, (i & 16) != 0);
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
        fill_numbered(table, bias);
        break;
      case Layout::iq2_xs:
        fill_eights(table, quant::iq2xs_grid, 512, bias);
        break;
      case Layout::iq2_s:
        fill_eights(table, quant::iq2s_grid, 1024, bias);
        break;
      case Layout::iq3_xxs:
        fill_fours(
            table, quant::iq3xxs_grid, 256, bias, [](int m) { return m == 62 ? 7 : m / 8; }, kFourMagnitudes);
        break;
      case Layout::iq3_s:
        fill_fours(
            table, quant::iq3s_grid, 512, bias, [](int m) { return m / 2; }, kOddMagnitudes);
        break;
      default:
        fill_shifted(table, bias);
    }
  }
  return tables;
}

/// The bits of `code`, one at each of the places.
uint8_t spread(uint32_t code, int low, int high) {
  return static_cast<uint8_t>((code & 1) << low | (code >> 1) << high);
}
uint32_t gather(int bits, int low, int high) {
  return static_cast<uint32_t>(((bits >> low) & 1) | ((bits >> high) & 1) << 1);
}

PairTable make_pairs() {
  // Pairs 0 and 2 have their codes at bits 1 and 2, 3 and 5, beside signs at 0 and 4. Pair 1 has them at bits 2 and 3,
  // 0 and 4, beside signs at 1 and 5, and so has pair 3 after it came from bits 6 and 7, 0 and 4.
  PairTable table{};
  for (int e = 0; e < 256; ++e) {
    const auto code = [e](int pair, int i) { return eight_code(byte_of(quant::iq2xxs_grid[e], kPairValues[pair][i])); };
    const int number = kEntryNumber[e];
    table.pair[0][pair_index(0, number)] = spread(code(0, 0), 1, 2) | spread(code(0, 1), 3, 5);
    table.pair[1][pair_index(1, number)] = spread(code(1, 0), 2, 3) | spread(code(1, 1), 0, 4);
    table.half[half_index(number)] =
        spread(code(2, 0), 1, 2) | spread(code(2, 1), 3, 5) | spread(code(3, 0), 6, 7) | spread(code(3, 1), 0, 4);
  }
  const int bias = layout_info(Layout::iq2_xxs).bias;
  const auto value = [bias](uint32_t code, int sign) {
    return static_cast<uint8_t>(sign != 0 ? bias - kEightMagnitudes[code] : bias + kEightMagnitudes[code]);
  };
  for (int i = 0; i < 64; ++i) {
    table.values[0][i] = value(gather(i, 1, 2), i & 1);
    table.values[1][i] = value(gather(i, 3, 5), i & 16);
    table.values[2][i] = value(gather(i, 2, 3), i & 2);
    table.values[3][i] = value(gather(i, 0, 4), i & 32);
  }
  return table;
}

}  // namespace

const PairTable& pair_table() {
  static const PairTable table = make_pairs();
  return table;
}

const GridTable& grid_table(Layout layout) {
  static const std::unique_ptr<Tables> tables = make_tables();
  return (*tables)[static_cast<size_t>(static_cast<int>(layout) - kFirstGrid)];
}

}  // namespace cohort::cpu
