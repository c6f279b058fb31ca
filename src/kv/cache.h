// Paged KV storage on the host. Pages are allocated by src/kv/pages.h; this is only their memory.
//
// Page layout per layer, chosen for decode: K is [kv_head][dim][position in page] so that 16 positions fill a vector
// while q[dim] is broadcast and shared by all query heads of a group (rule 7 sums over dim in order); V is
// [kv_head][position][dim].
//
// In a q8_0 cache 32 dimensions of a position share a scale, in K and in V. The area of a head is then the scales, f16,
// [dim / 32][position], and after them the codes, int8, in the order above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/program.h"
#include "quant/types.h"

namespace cohort {

inline constexpr int32_t kPagePositions = 32;    // one cache line of f16 per (head, dim); divides kSplitPositions
inline constexpr int32_t kSplitPositions = 256;  // rule 7
inline constexpr int32_t kSegmentPositions = 64;

inline constexpr int32_t kScaledDims = 32;  // dimensions that share a scale in a q8_0 cache
constexpr int64_t scale_groups(int64_t head_dim) {
  return (head_dim + kScaledDims - 1) / kScaledDims;
}
/// Bytes of the scales of a head's K (or V) in one page of a q8_0 cache, and of all of it.
constexpr int64_t scale_bytes(int64_t head_dim) {
  return scale_groups(head_dim) * kPagePositions * 2;
}
constexpr int64_t scaled_head_bytes(int64_t head_dim) {
  return scale_bytes(head_dim) + (head_dim * kPagePositions + 63) / 64 * 64;
}

/// f32, f16, bf16 and q8_0 caches.
class KvCache {
 public:
  /// Memory for `pages` pages of every layer; capacity error that says how much memory is missing.
  static Expected<KvCache> create(const std::vector<CacheLayer>& layers, TensorType type, int32_t pages);

  TensorType type() const { return type_; }
  int32_t pages() const { return pages_; }
  size_t page_bytes() const { return page_bytes_; }  // over all layers, K and V
  static size_t page_bytes(const std::vector<CacheLayer>& layers, TensorType type);
  /// Bytes of K (or V) of one page of one layer.
  static size_t half_page(TensorType type, int32_t kv_heads, int32_t head_dim);

  /// Where a page begins. q8_0: see above. Else K of page `page`: element (head, dim, slot) at [(head * head_dim + dim)
  /// * kPagePositions + slot].
  std::byte* keys(int32_t layer, int32_t page) { return at(layer, page); }
  /// V of page `page`: element (head, slot, dim) at [(head * kPagePositions + slot) * head_dim + dim].
  std::byte* values(int32_t layer, int32_t page) { return at(layer, page) + half_bytes_[static_cast<size_t>(layer)]; }

  /// Copies every layer's K and V of page `from` to page `to`.
  void copy_page(int32_t from, int32_t to);

 private:
  std::byte* at(int32_t layer, int32_t page) {
    const auto l = static_cast<size_t>(layer);
    return storage_.data() + layer_offset_[l] + static_cast<size_t>(page) * 2 * half_bytes_[l];
  }
  TensorType type_ = TensorType::f16;
  int32_t pages_ = 0;
  size_t page_bytes_ = 0;
  std::vector<size_t> layer_offset_, half_bytes_;
  struct Storage {
    std::byte* bytes = nullptr;
    size_t size = 0;
    Storage() = default;
    Storage(Storage&& other) noexcept;
    Storage& operator=(Storage&& other) noexcept;
    ~Storage();
    std::byte* data() { return bytes; }
  } storage_;
};

}  // namespace cohort
