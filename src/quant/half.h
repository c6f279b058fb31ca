// Bit conversions between f32 and the 16-bit float formats: round to nearest even, subnormals kept, NaN stays NaN.
// Integer arithmetic only, so the result is the same on every machine and usable in constant expressions.
#pragma once

#include <bit>
#include <cstdint>

namespace cohort {

/// IEEE binary16 to f32; exact for every input (a NaN keeps its sign and payload).
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) {
    return std::bit_cast<float>(sign);
  }
  // Subnormal: mantissa * 2^-24. Move the leading one to bit 10, where it becomes the implicit one.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;
  mantissa = (mantissa << shift) & 0x3ffu;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (mantissa << 13));
}

/// f32 to IEEE binary16, round to nearest even; values of 65520 and more become infinity, a NaN becomes a quiet NaN.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {  // 65520, half way between the largest half and 65536
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (magnitude >= 0x38800000u) {  // 2^-14 and more: a normal half; the carry of the rounding may move the exponent
    const uint32_t rebased = magnitude - (112u << 23);
    return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) {  // at most 2^-25: half of the smallest subnormal ties to zero
    return static_cast<uint16_t>(sign);
  }
  const uint32_t shift = 126 - (magnitude >> 23);  // 14 .. 24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t dropped = mantissa & ((1u << shift) - 1);
  const uint32_t middle = 1u << (shift - 1);
  const uint32_t up = dropped > middle || (dropped == middle && (kept & 1u) != 0) ? 1 : 0;
  return static_cast<uint16_t>(sign | (kept + up));
}

/// bfloat16 to f32; exact.
constexpr float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// f32 to bfloat16, round to nearest even; a NaN becomes a quiet NaN with the upper bits of its payload.
constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace cohort
