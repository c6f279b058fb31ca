#include "moe/placement.h"

#include <algorithm>

#include "base/memory.h"
#include "base/result.h"

namespace cohort {

std::vector<std::vector<int32_t>> experts_beyond(const std::vector<ExpertLayer>& layers, size_t budget) {
  struct Candidate {
    size_t layer;
    int32_t expert;
    double worth;
  };
  std::vector<Candidate> all;  // by layer, then by expert
  for (size_t l = 0; l < layers.size(); ++l) {
    for (int32_t e = 0; e < layers[l].experts; ++e) {
      const double count = layers[l].counts.empty() ? 0 : static_cast<double>(layers[l].counts[static_cast<size_t>(e)]);
      all.push_back({l, e, count / static_cast<double>(std::max<size_t>(layers[l].bytes, 1))});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.worth > b.worth; });
  std::vector<std::vector<int32_t>> beyond(layers.size());
  bool full = false;
  for (const Candidate& c : all) {
    full = full || layers[c.layer].bytes > budget;
    if (full) {
      beyond[c.layer].push_back(c.expert);
    } else {
      budget -= layers[c.layer].bytes;
    }
  }
  for (auto& experts : beyond) std::sort(experts.begin(), experts.end());
  return beyond;
}

Expected<Placement> place_experts(const DeviceNeeds& needs, size_t room) {
  if (needs.fixed + needs.cache_least > room) {
    return fail(
        ErrorCode::capacity,
        "even without experts the model needs {} of device memory and {} for its KV cache, {} may be used: lower "
        "the context (-c), free device memory, raise --device-memory, or use --device cpu",
        format_bytes(static_cast<double>(needs.fixed)), format_bytes(static_cast<double>(needs.cache_least)),
        format_bytes(static_cast<double>(room)));
  }
  size_t experts = 0;
  for (const ExpertLayer& layer : needs.layers) experts += layer.bytes * static_cast<size_t>(layer.experts);
  const size_t left = room - needs.fixed - needs.cache_least;
  Placement out;
  out.on_host.resize(needs.layers.size());
  size_t budget = left;
  if (experts > left) {
    const size_t more = std::max(needs.cache_wanted, needs.cache_least) - needs.cache_least;
    budget = left - std::min(more, left / 4);
    out.on_host = experts_beyond(needs.layers, budget);
  }
  for (size_t l = 0; l < needs.layers.size(); ++l) {
    const ExpertLayer& layer = needs.layers[l];
    const auto away = static_cast<int64_t>(out.on_host[l].size());
    out.in_host_memory += away;
    out.on_device += layer.experts - away;
    out.expert_bytes += layer.bytes * static_cast<size_t>(layer.experts - away);
  }
  out.cache = room - needs.fixed - out.expert_bytes;
  return out;
}

}  // namespace cohort
