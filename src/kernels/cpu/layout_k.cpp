#include "kernels/cpu/layout_k.h"

#include <cstring>

#include "base/bytes.h"

namespace cohort::cpu {
namespace {

constexpr int64_t kSuperBlocks = 8;  // 32-blocks in a block of 256
constexpr uint32_t kNibbles = 0x0f0f0f0f;

int at(const std::byte* bytes, int64_t i) {
  return static_cast<int>(bytes[i]);
}

/// The scale and the offset of block `b` of a block of 256, out of the 12 bytes that hold 16 numbers of six bits.
void k_scales(const std::byte* from, int64_t b, std::byte& scale, std::byte& offset) {
  if (b < 4) {
    scale = static_cast<std::byte>(at(from, b) & 63);
    offset = static_cast<std::byte>(at(from, b + 4) & 63);
  } else {
    scale = static_cast<std::byte>((at(from, b + 4) & 15) | (at(from, b - 4) >> 6 << 4));
    offset = static_cast<std::byte>((at(from, b + 4) >> 4) | (at(from, b) >> 6 << 4));
  }
}

/// d, minus dmin, scales and offsets of a block of 256 of Q4_K and Q5_K.
void pack_k_min(const std::byte* block, int32_t lane, std::byte* to) {
  std::memcpy(to + 2 * lane, block, 2);
  // The file subtracts, the kernels add.
  to[32 + 2 * lane] = block[2];
  to[33 + 2 * lane] = block[3] ^ std::byte{0x80};
  for (int64_t b = 0; b < kSuperBlocks; ++b) k_scales(block + 4, b, to[64 + 32 * b + lane], to[80 + 32 * b + lane]);
}

/// The nibbles of 32-block b of a block of 256 of Q4_K and Q5_K: 32 bytes hold one block low and the next one high.
void pack_k_nibbles(const std::byte* nibbles, int64_t b, std::byte* to) {
  const std::byte* from = nibbles + b / 2 * 32;
  const int64_t shift = b % 2 * 4;
  for (int64_t i = 0; i < 4; ++i) {
    const uint32_t low = (load<uint32_t>(from + 4 * i) >> shift) & kNibbles;
    const uint32_t high = (load<uint32_t>(from + 16 + 4 * i) >> shift) & kNibbles;
    store<uint32_t>(to + 64 * i, low | high << 4);
  }
}

void pack_q4_k(const std::byte* block, int32_t lane, std::byte* scales, std::byte* quants) {
  pack_k_min(block, lane, scales);
  for (int64_t b = 0; b < kSuperBlocks; ++b) pack_k_nibbles(block + 16, b, quants + b * 256 + 4 * lane);
}

void pack_q5_k(const std::byte* block, int32_t lane, std::byte* scales, std::byte* quants) {
  pack_k_min(block, lane, scales);
  for (int64_t b = 0; b < kSuperBlocks; ++b) {
    std::byte* to = quants + b * 320;
    pack_k_nibbles(block + 48, b, to + 4 * lane);
    for (int64_t i = 0; i < 8; ++i) {
      // Bit b of each of four bytes, side by side.
      const uint32_t bits = (load<uint32_t>(block + 16 + 4 * i) >> b) & 0x01010101;
      const uint64_t four = (bits | bits >> 7 | bits >> 14 | bits >> 21) & 15;
      uint64_t mask = 0;
      std::memcpy(&mask, to + 256 + 8 * i, sizeof mask);
      mask |= four << (4 * lane);
      std::memcpy(to + 256 + 8 * i, &mask, sizeof mask);
    }
  }
}

void pack_q6_k(const std::byte* block, int32_t lane, std::byte* scales, std::byte* quants) {
  std::memcpy(scales + 2 * lane, block + 208, 2);
  for (int64_t i = 0; i < 2 * kSuperBlocks; ++i) scales[32 + 16 * i + lane] = block[192 + i];
  for (int64_t b = 0; b < kSuperBlocks; ++b) {
    // 128 values: 64 bytes of nibbles (two blocks low, two high), 32 bytes of two bits for each of the four blocks.
    const int64_t quarter = b % 4;
    const std::byte* nibbles = block + b / 4 * 64 + quarter % 2 * 32;
    const std::byte* twos = block + 128 + b / 4 * 32;
    std::byte* to = quants + b * 384 + 4 * lane;
    for (int64_t i = 0; i < 4; ++i) {
      const uint32_t low = (load<uint32_t>(nibbles + 4 * i) >> (quarter / 2 * 4)) & kNibbles;
      const uint32_t high = (load<uint32_t>(nibbles + 16 + 4 * i) >> (quarter / 2 * 4)) & kNibbles;
      store<uint32_t>(to + 64 * i, low | high << 4);
    }
    for (int64_t half = 0; half < 2; ++half) {
      uint32_t packed = 0;
      for (int64_t i = 0; i < 4; ++i) {
        packed |= ((load<uint32_t>(twos + 16 * half + 4 * i) >> (2 * quarter)) & 0x03030303) << (2 * i);
      }
      store<uint32_t>(to + 256 + 64 * half, packed);
    }
  }
}

struct KType {
  int64_t block_bytes, scale_bytes, quant_bytes;
  void (*pack)(const std::byte* block, int32_t lane, std::byte* scales, std::byte* quants);
};

}  // namespace

bool pack_k_row(const Weight& weight, const std::byte* row, int64_t blocks, int32_t lane, std::byte* scales,
                std::byte* quants) {
  KType k{};
  if (weight.type == TensorType::q4_k) {
    k = {144, 320, 8 * 256, pack_q4_k};
  } else if (weight.type == TensorType::q5_k) {
    k = {176, 320, 8 * 320, pack_q5_k};
  } else if (weight.type == TensorType::q6_k) {
    k = {210, 288, 8 * 384, pack_q6_k};
  } else {
    return false;
  }
  for (int64_t super = 0; super < blocks / kSuperBlocks; ++super)
    k.pack(row + super * k.block_bytes, lane, scales + super * k.scale_bytes, quants + super * k.quant_bytes);
  return true;
}

}  // namespace cohort::cpu
