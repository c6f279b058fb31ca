// How the CPU kernels want quantised weights: one layout per structure of block format, shared by AVX2, AVX-512 VNNI,
// AMX and NEON.
//
// A matrix [rows, cols] is cut into tiles of 16 outputs. A tile holds first the scales of all its 32-blocks, then their
// quants. The quants of a block are vectors of 64 bytes: lane r (4 bytes) of vector i belongs to output r and holds
// the values 4i .. 4i+3 of the block, which is the operand of a dot product of 4 bytes and a row of an AMX B tile.
// With nibbles there are four vectors: low nibbles are values 4i .. 4i+3, high ones 16 later. Fifth bits follow as 8
// masks of 64 bits (one per vector of values), sixth bits as two vectors: bits 2c and 2c+1 of vector h belong to the
// values of vector 4h + c. Codes are stored unsigned (code + bias), as VNNI wants them; the bias is taken out with
// sums of the activations, which is exact.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/weights.h"

namespace cohort::cpu {

/// Bumped when the bytes of any packed tile change: packed files of another version are not read.
inline constexpr int kLayoutVersion = 3;

inline constexpr int32_t kTileOutputs = 16;
inline constexpr int32_t kChunkRows = 16;  // rows that share an activation chunk; the rows of an AMX tile
inline constexpr int32_t kBlockValues = 32;

/// How the quants of a 32-block are stored.
enum class QuantStore : uint8_t {
  nibbles,
  five_bits,
  six_bits,
  bytes,
  // The rest are in layout_lowbit.h.
  one_bit,
  two_bits,
  three_bits,
  iq4_nibbles,
  fp4_nibbles,
  eights,  // a code book of groups of eight values
  fours,   // a code book of groups of four values
};

/// What stands beside the quants. Sub-scales and offsets are integers; products with sums of activations stay below
/// 2^24 and are therefore exact in f32.
enum class ScaleStore : uint8_t {
  one,        // f16 d
  one_min,    // f16 d, f16 m: value = d * code + m
  k_min,      // per 256: f16 d, f16 dmin; per block u8 s, u8 m: value = d * s * code - dmin * m
  k_sixteen,  // per 256: f16 d; per block i8 s[2]: value = d * s[j / 16] * code
  affine,     // f32 d, f32 m: value = d * code + m
  k_pairs,   // per 256: f16 d, f16 dmin; per block and output u8 (s | m << 4)[2]: value = d * s[j / 16] * code - dmin *
             // m[j / 16]
  k_one,     // per 256: f16 d; per block i8 s: value = d * s * code
  odd_one,   // per 256: f16 d; per output u32, nibble b is s of block b: value = d * (2 s + 1) * code
  odd_two,   // per 256: f16 d; per four blocks and output u32, byte b is s0 | s1 << 4: value = d * (2 s[j / 16] + 1) *
             // code
  e8m0,      // u8 e: value = 2^(e - 128) * code
  e4m3_two,  // u8 e[2], E4M3 without sign: value = e[j / 16] / 2 * code
};

enum class Layout : uint8_t {
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  affine8,
  q1_0,
  q2_0,
  q2_0_g128,
  ternary,
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
};
inline constexpr int kLayouts = 26;
/// The kernels of layouts from here on are in files of their own (linear_lowbit_*), and from kFirstGrid on decode by
/// code books (linear_grid_*).
inline constexpr int kFirstLowbit = 9;
inline constexpr int kFirstGrid = 19;
inline constexpr int kLowbitLayouts = kFirstGrid - kFirstLowbit;
inline constexpr int kGridLayouts = kLayouts - kFirstGrid;

/// Sums of a row's int8 activations over a block, as the layouts need them: over values 0-15 (lo), 16-31 (hi) or both;
/// as a float or two int16; or times minus the bias of the codes as an int32 that starts the accumulator of a dot
/// product, plus kRealBits: an accumulator of less than 2^22 either way is then the bits of a float, 3 * 2^22 and the
/// dot product.
enum SumKind : uint8_t {
  kSumAll,   // float
  kSumPair,  // the sums over 0-15 and 16-31 as int16, low and high
  kNeg1,     // int32
  kNeg8,
  kNeg16,
  kNeg64,
  kNeg128,
  kNeg4Low,
  kNeg4High,
  kNeg16Low,
  kNeg16High,
  kNeg32Low,
  kNeg32High,
  kNeg64Low,
  kNeg64High,
};
inline constexpr int kSumKinds = 15;
inline constexpr int32_t kRealBits = 0x4b400000;
inline constexpr float kRealOffset = 12582912.0F;
using SumMask = uint32_t;
constexpr SumMask bit(SumKind kind) {
  return SumMask{1} << kind;
}
/// Not sums: the int8 activations once more, in an order in which code books are decoded (layout_lowbit.h).
inline constexpr SumMask kTransposed = SumMask{1} << 30, kStrided = SumMask{1} << 29;

struct SumInfo {
  int8_t part;         // 0 all, 1 low, 2 high
  int16_t multiplier;  // 1 means a float, 0 a pair
  /// What is stored for the sums of a block: all, low, high.
  constexpr int32_t stored(const int32_t* parts) const {
    if (multiplier == 0) return (parts[1] & 0xffff) | static_cast<int32_t>(static_cast<uint32_t>(parts[2]) << 16);
    return multiplier == 1 ? __builtin_bit_cast(int32_t, static_cast<float>(parts[part]))
                           : parts[part] * multiplier + kRealBits;
  }
};
inline constexpr SumInfo kSumInfo[kSumKinds] = {{0, 1},   {0, 0},    {0, -1},  {0, -8},  {0, -16},
                                                {0, -64}, {0, -128}, {1, -4},  {2, -4},  {1, -16},
                                                {2, -16}, {1, -32},  {2, -32}, {1, -64}, {2, -64}};

struct LayoutInfo {
  QuantStore quants;
  ScaleStore scales;
  int16_t bias;         // added to a code to make it unsigned
  int16_t quant_bytes;  // of a block of a tile
  int16_t scale_bytes;  // of `scale_blocks` blocks of a tile
  int8_t scale_blocks;  // blocks that share a part of the scales
  int8_t exponent;      // odd_*: d is the file's f16 times two to this power
  SumMask sums;         // what the kernels read
};
inline constexpr LayoutInfo kLayoutInfo[kLayouts] = {
    {QuantStore::nibbles, ScaleStore::one, 8, 256, 32, 1, 0, bit(kNeg8)},
    {QuantStore::nibbles, ScaleStore::one_min, 0, 256, 64, 1, 0, bit(kSumAll)},
    {QuantStore::five_bits, ScaleStore::one, 16, 320, 32, 1, 0, bit(kNeg16)},
    {QuantStore::five_bits, ScaleStore::one_min, 0, 320, 64, 1, 0, bit(kSumAll)},
    {QuantStore::bytes, ScaleStore::one, 128, 512, 32, 1, 0, bit(kNeg128)},
    {QuantStore::nibbles, ScaleStore::k_min, 0, 256, 320, 8, 0, bit(kSumAll)},
    {QuantStore::five_bits, ScaleStore::k_min, 0, 320, 320, 8, 0, bit(kSumAll)},
    {QuantStore::six_bits, ScaleStore::k_sixteen, 32, 384, 288, 8, 0, bit(kNeg32Low) | bit(kNeg32High)},
    {QuantStore::bytes, ScaleStore::affine, 128, 512, 128, 1, 0, bit(kNeg128) | bit(kSumAll)},
    {QuantStore::one_bit, ScaleStore::one, 1, 64, 32, 4, 0, bit(kNeg1)},
    {QuantStore::two_bits, ScaleStore::one, 1, 128, 32, 2, 0, bit(kNeg1)},
    {QuantStore::two_bits, ScaleStore::one, 1, 128, 32, 4, 0, bit(kNeg1)},
    {QuantStore::two_bits, ScaleStore::one, 1, 128, 32, 8, 0, bit(kNeg1)},
    {QuantStore::two_bits, ScaleStore::k_pairs, 0, 128, 320, 8, 0, bit(kSumPair)},
    {QuantStore::three_bits, ScaleStore::k_sixteen, 4, 192, 288, 8, 0, bit(kNeg4Low) | bit(kNeg4High)},
    {QuantStore::iq4_nibbles, ScaleStore::one, 128, 256, 32, 1, 0, bit(kNeg128)},
    {QuantStore::iq4_nibbles, ScaleStore::k_one, 128, 256, 160, 8, 0, bit(kNeg128)},
    {QuantStore::fp4_nibbles, ScaleStore::e8m0, 16, 256, 16, 1, 0, bit(kNeg16)},
    {QuantStore::fp4_nibbles, ScaleStore::e4m3_two, 16, 256, 32, 1, 0, bit(kNeg16Low) | bit(kNeg16High)},
    {QuantStore::eights, ScaleStore::odd_one, 64, 128, 96, 8, -3, bit(kNeg64) | kStrided},
    {QuantStore::eights, ScaleStore::odd_two, 64, 136, 160, 8, -3, bit(kNeg64Low) | bit(kNeg64High) | kTransposed},
    {QuantStore::eights, ScaleStore::odd_two, 64, 144, 160, 8, -3, bit(kNeg64Low) | bit(kNeg64High) | kTransposed},
    {QuantStore::fours, ScaleStore::odd_one, 64, 192, 96, 8, -2, bit(kNeg64) | kTransposed},
    {QuantStore::fours, ScaleStore::odd_one, 16, 208, 96, 8, 0, bit(kNeg16) | kTransposed},
    {QuantStore::eights, ScaleStore::odd_one, 16, 96, 96, 8, -3, bit(kNeg16) | kTransposed},
    {QuantStore::eights, ScaleStore::odd_two, 16, 96, 160, 8, -3, bit(kNeg16Low) | bit(kNeg16High) | kTransposed},
};
constexpr const LayoutInfo& layout_info(Layout layout) {
  return kLayoutInfo[static_cast<int>(layout)];
}

/// The layout of a quantised type. Every quantised type has one.
Layout layout_of(TensorType type);

/// The shape of a packed matrix, as the kernels see it.
struct PackedShape {
  Layout layout;
  int32_t blocks;       // K / 32
  int32_t segments;     // rule 4
  int64_t scale_bytes;  // of a tile; its quants follow
  int64_t tile_bytes;   // a multiple of 64
  const std::byte* block_scales(const std::byte* tile, int64_t block) const {
    const LayoutInfo& info = layout_info(layout);
    return tile + block / info.scale_blocks * info.scale_bytes;
  }
  const std::byte* block_quants(const std::byte* tile, int64_t block) const {
    return tile + scale_bytes + block * layout_info(layout).quant_bytes;
  }
};
PackedShape packed_shape(Layout layout, int64_t cols);

/// A packed weight: [experts][tiles][tile_bytes], aligned to 64 bytes. Outputs beyond `rows` in the last tile are zero.
struct PackedWeight {
  PackedShape shape{};
  int64_t rows = 0, cols = 0, experts = 1, tiles = 0;
  const std::byte* data = nullptr;
  const std::byte* tile(int64_t expert, int64_t t) const { return data + (expert * tiles + t) * shape.tile_bytes; }
  size_t bytes() const { return static_cast<size_t>(experts * tiles * shape.tile_bytes); }
};

/// The packed shape of `weight` without data.
PackedWeight plan_packing(const Weight& weight);

/// Packs tile `t` of matrix `expert` into `out` (shape.tile_bytes bytes).
void pack_tile(const Weight& weight, const PackedShape& shape, int64_t expert, int64_t t, std::byte* out);

/// One output's block, read back from a tile: for the scalar kernel and tests.
struct PackedBlock {
  int8_t code[32];
  int32_t scale[2], offset[2];
  float d[2], d_offset;
};
void read_block(const std::byte* tile, const PackedShape& shape, int64_t block, int32_t output, PackedBlock& out);

}  // namespace cohort::cpu
