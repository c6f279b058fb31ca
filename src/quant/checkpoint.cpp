// Layouts of weights that come from checkpoint folders: Affine8 (integers with a f32 scale and offset) and FP8 with the
// scale of its block. Nothing encodes them: models/packed_weights.h brings the checkpoint's own integers into them.
#include <bit>
#include <cstring>

#include "quant/codec.h"

namespace cohort::quant {
namespace {

float load_f32(const uint8_t* p) {
  return std::bit_cast<float>(load_u32(p));
}

struct Affine8 {  // f32 d, f32 m, 32 int8
  static constexpr int values = 32, bytes = 40;
  static void unpack(const uint8_t* block, int, CodeBlock& out) {
    plain_block(out, load_f32(block));
    out.offset[0] = out.offset[1] = 1;
    out.d_offset = load_f32(block + 4);
    out.has_offset = true;
    std::memcpy(out.code, block + 8, 32);
  }
};

/// E4M3 without infinities: 0x7f and 0xff are NaN. Written so that compilers make vectors of it.
inline float e4m3(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7fU;
  const float normal = std::bit_cast<float>((magnitude << 20) + (120U << 23));
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9F;
  uint32_t bits = std::bit_cast<uint32_t>(magnitude < 8 ? subnormal : normal);
  bits = magnitude == 0x7f ? 0x7fc00000U : bits;
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(byte & 0x80U) << 24));
}

void decode_fp8(const uint8_t* source, float* out, int64_t blocks) {
  for (int64_t block = 0; block < blocks; ++block, source += 36, out += 32) {
    const float d = load_f32(source);
    for (int j = 0; j < 32; ++j) out[j] = d * e4m3(source[4 + j]);
  }
}

[[noreturn]] void no_integers(const uint8_t*, int, CodeBlock&) {
  bug("FP8 has no integer view");
}

constexpr Codec kAffine8 = make_codec<Affine8>();
constexpr Codec kFp8 = {&no_integers, &decode_fp8};

}  // namespace

const Codec* checkpoint_codec(TensorType type) {
  if (type == TensorType::affine8) return &kAffine8;
  return type == TensorType::fp8_e4m3 ? &kFp8 : nullptr;
}

}  // namespace cohort::quant
