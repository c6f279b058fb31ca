#include "kernels/backend.h"

#include "base/memory.h"
#include "base/result.h"

namespace cohort {

Expected<void> Backend::observe(MatrixInputObserver*) {
  return fail(ErrorCode::unsupported, "{} cannot show what enters its matrices; use the CPU (--device cpu)",
              description());
}

Expected<StepStats> Backend::run_top(const Batch&, std::span<const DrawRule>, std::span<TopLogit>, std::span<Draw>) {
  return fail(ErrorCode::internal, "{} does not choose logits", description());
}

Expected<void> Backend::read_logits(int32_t, std::span<float>) {
  return fail(ErrorCode::internal, "{} keeps no logits", description());
}

size_t Backend::free_cache_bytes() const {
  return available_memory();
}

}  // namespace cohort
