#include "kernels/cpu/layout_lowbit.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/bytes.h"
#include "kernels/cpu/grid_tables.h"
#include "quant/tables/grids.h"

namespace cohort::cpu {
namespace {

uint32_t load_byte(const std::byte* from) {
  return std::to_integer<uint32_t>(*from);
}

// --- small codes -----------------------------------------------------------------------------------------------------

const int8_t* nibble_values(QuantStore store) {
  return store == QuantStore::iq4_nibbles ? quant::iq4_values : quant::fp4_values;
}

uint32_t nibble_of(QuantStore store, int8_t code) {
  const int8_t* values = nibble_values(store);
  return static_cast<uint32_t>(std::find(values, values + 16, code) - values) & 15U;
}

/// Sets the `bits` of byte `at` from `shift` on.
void merge(std::byte* at, uint32_t value, int shift) {
  *at |= static_cast<std::byte>(value << shift);
}

}  // namespace

void pack_small_codes(QuantStore store, const int8_t* codes, int32_t lane, std::byte* at) {
  for (int j = 0; j < kBlockValues; ++j) {
    const int vector = j / 4;
    const int64_t place = 4 * int64_t{lane} + j % 4;
    switch (store) {
      case QuantStore::one_bit:
        merge(at + place, codes[j] > 0 ? 1 : 0, vector);
        break;
      case QuantStore::two_bits:
        merge(at + 64 * (vector / 4) + place, static_cast<uint32_t>(codes[j]) & 3, 2 * (vector % 4));
        break;
      case QuantStore::three_bits:
        merge(at + 64 * (vector / 4) + place, static_cast<uint32_t>(codes[j]) & 3, 2 * (vector % 4));
        merge(at + 128 + place, (static_cast<uint32_t>(codes[j]) >> 2) & 1, vector);
        break;
      default:
        merge(at + 64 * (vector % 4) + place, nibble_of(store, codes[j]), 4 * (vector / 4));
    }
  }
}

void read_small_codes(QuantStore store, const std::byte* at, int32_t lane, int8_t* codes) {
  for (int j = 0; j < kBlockValues; ++j) {
    const int vector = j / 4;
    const int64_t place = 4 * int64_t{lane} + j % 4;
    const auto bits = [&](int64_t offset, int shift, uint32_t mask) {
      return static_cast<int>((load_byte(at + offset + place) >> shift) & mask);
    };
    switch (store) {
      case QuantStore::one_bit:
        codes[j] = static_cast<int8_t>(2 * bits(0, vector, 1));
        break;
      case QuantStore::two_bits:
        codes[j] = static_cast<int8_t>(bits(64 * (vector / 4), 2 * (vector % 4), 3));
        break;
      case QuantStore::three_bits:
        codes[j] = static_cast<int8_t>(bits(64 * (vector / 4), 2 * (vector % 4), 3) | (bits(128, vector, 1) << 2));
        break;
      default:
        codes[j] = nibble_values(store)[bits(64 * (vector % 4), 4 * (vector / 4), 15)];
    }
  }
}

// --- code books ------------------------------------------------------------------------------------------------------

namespace {

/// What a 32-block of a code-book type holds in the file.
struct GridBlock {
  uint16_t d = 0;          // f16
  uint32_t s[2] = {0, 0};  // of values 0-15 and 16-31
  uint32_t index[8] = {};  // four of groups of 8 or eight of groups of 4; IQ1: bit 11 is the sign of the shift
  uint32_t signs = 0;      // bit j of value j
};

const std::byte* block_of_row(TensorType type, const std::byte* row, int64_t block) {
  return row + block / 8 * type_info(type).block_bytes;
}

/// Seven signs; the eighth makes the number of negative values even.
uint32_t complete_signs(uint32_t seven) {
  seven &= 127;
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1U) << 7;
}

uint32_t four_complete_signs(uint32_t packed) {
  uint32_t signs = 0;
  for (int k = 0; k < 4; ++k) signs |= complete_signs(packed >> (7 * k)) << (8 * k);
  return signs;
}

void read_eights(TensorType type, const std::byte* at, int64_t part, GridBlock& out) {
  out.d = load<uint16_t>(at);
  if (type == TensorType::iq2_xxs) {
    const auto packed = load<uint32_t>(at + 2 + 8 * part + 4);
    for (int64_t k = 0; k < 4; ++k) out.index[k] = load_byte(at + 2 + 8 * part + k);
    out.signs = four_complete_signs(packed);
    out.s[0] = out.s[1] = packed >> 28;
    return;
  }
  const uint32_t scales = load_byte(at + (type == TensorType::iq2_xs ? 66 : 74) + part);
  out.s[0] = scales & 15;
  out.s[1] = scales >> 4;
  for (int64_t k = 0; k < 4; ++k) {
    if (type == TensorType::iq2_xs) {
      const uint32_t packed = load<uint16_t>(at + 2 + 2 * (4 * part + k));
      out.index[k] = packed & 511;
      out.signs |= complete_signs(packed >> 9) << (8 * k);
    } else {
      out.index[k] = load_byte(at + 2 + 4 * part + k) | ((load_byte(at + 66 + part) >> (2 * k)) & 3) << 8;
      out.signs |= load_byte(at + 34 + 4 * part + k) << (8 * k);
    }
  }
}

void read_fours(TensorType type, const std::byte* at, int64_t part, GridBlock& out) {
  out.d = load<uint16_t>(at);
  for (int64_t k = 0; k < 8; ++k) out.index[k] = load_byte(at + 2 + 8 * part + k);
  if (type == TensorType::iq3_xxs) {
    const auto packed = load<uint32_t>(at + 66 + 4 * part);
    out.signs = four_complete_signs(packed);
    out.s[0] = out.s[1] = packed >> 28;
    return;
  }
  for (int64_t k = 0; k < 8; ++k) out.index[k] |= ((load_byte(at + 66 + part) >> k) & 1) << 8;
  out.signs = load<uint32_t>(at + 74 + 4 * part);
  out.s[0] = out.s[1] = (load_byte(at + 106 + part / 2) >> (4 * (part % 2))) & 15;
}

void read_shifted(TensorType type, const std::byte* at, int64_t part, GridBlock& out) {
  if (type == TensorType::iq1_s) {
    out.d = load<uint16_t>(at);
    const uint32_t packed = load<uint16_t>(at + 34 + 2 * part);
    for (int64_t k = 0; k < 4; ++k)
      out.index[k] = load_byte(at + 2 + 4 * part + k) | ((packed >> (3 * k)) & 7) << 8 | (packed >> 15) << 11;
    out.s[0] = out.s[1] = (packed >> 12) & 7;
    return;
  }
  for (int64_t i = 0; i < 4; ++i)
    out.d = static_cast<uint16_t>(out.d | (load<uint16_t>(at + 48 + 2 * i) >> 12) << (4 * i));
  const uint32_t scales = load<uint16_t>(at + 48 + 2 * (part / 2)) >> (6 * (part % 2));
  out.s[0] = scales & 7;
  out.s[1] = (scales >> 3) & 7;
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t entry = 4 * part + k;
    out.index[k] = load_byte(at + entry) | ((load_byte(at + 32 + entry / 2) >> (4 * (entry % 2))) & 15) << 8;
  }
}

/// With the sign that is not stored in the place of the other bit there: it changes if the parity of all bits is odd.
uint32_t complete_pair_signs(uint32_t stored) {
  uint32_t signs = stored;
  for (int k = 0; k < 4; ++k)
    signs ^= (static_cast<uint32_t>(std::popcount(stored & 0xffU << (8 * k))) & 1U) << (8 * k + kNinthBit);
  return signs;
}

void set_bit(std::byte* at, int64_t bit) {
  merge(at + bit / 8, 1, static_cast<int>(bit % 8));
}

}  // namespace

void pack_grid_block(TensorType type, const std::byte* row, Layout layout, int64_t block, int32_t lane,
                     std::byte* scales, std::byte* quants) {
  const LayoutInfo& info = layout_info(layout);
  const bool fours = info.quants == QuantStore::fours;
  const bool shifted = type == TensorType::iq1_s || type == TensorType::iq1_m;
  const std::byte* at = block_of_row(type, row, block);
  const int64_t part = block % 8;
  GridBlock b;
  (fours ? read_fours : shifted ? read_shifted : read_eights)(type, at, part, b);

  store(scales + 2 * lane, b.d);
  if (info.scales == ScaleStore::odd_one) {
    merge(scales + 32 + 4 * lane + part / 2, b.s[0], static_cast<int>(4 * (part % 2)));
  } else {
    scales[32 + 64 * (part / 4) + 4 * lane + part % 4] = static_cast<std::byte>(b.s[0] | b.s[1] << 4);
  }

  std::byte* mine = quants + 4 * static_cast<int64_t>(lane);
  uint32_t ninth = 0;
  if (fours) {
    for (int64_t k = 0; k < 8; ++k) {
      mine[64 * (k / 4) + k % 4] = static_cast<std::byte>(b.index[k]);
      if (b.index[k] >= 256) set_bit(quants + 192 + 8 * (k / 4), 4 * int64_t{lane} + k % 4);
    }
  } else {
    for (int k = 0; k < 4; ++k) {
      const int64_t p = group_place(layout, k);
      const uint32_t number = type == TensorType::iq2_xxs ? kEntryNumber[b.index[k]] : b.index[k];
      mine[p] = static_cast<std::byte>(number);
      const uint32_t high = number >> 8;
      if (type == TensorType::iq2_xxs) {
        ninth |= high << (8 * k + kNinthBit);
      } else if (shifted) {
        merge(quants + 64 + 2 * static_cast<int64_t>(lane) + p / 2, high, static_cast<int>(4 * (p % 2)));
      } else if (type == TensorType::iq2_s) {
        merge(quants + 128 + lane, high, static_cast<int>(2 * p));
      } else if (high != 0) {
        set_bit(quants + 128, 4 * int64_t{lane} + p);
      }
    }
  }
  if (shifted) return;
  uint32_t signs = 0;
  for (int j = 0; j < kBlockValues; ++j) signs |= ((b.signs >> j) & 1) << sign_place(layout, j);
  if (type == TensorType::iq2_xxs) signs = (signs & ~kNinthBits) | ninth;
  store(mine + (fours ? 128 : 64), signs);
}

void read_grid_codes(Layout layout, const std::byte* quants, int32_t lane, int8_t* codes) {
  const GridTable& table = grid_table(layout);
  const LayoutInfo& info = layout_info(layout);
  const bool fours = info.quants == QuantStore::fours;
  const bool shifted = layout == Layout::iq1_s || layout == Layout::iq1_m;
  const std::byte* mine = quants + 4 * static_cast<int64_t>(lane);
  const auto bit_at = [](const std::byte* at, int64_t bit) { return (load_byte(at + bit / 8) >> (bit % 8)) & 1U; };
  const uint32_t stored = shifted ? 0 : load<uint32_t>(mine + (fours ? 128 : 64));
  const uint32_t signs = layout == Layout::iq2_xxs ? complete_pair_signs(stored) : stored;
  for (int j = 0; j < kBlockValues; ++j) {
    uint32_t index = 0, nibble = 0;
    if (fours) {
      const int h = j / 16, b = j % 16 / 4;
      index = load_byte(mine + 64 * h + b);
      if (layout == Layout::iq3_s) index |= bit_at(quants + 192 + 8 * h, 4 * int64_t{lane} + b) << 8;
      nibble = (table.words[index] >> (4 * (j % 4))) & 7;
    } else {
      const int64_t p = group_place(layout, j / 8);
      const int in_group = j % 8;
      index = load_byte(mine + p);
      if (shifted) {
        constexpr int kNibble[8] = {0, 1, 4, 5, 2, 3, 6, 7};
        index |= ((load_byte(quants + 64 + 2 * static_cast<int64_t>(lane) + p / 2) >> (4 * (p % 2))) & 15) << 8;
        nibble = (table.words[index] >> (4 * kNibble[in_group])) & 15;
      } else {
        constexpr int kPlace[4] = {0, 4, 2, 6};
        if (layout == Layout::iq2_xxs) index |= ((stored >> (8 * p + kNinthBit)) & 1) << 8;
        if (layout == Layout::iq2_s) index |= ((load_byte(quants + 128 + lane) >> (2 * p)) & 3) << 8;
        if (layout == Layout::iq2_xs) index |= bit_at(quants + 128, 4 * int64_t{lane} + p) << 8;
        const int i = layout == Layout::iq2_xxs ? pair_place(in_group) : in_group;
        nibble = (table.words[index] >> (8 * (i / 4) + kPlace[i % 4])) & 3;
      }
    }
    nibble |= ((signs >> sign_place(layout, j)) & 1) << 3;
    codes[j] = static_cast<int8_t>(table.nibble_values[nibble]);
  }
}

}  // namespace cohort::cpu
