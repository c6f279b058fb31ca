// The host's side of canvases: which rows are theirs, how those are read, what is read of them, and mixtures that come
// from the host.
#pragma once

#include "kernels/cuda/lower.h"
#include "kernels/cuda/step_writer.h"

namespace cohort::cuda {

/// How canvases of a batch are read and where they are kept, or nothing: their mixtures come from the host.
struct CanvasOrders {
  std::span<const CanvasPlace> places;  // [sequences]
  std::span<const CanvasRule> rules;    // [sampled rows]
};

class Canvases {
 public:
  Canvases() = default;
  ~Canvases();
  Canvases(const Canvases&) = delete;
  Canvases& operator=(const Canvases&) = delete;

  /// memory: what the program was lowered to.
  Expected<void> open(const CanvasMemory& memory, const Limits& limits);
  /// Whether the program has canvases.
  bool any() const { return memory_.kinds != nullptr; }

  /// Before the part is submitted: says what its rows are, and how those of canvases are read; without orders, brings
  /// the batch's mixtures to the device and waits for that. internal: the orders do not fit the batch.
  Expected<void> prepare(const Batch& batch, const StepPart& part, const CanvasOrders& orders, cudaStream_t stream);

  BeginCanvasArgs begin_args(const Step& step) const { return {step, host_kinds_, memory_.kinds}; }
  ReadCanvasArgs read_args(const Step& step, const float* logits, int32_t vocabulary) const {
    return {step, logits, vocabulary, memory_.thoughts, tasks_, readings_};
  }
  /// [sampled rows of the part], after it has run.
  const CanvasReading* readings() const { return readings_; }

 private:
  /// The first of a canvas's rows of Thoughts; its tasks are written.
  Expected<int32_t> order(const Batch& batch, const StepPart& part, size_t sequence, const CanvasOrders& orders,
                          int32_t& sampled);
  Expected<void> bring(std::span<const Mixture> mixtures, int32_t first_row, cudaStream_t stream) const;

  CanvasMemory memory_;
  Limits limits_;
  std::byte* mapped_ = nullptr;
  CanvasTask* tasks_ = nullptr;        // [sampled], mapped
  CanvasReading* readings_ = nullptr;  // [sampled], mapped
  int32_t* host_kinds_ = nullptr;      // [rows], mapped
};

}  // namespace cohort::cuda
