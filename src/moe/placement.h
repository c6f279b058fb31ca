// Which experts lie in a device's memory when not all of them fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/error.h"

namespace cohort {

struct ExpertLayer {
  int32_t experts = 0;
  size_t bytes = 0;  // of one expert on the device
  /// [experts] how often each was chosen, or empty: unknown.
  std::vector<float> counts = {};
};

/// [layer]: the experts that do not fit `budget` bytes, ascending. Those that were chosen most often for their bytes
/// stay; those that are alike (all of them, where nothing was counted) stay in the order of layers, then of experts, so
/// that most layers lie wholly in one place.
std::vector<std::vector<int32_t>> experts_beyond(const std::vector<ExpertLayer>& layers, size_t budget);

/// What a model needs of a device's memory.
struct DeviceNeeds {
  size_t fixed = 0;                          // all but experts and cache
  size_t cache_least = 0, cache_wanted = 0;  // KV cache: less is an error, more is useless
  std::vector<ExpertLayer> layers;
};

struct Placement {
  std::vector<std::vector<int32_t>> on_host;  // [layer], ascending
  size_t cache = 0;                           // bytes that are left for the cache
  size_t expert_bytes = 0;                    // of the experts on the device
  int64_t on_device = 0, in_host_memory = 0;  // experts
};

/// Places everything in `room` bytes of the device; where experts have to go, the cache gets what it wants, up to a
/// quarter of what is neither fixed nor its least. Error: capacity when even without experts it does not fit.
Expected<Placement> place_experts(const DeviceNeeds& needs, size_t room);

}  // namespace cohort
