// Rows of int8 activations (docs/NUMERICS.md, rule 2) as the tile kernels read them.
//
// Rows go in chunks of at most 16. Within a chunk of n rows: q is [block][n][32] int8 (so a block of a chunk is an AMX
// A tile), d is [block][n] f32, and each kind of sum that some consumer reads is [block][n]. Where a consumer asks for
// it, q is there a second time, each half of a block (16 values) as a transposed matrix of 4 x 4: values 0, 4, 8, 12,
// 1, 5, ...; or strided, the block as a transposed matrix of 4 x 8: values 0, 8, 16, 24, 1, 9, ... (layout_lowbit.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/layout.h"

namespace cohort::cpu {

/// One chunk. `sums[kind]` is null for kinds that nobody asked for (`kinds` has those that somebody did); kSum* hold
/// floats in the same 4 bytes.
struct ActivationChunk {
  int8_t* q = nullptr;
  float* d = nullptr;
  int8_t* transposed = nullptr;  // null unless asked for, as strided
  int8_t* strided = nullptr;
  int32_t* sums[kSumKinds] = {};
  SumMask kinds = 0;
  int32_t rows = 0;

  /// Stores what each kind makes of a block's sums over all values, 0-15 and 16-31; `at` = block * rows + row.
  /// (Always inlined: the kernels' files are compiled for instructions that others may not emit.)
  __attribute__((always_inline)) void store_sums(int64_t at, const int32_t* parts) const {
    for (SumMask left = kinds; left != 0; left &= left - 1) {
      const int kind = __builtin_ctz(left);
      sums[kind][at] = kSumInfo[kind].stored(parts);
    }
  }
};

/// Memory for up to `capacity` rows of `cols` values, without any processing of its own.
class ActivationBuffer {
 public:
  ActivationBuffer() = default;
  /// Grows to hold `rows` rows (rounded up to whole chunks); keeps memory that is large enough. Contents are lost.
  void reserve(int64_t rows, int64_t cols, SumMask sums);
  SumMask sums() const { return sums_; }
  int64_t blocks() const { return blocks_; }
  /// Chunk `index` of a buffer of which `rows` rows are in use.
  ActivationChunk chunk(int64_t index, int64_t rows) const {
    const auto left = rows - index * kChunkRows;
    return at(index * kChunkRows, static_cast<int32_t>(left < kChunkRows ? left : kChunkRows));
  }
  /// The chunk of `rows` rows (at most 16) that starts at row `first` of the memory.
  ActivationChunk at(int64_t first, int32_t rows) const {
    ActivationChunk chunk;
    chunk.q = q_ + first * blocks_ * kBlockValues;
    chunk.d = d_ + first * blocks_;
    if (transposed_ != nullptr) chunk.transposed = transposed_ + first * blocks_ * kBlockValues;
    if (strided_ != nullptr) chunk.strided = strided_ + first * blocks_ * kBlockValues;
    int32_t* sums = sums_memory_;
    chunk.kinds = sums_ & ~(kTransposed | kStrided);
    for (SumMask left = chunk.kinds; left != 0; left &= left - 1) {
      chunk.sums[std::countr_zero(left)] = sums + first * blocks_;
      sums += capacity_ * blocks_;
    }
    chunk.rows = rows;
    return chunk;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
  int64_t capacity_ = 0, blocks_ = 0;
  SumMask sums_ = 0;
  int8_t* q_ = nullptr;
  int8_t* transposed_ = nullptr;
  int8_t* strided_ = nullptr;
  float* d_ = nullptr;
  int32_t* sums_memory_ = nullptr;
};

/// Copies row `from_row` of one chunk to row `to_row` of another (same blocks; the kinds of `to` must exist in `from`).
void copy_row(const ActivationChunk& from, int32_t from_row, const ActivationChunk& to, int32_t to_row, int64_t blocks);

}  // namespace cohort::cpu
