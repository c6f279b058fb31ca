#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/canvases.h"

#include "base/result.h"

namespace cohort::cuda {

Canvases::~Canvases() {
  if (mapped_ != nullptr) cudaFreeHost(mapped_);
}

Expected<void> Canvases::open(const CanvasMemory& memory, const Limits& limits) {
  memory_ = memory;
  limits_ = limits;
  if (!any()) return {};
  const auto sampled = static_cast<size_t>(limits.sampled), rows = static_cast<size_t>(limits.rows);
  const size_t tasks = sampled * sizeof(CanvasTask), readings = sampled * sizeof(CanvasReading);
  void* host = nullptr;
  COHORT_TRY(
      check(cudaHostAlloc(&host, tasks + readings + rows * sizeof(int32_t), cudaHostAllocMapped), "pinned memory"));
  mapped_ = static_cast<std::byte*>(host);
  tasks_ = reinterpret_cast<CanvasTask*>(mapped_);
  readings_ = reinterpret_cast<CanvasReading*>(mapped_ + tasks);
  host_kinds_ = reinterpret_cast<int32_t*>(mapped_ + tasks + readings);
  return {};
}

Expected<void> Canvases::prepare(const Batch& batch, const StepPart& part, const CanvasOrders& orders,
                                 cudaStream_t stream) {
  int32_t sampled = part.first_sampled, nth = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& s = batch.sequences[i];
    const auto [from, to] = part.of(s);
    if (from >= to) continue;
    int32_t first = kNoCanvas;
    if (s.canvas && !orders.rules.empty()) {
      COHORT_ASSIGN(first, order(batch, part, i, orders, sampled));
    } else if (s.canvas) {  // the part's first canvas in the first place, and so on
      first = s.mixtures.empty() ? kNoThought : nth++ * limits_.canvas;
      if (first >= 0) COHORT_TRY(bring(s.mixtures, first, stream));
    }
    for (int32_t row = from; row < to; ++row)
      host_kinds_[row - part.begin] = first >= 0 ? first + row - s.first_row : first;
  }
  if (!orders.rules.empty() && sampled != part.last_sampled)
    return fail(ErrorCode::internal, "CUDA: a sampled row is no canvas's");
  return {};
}

Expected<int32_t> Canvases::order(const Batch& batch, const StepPart& part, size_t sequence, const CanvasOrders& orders,
                                  int32_t& sampled) {
  const SequenceRows& s = batch.sequences[sequence];
  const CanvasPlace& at = orders.places[sequence];
  if (at.place < 0 || at.place >= limits_.places)
    return fail(ErrorCode::internal, "CUDA: a canvas in place {} of {}", at.place, limits_.places);
  const int32_t first = at.place * limits_.canvas;
  for (int32_t row = 0; row < s.rows; ++row, ++sampled) {
    if (sampled >= part.last_sampled || batch.sampled_rows[static_cast<size_t>(sampled)] != s.first_row + row)
      return fail(ErrorCode::internal, "CUDA: row {} of a canvas is not sampled", row);
    tasks_[sampled - part.first_sampled] = {orders.rules[static_cast<size_t>(sampled)], first + row};
  }
  return at.kept ? first : kNoThought;
}

Expected<void> Canvases::bring(std::span<const Mixture> mixtures, int32_t first_row, cudaStream_t stream) const {
  const Thoughts& t = memory_.thoughts;
  const auto clear = [&](void* all, int32_t width) {
    const size_t row = static_cast<size_t>(width) * 4;
    return check(cudaMemsetAsync(static_cast<std::byte*>(all) + static_cast<size_t>(first_row) * row, 0,
                                 mixtures.size() * row, stream),
                 "clearing what a canvas is thought to hold");
  };
  COHORT_TRY(clear(t.weights, t.stride));
  COHORT_TRY(clear(t.marks, t.mark_words));
  std::vector<ThoughtEntry> entries;
  for (size_t row = 0; row < mixtures.size();) {  // as many rows at a time as there is memory for
    const size_t begin = row;
    std::vector<int32_t> begins = {0};
    entries.clear();
    for (; row < mixtures.size() && row - begin < static_cast<size_t>(limits_.canvas); ++row) {
      const Mixture& m = mixtures[row];
      if (entries.size() + m.tokens.size() > static_cast<size_t>(memory_.most_entries) && row > begin) break;
      for (size_t i = 0; i < m.tokens.size(); ++i) entries.push_back({m.tokens[i], m.weights[i]});
      begins.push_back(static_cast<int32_t>(entries.size()));
    }
    if (entries.size() > static_cast<size_t>(memory_.most_entries))
      return fail(ErrorCode::internal, "CUDA: a mixture of {} tokens", entries.size());
    COHORT_TRY(check(cudaMemcpyAsync(memory_.entries, entries.data(), entries.size() * sizeof(ThoughtEntry),
                                     cudaMemcpyHostToDevice, stream),
                     "bringing mixtures"));
    COHORT_TRY(check(
        cudaMemcpyAsync(memory_.begins, begins.data(), begins.size() * sizeof(int32_t), cudaMemcpyHostToDevice, stream),
        "bringing mixtures"));
    launch_place_thoughts(t, first_row + static_cast<int32_t>(begin), static_cast<int32_t>(row - begin), memory_.begins,
                          memory_.entries, stream);
    COHORT_TRY(check(cudaGetLastError(), "placing mixtures"));
    COHORT_TRY(check(cudaStreamSynchronize(stream), "placing mixtures"));
  }
  return {};
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
