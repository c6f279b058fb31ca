#include "formats/safetensors/dtype.h"

#include <array>

namespace cohort::safetensors {
namespace {

struct Fact {
  DType type;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Fact, 16> kFacts = {{
    {DType::f64, "F64", 8},
    {DType::f32, "F32", 4},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::f8_e4m3, "F8_E4M3", 1},
    {DType::f8_e5m2, "F8_E5M2", 1},
    {DType::f8_e8m0, "F8_E8M0", 1},
    {DType::i64, "I64", 8},
    {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},
    {DType::i8, "I8", 1},
    {DType::u64, "U64", 8},
    {DType::u32, "U32", 4},
    {DType::u16, "U16", 2},
    {DType::u8, "U8", 1},
    {DType::boolean, "BOOL", 1},
}};

}  // namespace

std::string_view dtype_name(DType type) {
  return kFacts[static_cast<size_t>(type)].name;
}
size_t dtype_bytes(DType type) {
  return kFacts[static_cast<size_t>(type)].bytes;
}

std::optional<DType> find_dtype(std::string_view name) {
  for (const Fact& fact : kFacts) {
    if (fact.name == name) return fact.type;
  }
  return std::nullopt;
}

}  // namespace cohort::safetensors
