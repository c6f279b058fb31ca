// Element types of safetensors files.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace cohort::safetensors {

enum class DType { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, f8_e8m0, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::string_view dtype_name(DType type);  // as the format spells it: "BF16", "F8_E4M3", "BOOL"
size_t dtype_bytes(DType type);
std::optional<DType> find_dtype(std::string_view name);

}  // namespace cohort::safetensors
