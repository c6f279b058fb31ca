// The walk over a program that turns it into launches. lower.cpp holds the order of things, lower_*.cpp the operations.
#pragma once

#ifdef COHORT_HAS_CUDA

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/lower.h"
#include "models/made_slices.h"

namespace cohort::cuda {

/// A piece of device memory that goes back to its pool with the last value that uses it. Kernels of a step run one
/// after another, so memory can be taken again as soon as its last reader is lowered.
using Buffer = std::shared_ptr<std::byte>;

class BufferPool {
 public:
  explicit BufferPool(DeviceMemory& memory) : memory_(memory) {}
  Expected<Buffer> take(size_t bytes) {
    auto& free = (*free_)[bytes];
    std::byte* block = nullptr;
    if (!free.empty()) {
      block = free.back();
      free.pop_back();
    } else {
      COHORT_ASSIGN(void* fresh, memory_.allocate(bytes, "activations"));
      block = static_cast<std::byte*>(fresh);
    }
    return Buffer(block, [pool = free_, bytes](std::byte* b) { (*pool)[bytes].push_back(b); });
  }

 private:
  DeviceMemory& memory_;
  std::shared_ptr<std::map<size_t, std::vector<std::byte*>>> free_ =
      std::make_shared<std::map<size_t, std::vector<std::byte*>>>();
};

struct DeviceValue {
  Rows rows;
  Buffer float_memory;
  Quantised quantised;
  Buffer quantised_memory;
};

/// A packed matrix, or several stacked, or a gate/up pair, on the device.
struct DeviceMatrix {
  Format format = Format::q4;
  bool two_groups = false;
  const std::byte* data = nullptr;
  Geometry geometry;
};

inline int round_up(int64_t value, int64_t to) {
  return static_cast<int>((value + to - 1) / to * to);
}

inline bool is_quantised(const Weight& w) {
  return type_info(w.type).quantised;
}

/// Routes of an entry.
inline int entry_columns(Variant variant, bool streams) {
  return variant == Variant::tiles || !streams ? kTileColumns : kEntryColumns;
}
/// The most inputs of a router that launch_router and launch_float_linear take.
inline constexpr int kRouterColumns = 4096;
/// The most values of a row that a block holds in shared memory.
inline constexpr int kMostRowValues = 48 << 10;

// What a launch is told, for those who make one of several (lower_flow.cpp).
struct DenseNote {
  Format format;
  LinearArgs args;
};
struct AttentionNote {
  AttentionArgs args;
  size_t layer;  // of the cache
};
struct ExpertsNote {
  Format up_format, down_format;
  Geometry up_geometry, down_geometry;
  UpArgs up;
  DownArgs down;
};
using Note = std::variant<RowArgs, DenseNote, AttentionNote, RouteArgs, ExpertsNote>;

class Lowering {
 public:
  Lowering(const Program& program, const Limits& limits, const CacheMemory& cache, DeviceMemory& memory,
           Uploader& uploader, int sms, const HostPart& part)
      : program_(program),
        limits_(limits),
        cache_(cache),
        memory_(memory),
        uploader_(uploader),
        sms_(sms),
        part_(part),
        pool_(memory) {}
  Expected<Lowered> run();

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  const ValueInfo& info(ValueId id) const { return program_.values[index(id)]; }
  bool sampled(ValueId id) const { return info(id).extent == Extent::sampled; }
  int64_t capacity(ValueId id) const { return sampled(id) ? limits_.sampled : limits_.rows; }
  const Op& op(size_t i) const { return program_.ops[i]; }
  template <class T>
  const T* action(size_t i) const {
    return std::get_if<T>(&program_.ops[i].action);
  }
  void add(const char* kind, std::function<void(const Launcher&)> run) {
    result_.launches.push_back({kind, std::move(run)});
  }
  /// Of the last launch.
  void note(const Note& note) { notes_.insert_or_assign(result_.launches.size() - 1, note); }

  // ---- Which operations move to a later place.

  /// The operation that makes `id` if it is a T that only one other reads and has not moved yet.
  template <class T>
  const T* only_for(ValueId id, size_t& at) const {
    if (producer_[index(id)] < 0 || consumers_[index(id)].size() != 1) return nullptr;
    at = static_cast<size_t>(producer_[index(id)]);
    return action<T>(at);
  }

  struct HeadPlan {
    ValueId source = -1;
    const op::RmsNorm* norm = nullptr;
    const op::Rope* rope = nullptr;
  };
  void defer_head_operations();
  /// A norm that feeds a float router goes along with it, if nothing else needs it before.
  void defer_router_norms();

  // ---- Values.

  bool reads_quantised(size_t i) const {
    if (const auto* linear = action<op::Linear>(i)) return is_quantised(*linear->weight);
    const auto* experts = action<op::Experts>(i);
    return experts != nullptr && is_quantised(*experts->gate);
  }
  /// The host quantises for itself.
  bool reads_floats(size_t i) const { return !reads_quantised(i) || host_experts(i) != nullptr; }
  /// Those of operation i (experts) that the host computes, or null.
  const std::vector<int32_t>* host_experts(size_t i) const;
  /// Layers with experts before operation i.
  size_t moe_layer(size_t i) const;
  bool needs_quantised(ValueId id) const {
    const auto& c = consumers_[index(id)];
    return std::any_of(c.begin(), c.end(), [&](size_t i) { return reads_quantised(i); });
  }
  bool needs_floats(ValueId id) const {
    const auto& c = consumers_[index(id)];
    return id == program_.logits || std::any_of(c.begin(), c.end(), [&](size_t i) { return reads_floats(i); });
  }

  Expected<Rows> make_floats(ValueId id);
  Expected<Quantised> take_quantised(int64_t rows, int64_t width, Buffer& memory);
  Expected<Quantised> make_quantised(ValueId id);
  /// The quantised rows of a value; quantises them now if no kernel has yet.
  Expected<Quantised> quantised(ValueId id);

  // ---- Weights (lower_weights.cpp).

  Expected<const float*> vector(const VectorWeight* v);
  /// [positions, pairs] tables.
  Expected<std::pair<const float*, const float*>> rope_table(const RopeTable* table);
  Expected<const float*> decoded_table(const Weight* table);
  /// Float weights in the router's order: [outputs][K / 64][16 lanes][4].
  Expected<const float*> packed_floats(const Weight* w);
  /// Float weights for launch_float_matrix: matrices of one type below each other, or those of all experts.
  Expected<const std::byte*> float_matrix(const std::vector<const Weight*>& parts);
  static Expected<void> check_quantised(const Weight& w);
  /// `interleave`: two matrices tile by tile; else the matrices stand below each other (rows % 16 == 0).
  Expected<DeviceMatrix> matrix(const std::vector<const Weight*>& parts, bool interleave);

  // ---- Operations.

  /// Emits `args` as a row kernel that makes `output`, with the norm that follows it if there is one. few:
  /// where another kernel leaves `output` in steps of at most 8 rows, or the one for all layers in those that it runs,
  /// so that only the norm is left to do.
  Expected<void> emit_rows(size_t at, RowArgs args, ValueId output, const Rows* few = nullptr);
  Expected<void> emit(size_t i, const op::Embed& embed);
  Expected<void> emit(size_t i, const op::Gather&);
  Expected<void> emit(size_t i, const op::Add&);
  Expected<void> emit(size_t i, const op::RmsNorm& norm);
  Expected<void> emit_elementwise(size_t i, ElementwiseArgs args);
  Expected<void> emit(size_t i, const op::Gate& gate);
  Expected<void> emit(size_t i, const op::Scale& scale);
  Expected<void> emit(size_t i, const op::Softcap& softcap);
  // Of canvases (lower_canvas.cpp).
  Expected<void> allocate_canvases(size_t i);
  Expected<void> emit(size_t i, const op::Mix& mix);
  Expected<void> emit(size_t i, const op::Condition& condition);
  Expected<void> emit_canvas_scale(size_t i, const op::Scale& scale);
  Expected<void> emit(size_t i, const op::Rope& rope);
  template <class Args>
  Expected<void> set_rope(const op::Rope& rope, Args& args) {
    const auto pairs = static_cast<int32_t>(rope.table->frequencies.size());
    if (2 * pairs != rope.table->rotary_dims || rope.table->rotary_dims > rope.head_dim) {
      return fail(ErrorCode::unsupported, "CUDA: rope of {} dimensions with {} frequencies on heads of {}",
                  rope.table->rotary_dims, pairs, rope.head_dim);
    }
    COHORT_ASSIGN(const auto tables, rope_table(rope.table));
    args.cosines = tables.first;
    args.sines = tables.second;
    args.pairs = pairs;
    args.rotary = rope.table->rotary_dims;
    return {};
  }
  Expected<HeadInput> head_input(const HeadPlan& plan, int32_t heads);
  Expected<void> emit(size_t i, const op::Attend& attend);
  Expected<int32_t> window_index(int32_t window);
  /// One array of zeroed counters serves every launch: each leaves them zero.
  Expected<int32_t*> zeroed(size_t count);
  /// Other linear layers on the same input that one launch can compute with layer i.
  std::vector<size_t> linear_group(size_t i) const;
  Expected<void> emit(size_t i, const op::Linear& linear);
  Expected<void> emit_float(size_t i, const op::Linear& linear);
  /// Rows for all layers of a group side by side; each value gets its columns.
  Expected<Rows> make_group(const std::vector<size_t>& group, int64_t outputs);
  void add_dense(const char* kind, const DeviceMatrix& m, LinearArgs args);
  Expected<void> allocate_routing();
  /// Whether this program's experts of few rows can use the streaming kernels.
  bool experts_stream() const;
  /// The same for operation i (experts): those kernels count on one expert for each route.
  bool streams(size_t i) const { return experts_stream_ && host_experts(i) == nullptr; }
  /// The operation that computes the experts of routes i.
  size_t experts_of(size_t i) const;
  Expected<void> emit(size_t i, const op::Route& route);
  static Act act_of(Activation activation);
  Expected<PairBias> pair_bias(const op::Experts& experts);
  Expected<void> emit(size_t i, const op::Experts& experts);
  Expected<void> emit_all(size_t i, const op::Experts& experts);
  /// The experts that stay on the device, beside a visit of the host.
  Expected<void> emit_part(size_t i, const op::Experts& experts, const std::vector<int32_t>& on_host);
  /// A layer that the host computes alone.
  Expected<void> emit_hosted(size_t i, const op::Experts& experts);
  /// Brings the host's results to `out`, by route, if the host computes experts of this layer.
  void bring(size_t i, const Rows& out);
  /// The weighted sum of the experts' results [rows * top_k, outputs of operation i].
  RowArgs weighted_sum(size_t i, const Rows& results) const;
  /// Holds the slices of a weight that are about to be packed; in a dry run nothing is.
  SliceHold hold(const Weight& weight) const {
    return memory_.dry() ? SliceHold(std::span<const std::shared_ptr<MadeSlices>>{}) : SliceHold(weight);
  }
  /// Experts of which one matrix or all are floats.
  Expected<void> emit_float(size_t i, const op::Experts& experts);
  /// The addend of a sum that takes the place of `output` (which only an Add reads) and moves into its producer.
  Rows fold_add(ValueId& output);

  /// Finds layers that one kernel can run (lower_flow.cpp).
  Expected<void> find_flow(int sms);

  const Program& program_;
  const Limits& limits_;
  const CacheMemory& cache_;
  DeviceMemory& memory_;
  Uploader& uploader_;
  int sms_;
  const HostPart& part_;
  BufferPool pool_;
  Lowered result_;
  std::vector<DeviceValue> values_;
  std::vector<std::vector<size_t>> consumers_;
  std::vector<int64_t> producer_;
  std::vector<bool> lowered_;
  std::vector<size_t> deferred_to_;
  std::map<size_t, std::vector<HeadPlan>> heads_;
  std::map<const VectorWeight*, float*> vectors_;
  std::map<const RopeTable*, std::pair<const float*, const float*>> ropes_;
  std::map<const Weight*, const float*> tables_, router_matrices_;
  std::map<std::vector<const Weight*>, const std::byte*> float_matrices_;
  std::map<std::pair<std::vector<const Weight*>, bool>, DeviceMatrix> matrices_;
  std::map<size_t, Note> notes_;
  Group group_{}, here_{};
  // Of matrices and of biases, without the host's experts.
  std::vector<std::unique_ptr<Weight>> parts_;
  std::vector<std::unique_ptr<VectorWeight>> bias_parts_;
  int32_t* arrivals_ = nullptr;  // of blocks that told the host their part; zero between launches
  int32_t* released_ = nullptr;  // [MoE layers, 2] BringArgs::released of the visits
  bool experts_stream_ = true;
  float* router_logits_ = nullptr;
  int32_t* counters_ = nullptr;
  size_t counters_size_ = 0;
  Buffer keep_;
};

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
