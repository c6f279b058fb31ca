// The heavy part of convert(): rows are read, converted and encoded by several threads and written in order.
#pragma once

#include "base/thread_team.h"
#include "convert/convert.h"
#include "convert/plan.h"
#include "formats/gguf/gguf.h"

namespace cohort::convert_detail {

struct WriteHooks {
  std::function<void(const ConvertProgress&)> progress;
  std::function<bool()> cancelled;
};

/// Writes the data of the writer's current tensor, with the whole team. Memory: a few MB per thread. Errors name the
/// tensor.
Expected<void> write_tensor(const PlannedTensor& tensor, gguf::Writer& writer, ThreadTeam& team,
                            const WriteHooks& hooks, ConvertProgress& progress);

/// Writes the data of all tensors of the plan, which `writer` has declared in the same order. Memory: a few MB per
/// thread, whatever the model's size. Errors name the tensor.
Expected<void> write_tensors(const Plan& plan, gguf::Writer& writer, ThreadTeam& team, const ConvertOptions& options);

}  // namespace cohort::convert_detail
