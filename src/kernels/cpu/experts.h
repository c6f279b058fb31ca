// The pass over the experts of one layer (docs/NUMERICS.md, rule 5) as two flat job lists: gate, up, activation and
// quantising by (group, piece of h); then down and the weighted combine by range of outputs over all groups, so that a
// row's slots meet in one job, in slot order, without a third pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/tuning.h"
#include "moe/groups.h"

namespace cohort::cpu {

/// The matrices of one layer's experts.
struct ExpertMatrices {
  const Matrix* gate;
  const Matrix* up;
  const Matrix* down;
  Activation activation;
  const VectorWeight* gate_bias = nullptr;  // as in op::Experts
  const VectorWeight* up_bias = nullptr;
  const VectorWeight* down_bias = nullptr;
};

/// The rows that enter, and where their sums go.
struct ExpertCall {
  const ExpertMatrices* matrices;
  const RouteGroups* groups;
  const float* weights;           // [rows * top_k]
  const ActivationBuffer* quant;  // int8 rows, when gate or up is quantised
  const float* floats;            // [rows, K], when gate or up is a float matrix
  int64_t rows;
  float* out;             // [rows, outputs]
  const int32_t* inputs;  // [rows] the row of `quant` and `floats` that each is, or null: its own
  int64_t input_rows;     // of those, when `inputs` is not null
};

class ExpertPass {
 public:
  ExpertPass(const LinearKernels& linear, const ElementwiseKernels& elementwise, int threads);

  /// From the next call on.
  void set_tuning(const TuningTable& tuning) { tuning_ = tuning; }

  /// The two job lists of a call. begin() sets sizes and grows memory; then gate_up(job, thread) for every job of
  /// gate_up_jobs(), a barrier, and down(job, thread) for every job of down_jobs().
  void begin(const ExpertCall& call);
  int64_t gate_up_jobs() const { return static_cast<int64_t>(gate_up_list_.size()); }
  int64_t down_jobs() const { return static_cast<int64_t>(down_list_.size()); }
  void gate_up(int64_t job, int thread);
  void down(int64_t job, int thread);
  /// Between the two lists: what enters down for the rows of a group, [rows of the group, h], read back from its int8
  /// form where that is what down multiplies.
  void read_hidden(const RouteGroups::Group& group, std::vector<float>& out) const;

 private:
  /// Blocks first .. last of 32 values of a group's h.
  struct GateUpJob {
    int32_t group;
    int64_t first_block, last_block;
  };
  struct TileRange {
    int64_t first, last;
  };
  struct Scratch {
    ActivationBuffer gathered;     // the rows of one group
    std::vector<RowChunk> chunks;  // and those rows as what enters gate and up
    uint64_t call = 0;             // which group of which call that is
    int32_t group = -1;
    std::vector<float> gate, up, partials;
  };
  /// Where the job starts that a thread will probably take after a gate_up job: a block of an expert, or (expert -1)
  /// a tile of down.
  struct JobStart {
    int32_t expert;
    int64_t block;
    const std::byte* tile;
  };
  JobStart start_after_gate_up(int64_t job) const;
  void list_gate_up();
  void list_down();
  /// One tile of gate or up. `later`: the same tile of what this thread walks to next, or null.
  struct TileStep {
    const Matrix* matrix;
    int64_t tile;
    float* out;
    const std::byte* later;
  };
  /// At most two matrices of 32 outputs in tiles of 4.
  static constexpr size_t kMaxSteps = 16;
  /// bias of values [first, first + count) of an expert's outputs, added to rows [rows][stride].
  void add_bias(const VectorWeight* biases, const Matrix& matrix, int32_t expert, int64_t first, int64_t count,
                int32_t rows, float* out, int64_t stride) const;
  size_t gate_up_steps(Scratch& scratch, int64_t block, const JobStart& next, TileStep* steps) const;
  void take_group(Scratch& scratch, int32_t group_index);
  /// The input of the route at a place of the sorted order.
  int32_t input_at(int32_t place) const {
    const int32_t row = call_.groups->row_at(place);
    return call_.inputs != nullptr ? call_.inputs[row] : row;
  }
  void gather(Scratch& scratch, const RouteGroups::Group& group);

  const LinearKernels& linear_;
  const ElementwiseKernels& elementwise_;
  int threads_;
  TuningTable tuning_;
  ExpertTuning chosen_;  // for this call
  ExpertCall call_{};
  uint64_t calls_ = 0;
  bool quantised_input_ = false, float_input_ = false;
  int64_t inner_ = 0;     // width of h
  int64_t h_blocks_ = 0;  // pieces of 32 of it
  int64_t partial_width_ = 0;
  std::vector<GateUpJob> gate_up_list_;
  std::vector<TileRange> down_list_;
  ActivationBuffer h_;           // [routes] in the order of groups
  std::vector<float> h_floats_;  // [routes, inner] for a float down
  std::vector<std::unique_ptr<Scratch>> scratch_;
};

}  // namespace cohort::cpu
