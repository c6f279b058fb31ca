#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/needs.h"

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/host_visits.h"
#include "kernels/cuda/step_writer.h"

namespace cohort {
namespace cuda {

Expected<ProgramNeeds> needs_of(const Program& program, const Limits& limits) {
  ProgramNeeds needs;
  HostPart part;
  size_t experts = 0;
  // One expert of each layer on the device: so everything is counted that a layer in two places takes.
  for (const op::Experts* layer : expert_layers(program)) {
    const auto count = static_cast<int32_t>(layer->gate->experts);
    const size_t bytes = device_expert_bytes(*layer);
    needs.memory.layers.push_back({count, bytes});
    experts += bytes;
    auto& on_host = part.experts.emplace_back(static_cast<size_t>(count) - 1);
    std::iota(on_host.begin(), on_host.end(), 1);
  }
  DeviceMemory memory(true);
  const CacheMemory cache;
  COHORT_TRY(allocate_step(memory, limits));
  COHORT_ASSIGN(const auto uploader, Uploader::create(memory, 1, 1.0, {}));
  COHORT_TRY(lower(program, limits, cache, memory, *uploader, 1, part));
  // With all experts on the device there may be a kernel for all layers; it takes a few megabytes.
  needs.memory.fixed = memory.bytes() - experts + flow_bytes(needs.memory.layers.size());
  needs.allocations = memory.allocations() + 3;
  return needs;
}

Expected<void> check_canvas_room(const DeviceNeeds& needs, const Limits& limits, int32_t vocabulary, size_t room) {
  const size_t each = thought_bytes(thoughts_of(vocabulary, limits.canvas));
  const size_t canvases = each * static_cast<size_t>(limits.places), all = needs.fixed + needs.cache_least;
  const size_t rest = all - std::min(all, canvases);
  // With room for no canvas at all it is not their number that is too large.
  if (limits.canvas == 0 || all <= room || rest + each > room) return {};
  const auto bytes = [](size_t count) { return format_bytes(static_cast<double>(count)); };
  return fail(
      ErrorCode::capacity,
      "the canvases of {} streams take {} of device memory beside {} for the rest and {} of KV cache; {} may be "
      "used, enough for {}: run fewer streams (-np), or use --device cpu",
      limits.places, bytes(canvases), bytes(rest - std::min(rest, needs.cache_least)), bytes(needs.cache_least),
      bytes(room), (room - rest) / each);
}

}  // namespace cuda

Expected<DeviceNeeds> cuda_memory_needs(const Program& program, int32_t max_rows, int32_t canvas, int32_t streams) {
  COHORT_ASSIGN(const cuda::ProgramNeeds needs,
                cuda::needs_of(program, cuda::limits_of(program, max_rows, canvas, streams)));
  return needs.memory;
}

}  // namespace cohort

#endif  // COHORT_HAS_CUDA
