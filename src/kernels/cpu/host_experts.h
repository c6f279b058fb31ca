// Some experts of each layer, computed by the CPU for a backend in whose memory not all of them fit. The same bits as
// everywhere (docs/NUMERICS.md, rule 5), so an expert may lie in either place.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tuning.h"
#include "kernels/cpu/weight_memory.h"
#include "models/program.h"

namespace cohort::cpu {

class HostExperts {
 public:
  struct Layer {
    const op::Experts* experts;
    std::vector<int32_t> here;  // those that the CPU computes, ascending; may be empty
  };
  struct Options {
    Isa isa = best_isa();
    int threads = 1;
    TuningTable tuning = {};
    PackProgress progress = {};
  };

  /// Packs those experts. Errors: capacity when they do not fit into memory; unsupported when this machine lacks the
  /// instruction set.
  static Expected<std::unique_ptr<HostExperts>> create(const std::vector<Layer>& layers, const Options& options);

  bool holds(size_t layer, int32_t expert) const { return place_[layer][static_cast<size_t>(expert)] >= 0; }
  /// Those of the routes with these experts that are computed here, ascending. out: at most chosen.size(). Returns how
  /// many.
  int32_t find_routes(size_t layer, std::span<const int32_t> chosen, int32_t* out) const;
  /// down(act(gate x) * (up x)) with the biases, without the route's weight, of each of `routes` (row * top_k + slot);
  /// each distinct expert is read once. chosen: the expert of every route, of which these are held here; input [rows,
  /// K]; out [routes, outputs].
  void run(size_t layer, std::span<const int32_t> routes, const int32_t* chosen, int32_t top_k, const float* input,
           float* out);
  /// Keeps the threads from falling asleep for some tens of microseconds.
  void stay_awake() {
    team_.run(team_.size(), [](int64_t, int) {});
  }
  /// Bytes of the experts that it holds, as they are packed.
  size_t bytes() const { return memory_.bytes() + float_bytes_; }
  ThreadTeam& team() { return team_; }
  /// "avx512, 16 threads"
  std::string description() const;

 private:
  explicit HostExperts(const Options& options);
  const Weight* part_of(const Weight& whole, const std::vector<int32_t>& experts);
  const VectorWeight* part_of(const VectorWeight* whole, const std::vector<int32_t>& experts, const Weight& matrix);

  Isa isa_;
  ThreadTeam team_;
  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  ExpertPass pass_;
  Program program_;                               // what is packed
  std::vector<std::unique_ptr<Weight>> weights_;  // parts of the model's
  std::vector<std::unique_ptr<VectorWeight>> biases_;
  std::vector<ExpertMatrices> matrices_;     // by layer
  std::vector<std::vector<int32_t>> place_;  // [layer][expert]: in the part, or -1
  WeightMemory memory_;
  size_t float_bytes_ = 0;  // of matrices that are used where the model has them

  // Memory of a call, kept for the next one.
  std::vector<int32_t> local_, inputs_, input_rows_;
  std::vector<float> ones_, rows_;
  ActivationBuffer quant_;
  RouteGroups groups_;
};

}  // namespace cohort::cpu
