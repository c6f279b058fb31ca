// The stores of one, two and three bits, of nibbles that index a table, and of code books.
//
// A block of 32 values of a tile of 16 outputs, as in layout.h: lane r is 4 bytes of a vector of 64.
//   one_bit     64 B: bit i of byte (r, b) is the code of value 4i + b: -1 or 1, stored as 0 or 1, decoded to 0 or 2.
//   two_bits    128 B: vector h, bits 2c of byte (r, b): value 4 (4h + c) + b.
//   three_bits  192 B: two_bits, then the third bits as one_bit.
//   *_nibbles   256 B: nibbles; code = table[nibble].
// Code books keep the file's indices into its grid, so that a weight costs what it costs in the file. Decoding looks an
// index up and gets the codes of a group of values as a few bits each; a last table turns those, with the sign, into
// biased bytes. All of it works on lanes, which puts the values of a block into an order of its own: vector (h, t),
// h = 0, 1 and t = 0 .. 3, has value 16h + 4b + t in byte b of each lane (ActivationChunk::transposed), and for
// IQ2_XXS, which has one scale for the whole block, value 8b + 4h + t (ActivationChunk::strided).
//   eights      64 B of indices: byte (r, p) is the low byte of group k of 8 values, p = 0, 2, 1, 3 for k = 0 .. 3.
//               Then for IQ1 u16 of output r: nibble p holds three high bits of the index, and in bit 3 the sign of the
//               shift. For IQ2: 64 B of signs, then for IQ2_XS bit 4r + p of a u64, for IQ2_S bits 2p of byte r of 16
//               B: the high bits of the index.
//               IQ2_XXS has p = k, and entries have numbers of nine bits (grid_numbers.h), of which the low eight are
//               here and the ninth is bit 2 of the byte of signs. In it are the signs of pair i at bits i and i + 4,
//               but that of the first value of pair 2: the number of negative values is even.
//   fours       128 B of indices: vector h, byte (r, b) is the low byte of the group of 4 values 16h + 4b. Then 64 B of
//               signs, then for IQ3_S bit 4r + b of two u64 (h = 0, 1): the ninth bits.
//   Signs are a u32 for each output. Byte b has those of the values of byte b of the vectors (h, t), where decoding
//   (grid_tables.h) wants them: eights at bit 2h + {4, 5, 0, 1}[t], fours at bit 3 - 2h - t / 2 + 4 (t % 2).
#pragma once

#include "kernels/cpu/grid_numbers.h"
#include "kernels/cpu/layout.h"

namespace cohort::cpu {

constexpr bool is_grid(Layout layout) {
  return static_cast<int>(layout) >= kFirstGrid;
}

/// Where a value of a block is in the transposed order, and back (the order is its own inverse).
constexpr int transposed_place(int value) {
  return value / 16 * 16 + value % 4 * 4 + value % 16 / 4;
}

/// The same for the strided order: vector value % 8, byte value / 8.
constexpr int strided_place(int value) {
  return value % 8 * 4 + value / 8;
}

/// Where the sign of a value is among the 32 bits of an output's block (IQ2_XXS: with complete signs).
constexpr int sign_place(Layout layout, int value) {
  if (layout == Layout::iq2_xxs) return value / 8 * 8 + pair_place(value % 8) / 2 + pair_place(value % 8) % 2 * 4;
  const int place = transposed_place(value);
  const int h = place / 16, t = place % 16 / 4, b = place % 4;
  if (layout_info(layout).quants == QuantStore::fours) return 8 * b + 3 - 2 * h - t / 2 + 4 * (t % 2);
  constexpr int kBit[4] = {4, 5, 0, 1};
  return 8 * b + 2 * h + kBit[t];
}

/// Where group k of eight values is in its lane.
constexpr int group_place(Layout layout, int k) {
  constexpr int kPlace[4] = {0, 2, 1, 3};
  return (layout_info(layout).sums & kStrided) != 0 ? k : kPlace[k];
}

/// Packs the codes of one output's block into a store of one, two or three bits or of nibbles of a table. The bytes
/// that hold several values of an output must be zero before.
void pack_small_codes(QuantStore store, const int8_t* codes, int32_t lane, std::byte* at);
/// And back.
void read_small_codes(QuantStore store, const std::byte* at, int32_t lane, int8_t* codes);

/// Packs block `block` of a row of a code-book type: its part of `scales` (block_scales) and `quants`.
void pack_grid_block(TensorType type, const std::byte* row, Layout layout, int64_t block, int32_t lane,
                     std::byte* scales, std::byte* quants);
/// And back to codes.
void read_grid_codes(Layout layout, const std::byte* quants, int32_t lane, int8_t* codes);

}  // namespace cohort::cpu
