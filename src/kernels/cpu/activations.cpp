#include "kernels/cpu/activations.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace cohort::cpu {

void ActivationBuffer::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

void ActivationBuffer::reserve(int64_t rows, int64_t cols, SumMask sums) {
  const int64_t capacity = (rows + kChunkRows - 1) / kChunkRows * kChunkRows;
  const int64_t blocks = cols / kBlockValues;
  if (capacity <= capacity_ && blocks == blocks_ && sums == sums_) return;
  const auto values = static_cast<size_t>(capacity * blocks);
  const bool transposed = (sums & kTransposed) != 0, strided = (sums & kStrided) != 0;
  const size_t orders = 1U + (transposed ? 1 : 0) + (strided ? 1 : 0);
  const size_t each = kBlockValues * orders + sizeof(float) +
                      sizeof(int32_t) * static_cast<size_t>(std::popcount(sums & ~(kTransposed | kStrided)));
  const size_t bytes = (values * each + 4095) / 4096 * 4096;
  if (bytes > size_) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    if (!memory_) throw std::bad_alloc();
    size_ = bytes;
  }
  capacity_ = capacity;
  blocks_ = blocks;
  sums_ = sums;
  q_ = reinterpret_cast<int8_t*>(memory_.get());
  transposed_ = transposed ? q_ + values * kBlockValues : nullptr;
  strided_ = strided ? q_ + values * kBlockValues * (orders - 1) : nullptr;
  d_ = reinterpret_cast<float*>(q_ + values * kBlockValues * orders);
  sums_memory_ = reinterpret_cast<int32_t*>(d_ + values);
}

namespace {

void copy_values(const int8_t* source, int32_t source_rows, int8_t* target, int32_t target_rows, int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) {
    std::memcpy(target, source, kBlockValues);
    source += int64_t{source_rows} * kBlockValues;
    target += int64_t{target_rows} * kBlockValues;
  }
}

}  // namespace

void copy_row(const ActivationChunk& from, int32_t from_row, const ActivationChunk& to, int32_t to_row,
              int64_t blocks) {
  copy_values(from.q + int64_t{from_row} * kBlockValues, from.rows, to.q + int64_t{to_row} * kBlockValues, to.rows,
              blocks);
  if (to.transposed != nullptr) {
    copy_values(from.transposed + int64_t{from_row} * kBlockValues, from.rows,
                to.transposed + int64_t{to_row} * kBlockValues, to.rows, blocks);
  }
  if (to.strided != nullptr) {
    copy_values(from.strided + int64_t{from_row} * kBlockValues, from.rows, to.strided + int64_t{to_row} * kBlockValues,
                to.rows, blocks);
  }
  for (int64_t b = 0; b < blocks; ++b) to.d[b * to.rows + to_row] = from.d[b * from.rows + from_row];
  for (SumMask left = to.kinds; left != 0; left &= left - 1) {
    const int kind = std::countr_zero(left);
    for (int64_t b = 0; b < blocks; ++b)
      to.sums[kind][b * to.rows + to_row] = from.sums[kind][b * from.rows + from_row];
  }
}

}  // namespace cohort::cpu
