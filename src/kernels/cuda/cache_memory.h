// The KV cache in device memory.
#pragma once

#include <vector>

#include "kernels/cuda/lower.h"

namespace cohort::cuda {

class DeviceCache {
 public:
  /// Replaces what was there. Errors: unsupported types, capacity.
  Expected<void> allocate(const std::vector<CacheLayer>& layers, TensorType type, int32_t pages, cudaStream_t stream);
  void copy_page(const std::vector<CacheLayer>& layers, int32_t from, int32_t to, cudaStream_t stream) const;
  const CacheMemory& memory() const { return cache_; }
  size_t bytes() const { return memory_.bytes(); }
  /// Bytes that a row at `position` reads.
  double bytes_seen(const std::vector<CacheLayer>& layers, int32_t position) const;

 private:
  DeviceMemory memory_;
  CacheMemory cache_;
};

}  // namespace cohort::cuda
