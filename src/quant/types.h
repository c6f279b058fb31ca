// Tensor types and their block layouts. Ids are GGUF's (ggml_type); sizes from the GGUF specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cohort/error.h"

namespace cohort {

enum class TensorType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
  // Not an id of any file: Q2_0 as its first writers laid it out, one scale for 128 values. Files name it 42 as well;
  // the size of the tensor tells them apart (see find_type).
  q2_0_g128 = 0x10000 + 42,
  // Layouts that checkpoint folders are brought into (models/packed_weights.h); no file holds them.
  affine8 = 0x10000 + 100,   // f32 d, f32 m, 32 int8: d * q + m
  fp8_e4m3 = 0x10000 + 101,  // f32 d, 32 E4M3: d * q; multiplied as floats
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  // "q4_k"
  uint32_t block_values;  // values in one block along a row
  uint32_t block_bytes;
  bool weight;     // can be decoded to float (integers i8..i64 cannot be weights)
  bool quantised;  // enters linear layers through int8 activations (not f32, f16, bf16)
};

/// The facts of a type, or nullptr for an id of a file that this build does not know.
const TypeInfo* find_type(uint32_t id);
/// As above, for a tensor of `values` values whose data has room for `bytes` bytes (up to the next tensor): knows the
/// layouts that share an id. Only for Q2_0 can the result differ from find_type(id).
const TypeInfo* find_type(uint32_t id, int64_t values, uint64_t bytes);
const TypeInfo* find_type(std::string_view name);  // case-insensitive
const TypeInfo& type_info(TensorType type);
/// The types that files hold.
std::span<const TypeInfo> all_types();

/// Bytes of `values` consecutive values; `values` must be a multiple of block_values.
size_t row_bytes(TensorType type, int64_t values);

/// Decodes `values` values (a multiple of block_values) of a weight type to f32, bit for bit what the Python `gguf`
/// package gives (a NaN is some NaN: its sign and payload are not defined).
void decode_row(TensorType type, const std::byte* source, float* out, int64_t values);

/// Encodes `values` f32 values to row_bytes(type, values) bytes at `out`. `importance` is null or holds `values`
/// weights >= 0 (of the squared error of each value, as an importance matrix gives them); encoders that choose their
/// scales by search use it. Errors: unsupported when the type has no encoder; invalid_argument when `values` is not a
/// multiple of the block, and for a value that the type cannot hold (NaN or infinity in a quantised type, magnitudes
/// beyond its f16 scales).
Expected<void> encode_row(TensorType type, const float* source, std::byte* out, int64_t values,
                          const float* importance = nullptr);
bool has_encoder(TensorType type);

/// The parts of one 32-block of a quantised row, as a packer for a kernel wants them. With g = j / 16, value j is
///   d[g] * scale[g] * code[j] + d_offset * offset[g]     (the second term only when has_offset)
/// where d[g] * scale[g] * code[j] is exact in f32 (barring overflow), and so is the offset term: at most the sum
/// rounds. Whether there is an offset depends on the type alone; d[0] == d[1] in every type but NVFP4; scale and offset
/// are the integer sub-scales (1 where a type has none; equal where they cover 32 values). Powers of two of IQ1, IQ2
/// and IQ3 are in d.
struct CodeBlock {
  int8_t code[32];
  int16_t scale[2];
  int16_t offset[2];
  float d[2];
  float d_offset;
  bool has_offset;
};

/// Decodes the 32-block `index` of the quantised row that starts at `row`.
void decode_code_block(TensorType type, const std::byte* row, int64_t index, CodeBlock& out);

/// The integer view of one 32-block of a quantised row: what the canonical dot product (docs/NUMERICS.md, rule 3)
/// multiplies. In one group (every type but NVFP4), with activations dx * q[j]:
///   isum = sum_j coeff[j] * q[j]           exact in int32, |isum| < 2^24
///   acc  = fma(scale * dx, float(isum), acc)
///   msum = sum_j offset[j] * q[j]          only when has_offset
///   acc  = fma(offset_scale * dx, float(msum), acc)
/// In two groups (groups == 2) values 0-15 are one fma with `scale` and then values 16-31 another with `scale2`:
///   acc  = fma(scale * dx, float(sum_{j<16} coeff[j] * q[j]), acc)
///   acc  = fma(scale2 * dx, float(sum_{j>=16} coeff[j] * q[j]), acc)
/// Integer sub-scales are folded into coeff and offset, so value j is scale * coeff[j] + offset_scale * offset[j].
struct IntBlock {
  int32_t coeff[32];
  int32_t offset[32];  // zeros when !has_offset
  float scale;
  float scale2;  // equal to scale when groups == 1
  float offset_scale;
  bool has_offset;  // never together with groups == 2
  uint8_t groups;
};

/// Decodes the 32-block `index` (of the row that starts at `row`) of a quantised type.
void decode_int_block(TensorType type, const std::byte* row, int64_t index, IntBlock& out);

}  // namespace cohort
