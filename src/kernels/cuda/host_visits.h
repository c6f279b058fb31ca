// The host's part of a step when some experts lie in its memory (part.h).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/host_experts.h"
#include "kernels/cuda/lower.h"

namespace cohort::cuda {

/// The layers with experts, in the order of the program.
std::vector<const op::Experts*> expert_layers(const Program& program);

class HostVisits {
 public:
  /// Packs the experts that the placement leaves to the host and makes the memory in which the device meets it.
  /// on_host: [layer]. Errors: capacity (too little memory of the host), unsupported (the instruction set).
  static Expected<std::unique_ptr<HostVisits>> create(const Program& program, std::vector<std::vector<int32_t>> on_host,
                                                      int32_t max_rows, const cpu::HostExperts::Options& options);
  ~HostVisits();
  HostVisits(const HostVisits&) = delete;
  HostVisits& operator=(const HostVisits&) = delete;

  /// What lower() needs.
  const HostPart& part() const { return part_; }

  /// Waits until the step `ticket` with `rows` rows has come to visit `index` on `stream`, computes the host's experts
  /// and lets the device go on. Errors: the device failed; memory of the host ran out.
  Expected<void> serve(size_t index, const Visit& visit, int32_t ticket, int32_t rows, cudaStream_t stream);
  /// Lets the device pass all visits of the step `ticket`, whose results are then worth nothing: after an error.
  void let_pass(int32_t ticket);

  /// The host's computing since the last call, without waiting.
  double take_seconds() { return std::exchange(seconds_, 0); }
  const cpu::HostExperts& experts() const { return *experts_; }
  ThreadTeam& team() { return experts_->team(); }

 private:
  HostVisits() = default;
  Expected<void> wait(size_t index, int32_t ticket, cudaStream_t stream) const;

  HostPart part_;
  std::unique_ptr<cpu::HostExperts> experts_;
  std::byte* mapped_ = nullptr;
  double seconds_ = 0;
};

}  // namespace cohort::cuda
