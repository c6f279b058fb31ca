// The inside of src/quant: what each family of block formats provides to the dispatch in row.cpp.
//
// A format is a struct with
//   static constexpr int values, bytes;                                   one block
//   static void unpack(const uint8_t* block, int part, CodeBlock& out);   its 32 values 32*part .. 32*part+31
// and everything else (decoding to float, the integer view) follows from unpack by the two functions below: in every
// format a value is d * scale * code with an exact product, plus at most one offset product (see CodeBlock).
#pragma once

#include <cstdint>

#include "quant/half.h"
#include "quant/types.h"

namespace cohort::quant {

/// Ends the program: only for calls that break a documented precondition, never reachable from input.
[[noreturn]] void bug(const char* what);
inline void require(bool condition, const char* what) {
  if (!condition) {
    bug(what);
  }
}

/// Little-endian loads from unaligned bytes.
inline uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | (p[1] << 8));
}
inline uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
         static_cast<uint32_t>(p[3]) << 24;
}
inline float load_f16(const uint8_t* p) {
  return f16_to_f32(load_u16(p));
}

inline void store_u16(uint8_t* p, uint16_t value) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}
inline void store_u32(uint8_t* p, uint32_t value) {
  store_u16(p, static_cast<uint16_t>(value));
  store_u16(p + 2, static_cast<uint16_t>(value >> 16));
}

/// Sets the fields of `out` that most formats share: one scale d, no sub-scales, no offset.
inline void plain_block(CodeBlock& out, float d) {
  out.d[0] = out.d[1] = d;
  out.scale[0] = out.scale[1] = 1;
  out.offset[0] = out.offset[1] = 0;
  out.d_offset = 0;
  out.has_offset = false;
}

inline void expand_floats(const CodeBlock& block, float* out) {
  for (int group = 0; group < 2; ++group) {
    const float d = block.d[group] * static_cast<float>(block.scale[group]);
    const int8_t* code = block.code + 16 * group;
    float* values = out + 16 * group;
    if (block.has_offset) {
      const float offset = block.d_offset * static_cast<float>(block.offset[group]);
      for (int j = 0; j < 16; ++j) {
        values[j] = d * static_cast<float>(code[j]) + offset;
      }
    } else {
      for (int j = 0; j < 16; ++j) {
        values[j] = d * static_cast<float>(code[j]);
      }
    }
  }
}

/// The functions of one quantised format, found by find_codec().
struct Codec {
  void (*unpack)(const uint8_t* block, int part, CodeBlock& out);
  void (*decode)(const uint8_t* source, float* out, int64_t blocks);
};

template <class Format>
void decode_blocks(const uint8_t* source, float* out, int64_t blocks) {
  CodeBlock part;
  for (int64_t block = 0; block < blocks; ++block, source += Format::bytes) {
    for (int i = 0; i < Format::values / 32; ++i, out += 32) {
      Format::unpack(source, i, part);
      expand_floats(part, out);
    }
  }
}

template <class Format>
constexpr Codec make_codec() {
  return {&Format::unpack, &decode_blocks<Format>};
}

/// The codec of a quantised type, or nullptr; one lookup per family file.
const Codec* legacy_codec(TensorType type);
const Codec* k_codec(TensorType type);
const Codec* iq_codec(TensorType type);
const Codec* ternary_codec(TensorType type);
const Codec* fp4_codec(TensorType type);
const Codec* checkpoint_codec(TensorType type);

/// The six-bit scale and minimum of part `index` (0..7) in the 12 bytes of Q4_K and Q5_K.
void unpack_k_scales(const uint8_t* packed, int index, int& scale, int& minimum);
/// Half the value of an 8-bit scale: E8M0 (MXFP4), unsigned E4M3 (NVFP4).
float e8m0_half(uint8_t exponent);
float ue4m3_half(uint8_t bits);

/// Encodes one block of the type; `importance` weighs the squared error of each value and may be nullptr.
using BlockEncoder = void (*)(const float* values, const float* importance, uint8_t* block);

/// The encoder of a quantised type, or nullptr; one lookup per family file.
BlockEncoder legacy_encoder(TensorType type);
BlockEncoder k_encoder(TensorType type);
BlockEncoder iq_encoder(TensorType type);
BlockEncoder iq4_encoder(TensorType type);
BlockEncoder ternary_encoder(TensorType type);
BlockEncoder fp4_encoder(TensorType type);

}  // namespace cohort::quant
