// What the kernels look indices of code books up in: built once from the files' grids.
//
// A group of values becomes a few bits a value. Byte p of `eights`, p = 0, 1, describes values 4p .. 4p+3 of a group of
// eight: the codes of values 0, 1, 2, 3 at bits 0, 4, 2, 6, so that a byte or the byte shifted by two is two nibbles
// with their codes in bits 0 and 1. Byte p of `fours` describes values 2p, 2p+1 of a group of four: two nibbles with
// codes of three bits. IQ2_XXS has its own numbers for entries and its own order of values (grid_numbers.h): value i of
// `eights` is then value kPairValues[i / 2][i % 2] of the group. Byte p, p = 0 .. 3, of `shifted` (IQ1) is two nibbles
// of values 0 1, 4 5, 2 3 and 6 7. Bit 3 of a nibble is the sign, which IQ1 does not have. `nibble_values` turns a
// nibble into a biased byte (bit 2 of eights is ignored).
#pragma once

#include <cstdint>

#include "kernels/cpu/layout.h"

namespace cohort::cpu {

// AVX-512 has forms of its own, in which six bits of a byte are what it looks a value up by: codes and a sign, which
// `bytes` leave out, or the shift.
struct GridTable {
  /// Entries for looking up 32 bits at a time: eights and fours are the bytes 0 1 0 1, IQ1 (of 2048 entries and then
  /// the same with the other sign of the shift) its four bytes.
  alignas(64) uint32_t words[4096];
  /// By nibble, four times over: for lookups that take 16 or 64.
  alignas(64) uint8_t nibble_values[64];
  /// Bytes 0 and 1 of up to 512 entries (not for IQ2_XXS). Eights: the codes of values 4p .. 4p+3 at bits 0, 2, 4, 6.
  /// Fours: as words, but bit 2 of the codes of byte 1 is bit 3 of the nibble.
  alignas(64) uint8_t bytes[2][512];
  /// Eights: the bytes 0 1 0 1, as in `bytes`. IQ1: the codes of two values at bits 0 and 2, the shift at bit 4; four
  /// bytes in the order of words.
  alignas(64) uint32_t gathered[4096];
  /// Eights, where the signs take the place of two of the four codes (the first two have theirs at bits 4 and 5; the
  /// other two, with the byte shifted by 2, at 0 and 1): of values 0 to 3. Fours: nibbles of byte 0 and of byte 1,
  /// whose sign is bit 2. IQ1: of the first and the second value.
  alignas(64) uint8_t values[4][64];
  /// Entries in whole bytes, for AVX2: magnitudes, for IQ1 biased values without the shift. Fours are followed by what
  /// a load of 16 bytes reads of none.
  alignas(64) uint64_t eights[2048];
  alignas(64) uint32_t fours[512 + 3];
  int32_t entries;
};

/// How AVX-512 looks IQ2_XXS up (grid_numbers.h): codes of pairs, then values by the codes and signs of a pair.
struct PairTable {
  alignas(64) uint8_t pair[2][64];    // pairs 0 and 1, by pair_index()
  alignas(64) uint8_t half[128];      // pairs 2 and 3, by half_index()
  alignas(64) uint8_t values[4][64];  // of the first and second value of pairs 0 and 2, then of pairs 1 and 3
};

/// The table of a layout for which is_grid() holds.
const GridTable& grid_table(Layout layout);
const PairTable& pair_table();

}  // namespace cohort::cpu
