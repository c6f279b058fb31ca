// The table of tensor types.
#include "quant/types.h"

#include <algorithm>
#include <cctype>

#include "quant/codec.h"

namespace cohort {
namespace {

using enum TensorType;

constexpr TypeInfo float_type(TensorType type, std::string_view name, uint32_t bytes) {
  return {type, name, 1, bytes, true, false};
}
constexpr TypeInfo block_type(TensorType type, std::string_view name, uint32_t values, uint32_t bytes) {
  return {type, name, values, bytes, true, true};
}
constexpr TypeInfo plain_type(TensorType type, std::string_view name, uint32_t bytes) {
  return {type, name, 1, bytes, false, false};
}

constexpr TypeInfo types[] = {
    float_type(f32, "f32", 4),
    float_type(f16, "f16", 2),
    float_type(bf16, "bf16", 2),
    block_type(q4_0, "q4_0", 32, 18),
    block_type(q4_1, "q4_1", 32, 20),
    block_type(q5_0, "q5_0", 32, 22),
    block_type(q5_1, "q5_1", 32, 24),
    block_type(q8_0, "q8_0", 32, 34),
    block_type(q2_k, "q2_k", 256, 84),
    block_type(q3_k, "q3_k", 256, 110),
    block_type(q4_k, "q4_k", 256, 144),
    block_type(q5_k, "q5_k", 256, 176),
    block_type(q6_k, "q6_k", 256, 210),
    block_type(iq2_xxs, "iq2_xxs", 256, 66),
    block_type(iq2_xs, "iq2_xs", 256, 74),
    block_type(iq2_s, "iq2_s", 256, 82),
    block_type(iq3_xxs, "iq3_xxs", 256, 98),
    block_type(iq3_s, "iq3_s", 256, 110),
    block_type(iq1_s, "iq1_s", 256, 50),
    block_type(iq1_m, "iq1_m", 256, 56),
    block_type(iq4_nl, "iq4_nl", 32, 18),
    block_type(iq4_xs, "iq4_xs", 256, 136),
    block_type(tq1_0, "tq1_0", 256, 54),
    block_type(tq2_0, "tq2_0", 256, 66),
    block_type(mxfp4, "mxfp4", 32, 17),
    block_type(nvfp4, "nvfp4", 64, 36),
    block_type(q1_0, "q1_0", 128, 18),
    block_type(q2_0, "q2_0", 64, 18),
    block_type(q2_0_g128, "q2_0_g128", 128, 34),
    plain_type(i8, "i8", 1),
    plain_type(i16, "i16", 2),
    plain_type(i32, "i32", 4),
    plain_type(i64, "i64", 8),
    plain_type(f64, "f64", 8),
};

// No file holds these and nothing encodes them, so that they are not among all_types().
constexpr TypeInfo checkpoint_types[] = {
    block_type(affine8, "affine8", 32, 40),
    {fp8_e4m3, "fp8_e4m3", 32, 36, true, false},
};

constexpr uint32_t first_internal_id = 0x10000;  // ids from here on name layouts, not what a file calls them

const TypeInfo* find(TensorType type) {
  const auto* found =
      std::find_if(std::begin(types), std::end(types), [&](const TypeInfo& t) { return t.type == type; });
  return found == std::end(types) ? nullptr : found;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const TypeInfo* find_type(uint32_t id) {
  return id < first_internal_id ? find(static_cast<TensorType>(id)) : nullptr;
}

const TypeInfo* find_type(uint32_t id, int64_t values, uint64_t bytes) {
  const TypeInfo* found = find_type(id);
  if (found == nullptr || found->type != q2_0 || values < 0) {
    return found;
  }
  // 18 bytes for 64 values against 34 for 128: where the newer layout does not fit and the older one does, it is the
  // older one.
  const TypeInfo& older = type_info(q2_0_g128);
  const auto count = static_cast<uint64_t>(values);
  const bool fits = count / found->block_values <= bytes / found->block_bytes;
  const bool older_fits = count % older.block_values == 0 && count / older.block_values <= bytes / older.block_bytes;
  return !fits && older_fits ? &older : found;
}

const TypeInfo* find_type(std::string_view name) {
  const auto* found = std::find_if(std::begin(types), std::end(types),
                                   [&](const TypeInfo& t) { return equal_ignoring_case(t.name, name); });
  return found == std::end(types) ? nullptr : found;
}

const TypeInfo& type_info(TensorType type) {
  for (const TypeInfo& info : checkpoint_types) {
    if (info.type == type) {
      return info;
    }
  }
  const TypeInfo* found = find(type);
  quant::require(found != nullptr, "type_info of a value that is no tensor type");
  return *found;
}

std::span<const TypeInfo> all_types() {
  return types;
}

size_t row_bytes(TensorType type, int64_t values) {
  const TypeInfo& info = type_info(type);
  quant::require(values >= 0 && values % info.block_values == 0, "row_bytes of a part of a block");
  return static_cast<size_t>(values / info.block_values) * info.block_bytes;
}

}  // namespace cohort
