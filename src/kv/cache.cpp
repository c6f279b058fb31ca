#include "kv/cache.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory.h"
#include "base/result.h"

namespace cohort {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Bytes of one cached value without its scale, or 0 for types that cannot be a cache.
size_t value_bytes(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return 4;
    case TensorType::f16:
    case TensorType::bf16:
      return 2;
    case TensorType::q8_0:
      return 1;
    default:
      return 0;
  }
}

// Zeroed anonymous memory that starts on a huge page, so that the kernel can back all of it with huge pages.
std::byte* map_zeroed(size_t size) {
  const size_t span = size + kHugePage;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const size_t before = (kHugePage - address % kHugePage) % kHugePage;
  auto* start = static_cast<std::byte*>(raw) + before;
  if (before > 0) munmap(raw, before);
  if (kHugePage > before) munmap(start + size, kHugePage - before);
  madvise(start, size, MADV_HUGEPAGE);  // advice: without it the cache is only slower
  return start;
}

}  // namespace

KvCache::Storage::Storage(Storage&& other) noexcept
    : bytes(std::exchange(other.bytes, nullptr)), size(std::exchange(other.size, 0)) {}

KvCache::Storage& KvCache::Storage::operator=(Storage&& other) noexcept {
  std::swap(bytes, other.bytes);
  std::swap(size, other.size);
  return *this;
}

KvCache::Storage::~Storage() {
  if (bytes != nullptr) munmap(bytes, size);
}

size_t KvCache::half_page(TensorType type, int32_t kv_heads, int32_t head_dim) {
  const auto heads = static_cast<size_t>(kv_heads);
  if (type == TensorType::q8_0) return heads * static_cast<size_t>(scaled_head_bytes(head_dim));
  return heads * static_cast<size_t>(head_dim) * kPagePositions * value_bytes(type);
}

size_t KvCache::page_bytes(const std::vector<CacheLayer>& layers, TensorType type) {
  size_t bytes = 0;
  for (const CacheLayer& layer : layers) bytes += 2 * half_page(type, layer.kv_heads, layer.head_dim);
  return bytes;
}

Expected<KvCache> KvCache::create(const std::vector<CacheLayer>& layers, TensorType type, int32_t pages) {
  if (value_bytes(type) == 0) {
    return fail(ErrorCode::unsupported, "KV cache of tensor type {}: only f32, f16, bf16 and q8_0 caches exist",
                static_cast<uint32_t>(type));
  }
  if (pages < 0)
    return fail(ErrorCode::invalid_argument, "KV cache of {} pages: the number must not be negative", pages);
  KvCache cache;
  cache.type_ = type;
  cache.pages_ = pages;
  cache.page_bytes_ = page_bytes(layers, type);
  const double needed = static_cast<double>(cache.page_bytes_) * pages;
  const size_t available = available_memory();
  if (needed > static_cast<double>(available)) {
    const size_t fitting = available / cache.page_bytes_;
    return fail(ErrorCode::capacity,
                "KV cache of {} pages ({} positions) needs {:.0f} bytes ({}) but {} bytes ({}) are available: {} pages "
                "({} positions) fit; lower the context or the number of streams, or use a smaller cache type",
                pages, int64_t{pages} * kPagePositions, needed, format_bytes(needed), available,
                format_bytes(static_cast<double>(available)), fitting, fitting * kPagePositions);
  }
  size_t total = 0;
  for (const CacheLayer& layer : layers) {
    const size_t half = half_page(type, layer.kv_heads, layer.head_dim);
    cache.layer_offset_.push_back(total);
    cache.half_bytes_.push_back(half);
    total += 2 * half * static_cast<size_t>(pages);
  }
  if (total == 0) return cache;
  const size_t size = (total + kHugePage - 1) / kHugePage * kHugePage;
  cache.storage_.bytes = map_zeroed(size);
  if (cache.storage_.bytes == nullptr) {
    return fail(ErrorCode::capacity,
                "KV cache of {} pages needs {} bytes ({}), which the operating system refused ({}); {} bytes are "
                "available: lower the context or the number of streams",
                pages, size, format_bytes(static_cast<double>(size)), std::strerror(errno), available);
  }
  cache.storage_.size = size;
  return cache;
}

void KvCache::copy_page(int32_t from, int32_t to) {
  for (size_t layer = 0; layer < half_bytes_.size(); ++layer) {
    std::memcpy(keys(static_cast<int32_t>(layer), to), keys(static_cast<int32_t>(layer), from), 2 * half_bytes_[layer]);
  }
}

}  // namespace cohort
