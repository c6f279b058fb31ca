// The pass over the experts of a few layers alone, with random weights of any pair of types: what `bench experts` times
// and `parity --experts` compares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "cohort/error.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/weight_memory.h"

namespace cohort {

struct ExpertShape {
  std::string gate_up = "q4_0", down = "q4_0";  // types
  int64_t hidden = 2048, inner = 768, experts = 128, top_k = 8;
  int64_t layers = 1;
};

/// Sizes and types that exist and fit each other. invalid_argument names the option.
Expected<void> check_shape(const ExpertShape& shape);

/// Random weights of every layer, as a file would hold them.
class ExpertWeights {
 public:
  /// Weights are a function of the shape and `seed`. Errors: check_shape(), capacity when memory does not hold them.
  static Expected<ExpertWeights> create(const ExpertShape& shape, uint64_t seed, int threads);

  const ExpertShape& shape() const { return shape_; }
  const op::Experts& layer(int64_t index) const {
    return std::get<op::Experts>(program_->ops[static_cast<size_t>(index)].action);
  }
  const Program& program() const { return *program_; }
  /// Bytes of one expert as stored in files.
  double expert_bytes() const;

 private:
  struct Memory;
  ExpertShape shape_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Program> program_;
};

/// The CPU kernels of one instruction set over these weights.
class ExpertRunner {
 public:
  static Expected<std::unique_ptr<ExpertRunner>> create(const ExpertWeights& weights, Isa isa, int threads);

  void set_tuning(const cpu::TuningTable& tuning) { pass_.set_tuning(tuning); }
  /// Seconds of one pass. x [rows, hidden]; routes [rows * top_k]; slot weights likewise; y [rows, hidden].
  double run(int64_t layer, std::span<const float> x, std::span<const int32_t> routes, std::span<const float> slots,
             std::span<float> y);
  /// Bytes of one expert as packed.
  double expert_bytes() const;

 private:
  ExpertRunner(const ExpertWeights& weights, Isa isa, int threads);
  const ExpertWeights& weights_;
  const cpu::LinearKernels& linear_;
  ThreadTeam team_;
  cpu::WeightMemory packed_;
  cpu::ExpertPass pass_;
  cpu::ActivationBuffer quant_;
  RouteGroups groups_;
};

/// Routes of `rows` rows in which about `share` of the routes of every row but the first repeat experts that rows
/// before it chose; the others are experts that none of them did, while there are any. A row never chooses an expert
/// twice. share in [0, 1]: 0 is the worst case, 1 the best. share < 0: uniformly random experts.
std::vector<int32_t> routes_with_share(int64_t rows, int64_t experts, int64_t top_k, double share, uint64_t seed);

}  // namespace cohort
