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

inline constexpr int32_t kTileOutputs = 16;
inline constexpr int32_t kChunkRows = 16;  // rows that share an activation chunk; the rows of an AMX tile
inline constexpr int32_t kBlockValues = 32;

/// How the quants of a 32-block are stored.
enum class QuantStore : uint8_t { nibbles, five_bits, six_bits, bytes };

/// What stands beside the quants. Sub-scales and offsets are integers; products with sums of activations stay below
/// 2^24 and are therefore exact in f32.
enum class ScaleStore : uint8_t {
  one,        // f16 d
  one_min,    // f16 d, f16 m: value = d * code + m
  k_min,      // per 256: f16 d, f16 dmin; per block u8 s, u8 m: value = d * s * code - dmin * m
  k_sixteen,  // per 256: f16 d; per block i8 s[2]: value = d * s[j / 16] * code
  wide,       // f32 d, f32 d_offset, i16 s[2], i16 o[2]: value = d * s[j / 16] * code + d_offset * o[j / 16]
  two,        // f32 d[2], i16 s[2]: two groups of 16, each with its own float scale (NVFP4)
};

enum class Layout : uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, wide4, wide8, two8 };
inline constexpr int kLayouts = 11;

/// Sums of a row's int8 activations over a block, as the layouts need them: over values 0-15 (lo), 16-31 (hi) or both;
/// as a float, or times minus the bias of the codes as an int32 that starts the accumulator of a dot product.
enum SumKind : uint8_t {
  kSumAll,  // float
  kSumLow,  // float
  kSumHigh,
  kNeg8,  // int32
  kNeg16,
  kNeg128,
  kNeg8Low,
  kNeg8High,
  kNeg32Low,
  kNeg32High,
  kNeg128Low,
  kNeg128High,
};
inline constexpr int kSumKinds = 12;
using SumMask = uint32_t;
constexpr SumMask bit(SumKind kind) {
  return SumMask{1} << kind;
}

struct SumInfo {
  int8_t part;         // 0 all, 1 low, 2 high
  int16_t multiplier;  // 1 means a float
};
inline constexpr SumInfo kSumInfo[kSumKinds] = {{0, 1},  {1, 1},  {2, 1},   {0, -8},  {0, -16},  {0, -128},
                                                {1, -8}, {2, -8}, {1, -32}, {2, -32}, {1, -128}, {2, -128}};

struct LayoutInfo {
  QuantStore quants;
  ScaleStore scales;
  int16_t bias;         // added to a code to make it unsigned
  int16_t quant_bytes;  // of a block of a tile
  int16_t scale_bytes;  // of a block (of eight blocks for k_*) of a tile
  SumMask sums;         // what the kernels read
};
inline constexpr LayoutInfo kLayoutInfo[kLayouts] = {
    {QuantStore::nibbles, ScaleStore::one, 8, 256, 32, bit(kNeg8)},
    {QuantStore::nibbles, ScaleStore::one_min, 0, 256, 64, bit(kSumAll)},
    {QuantStore::five_bits, ScaleStore::one, 16, 320, 32, bit(kNeg16)},
    {QuantStore::five_bits, ScaleStore::one_min, 0, 320, 64, bit(kSumAll)},
    {QuantStore::bytes, ScaleStore::one, 128, 512, 32, bit(kNeg128)},
    {QuantStore::nibbles, ScaleStore::k_min, 0, 256, 320, bit(kSumAll)},
    {QuantStore::five_bits, ScaleStore::k_min, 0, 320, 320, bit(kSumAll)},
    {QuantStore::six_bits, ScaleStore::k_sixteen, 32, 384, 288, bit(kNeg32Low) | bit(kNeg32High)},
    {QuantStore::nibbles, ScaleStore::wide, 8, 256, 256, bit(kNeg8Low) | bit(kNeg8High) | bit(kSumLow) | bit(kSumHigh)},
    {QuantStore::bytes, ScaleStore::wide, 128, 512, 256,
     bit(kNeg128Low) | bit(kNeg128High) | bit(kSumLow) | bit(kSumHigh)},
    {QuantStore::bytes, ScaleStore::two, 128, 512, 192, bit(kNeg128Low) | bit(kNeg128High)},
};
constexpr const LayoutInfo& layout_info(Layout layout) {
  return kLayoutInfo[static_cast<int>(layout)];
}
constexpr bool has_super_blocks(ScaleStore store) {
  return store == ScaleStore::k_min || store == ScaleStore::k_sixteen;
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
