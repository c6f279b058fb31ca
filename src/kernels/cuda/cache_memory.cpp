#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/cache_memory.h"

#include <algorithm>

#include "base/result.h"
#include "kv/cache.h"

namespace cohort::cuda {
namespace {

Expected<CacheType> cache_type(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return CacheType::f32;
    case TensorType::f16:
      return CacheType::f16;
    case TensorType::bf16:
      return CacheType::bf16;
    case TensorType::q8_0:
      return CacheType::q8_0;
    default:
      return fail(ErrorCode::unsupported, "the KV cache on the device can be f32, f16, bf16 or q8_0, not {}",
                  type_info(type).name);
  }
}

}  // namespace

Expected<void> DeviceCache::allocate(const std::vector<CacheLayer>& layers, TensorType type, int32_t pages,
                                     cudaStream_t stream) {
  COHORT_ASSIGN(cache_.type, cache_type(type));
  memory_.clear();
  cache_.keys.clear();
  cache_.values.clear();
  for (const CacheLayer& layer : layers) {
    const size_t bytes = page_half_bytes(cache_.type, layer.kv_heads, layer.head_dim) * static_cast<size_t>(pages);
    for (auto* list : {&cache_.keys, &cache_.values}) {
      COHORT_ASSIGN(void* memory, memory_.allocate(bytes, "the KV cache"));
      // Rows that nobody wrote are read (and not used) beside the last position: they must be numbers.
      COHORT_TRY(check(cudaMemsetAsync(memory, 0, bytes, stream), "clearing the KV cache"));
      list->push_back(static_cast<std::byte*>(memory));
    }
  }
  return check(cudaStreamSynchronize(stream), "clearing the KV cache");
}

void DeviceCache::copy_page(const std::vector<CacheLayer>& layers, int32_t from, int32_t to,
                            cudaStream_t stream) const {
  for (size_t i = 0; i < cache_.keys.size(); ++i) {
    const size_t bytes = page_half_bytes(cache_.type, layers[i].kv_heads, layers[i].head_dim);
    launch_copy_page(cache_.keys[i], bytes, from, to, stream);
    launch_copy_page(cache_.values[i], bytes, from, to, stream);
  }
}

double DeviceCache::bytes_seen(const std::vector<CacheLayer>& layers, int32_t position) const {
  double bytes = 0;
  for (const CacheLayer& layer : layers) {
    const int32_t seen = layer.window > 0 ? std::min(layer.window, position + 1) : position + 1;
    bytes +=
        2.0 * seen / kPagePositions * static_cast<double>(page_half_bytes(cache_.type, layer.kv_heads, layer.head_dim));
  }
  return bytes;
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
