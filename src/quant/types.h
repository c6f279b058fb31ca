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
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  // "q4_k"
  uint32_t block_values;  // values in one block along a row
  uint32_t block_bytes;
  bool weight;     // can be decoded to float (integers i8..i64 cannot be weights)
  bool quantised;  // enters linear layers through int8 activations (not f32, f16, bf16)
};

/// The facts of a type, or nullptr for an id this build does not know.
const TypeInfo* find_type(uint32_t id);
const TypeInfo* find_type(std::string_view name);  // case-insensitive
const TypeInfo& type_info(TensorType type);
std::span<const TypeInfo> all_types();

/// Bytes of `values` consecutive values; `values` must be a multiple of block_values.
size_t row_bytes(TensorType type, int64_t values);

/// Decodes `values` values (a multiple of block_values) to f32, bit for bit what the Python `gguf` package gives.
void decode_row(TensorType type, const std::byte* source, float* out, int64_t values);

/// Encodes `values` f32 values; unsupported when the type has no encoder, invalid_argument when `values` is not a
/// multiple of the block.
Expected<void> encode_row(TensorType type, const float* source, std::byte* out, int64_t values);
bool has_encoder(TensorType type);

/// The integer view of one 32-block of a quantised row: what the canonical dot product (docs/NUMERICS.md, rule 3)
/// multiplies.
///   isum = sum_j coeff[j] * q[j]           exact in int32, |isum| < 2^24
///   acc  = fma(scale * dx, float(isum), acc)
///   msum = sum_j offset[j] * q[j]          only when has_offset
///   acc  = fma(offset_scale * dx, float(msum), acc)
/// Integer sub-scales are folded into coeff and offset, so value j is scale * coeff[j] + offset_scale * offset[j].
struct IntBlock {
  int32_t coeff[32];
  int32_t offset[32];
  float scale;
  float offset_scale;
  bool has_offset;
};

/// Decodes the 32-block `index` (of the row that starts at `row`) of a quantised type.
void decode_int_block(TensorType type, const std::byte* row, int64_t index, IntBlock& out);

}  // namespace cohort
