#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lower.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/result.h"
#include "kernels/cuda/pack.h"

namespace cohort::cuda {
namespace {

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

int round_up(int64_t value, int64_t to) {
  return static_cast<int>((value + to - 1) / to * to);
}

bool is_quantised(const Weight& w) {
  return type_info(w.type).quantised;
}

class Lowering {
 public:
  Lowering(const Program& program, const Limits& limits, const CacheMemory& cache, DeviceMemory& memory,
           Uploader& uploader)
      : program_(program), limits_(limits), cache_(cache), memory_(memory), uploader_(uploader), pool_(memory) {}

  Expected<Lowered> run() {
    const size_t ops = program_.ops.size();
    values_.resize(program_.values.size());
    consumers_.resize(program_.values.size());
    producer_.assign(program_.values.size(), -1);
    lowered_.assign(ops, false);
    deferred_to_.resize(ops);
    for (size_t i = 0; i < ops; ++i) {
      deferred_to_[i] = i;
      for (ValueId id : program_.ops[i].inputs) consumers_[index(id)].push_back(i);
      producer_[index(program_.ops[i].output)] = static_cast<int64_t>(i);
    }
    defer_head_operations();
    defer_router_norms();
    COHORT_TRY(allocate_routing());
    std::vector<size_t> last_use(program_.values.size(), 0);
    for (size_t v = 0; v < last_use.size(); ++v) {
      last_use[v] = producer_[v] < 0 ? 0 : static_cast<size_t>(producer_[v]);
      for (size_t consumer : consumers_[v]) last_use[v] = std::max(last_use[v], deferred_to_[consumer]);
    }
    last_use[index(program_.logits)] = ops;
    for (size_t i = 0; i < ops; ++i) {
      if (!lowered_[i] && deferred_to_[i] == i) {
        auto done = std::visit([&](const auto& action) { return emit(i, action); }, program_.ops[i].action);
        COHORT_TRY(std::move(done));
        lowered_[i] = true;
      }
      for (size_t v = 0; v < last_use.size(); ++v) {
        if (last_use[v] == i) values_[v] = {};
      }
    }
    result_.logits = values_[index(program_.logits)].rows.data;
    keep_ = values_[index(program_.logits)].float_memory;
    result_.distinct = group_.distinct;
    return std::move(result_);
  }

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

  void defer_head_operations() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const auto* attend = action<op::Attend>(i);
      if (attend == nullptr) continue;
      auto& plans = heads_[i];
      for (size_t input = 0; input < 3; ++input) {
        HeadPlan plan;
        plan.source = op(i).inputs[input];
        size_t at = 0;
        if (const auto* rope = only_for<op::Rope>(plan.source, at)) {
          plan.rope = rope;
          plan.source = op(at).inputs[0];
          deferred_to_[at] = i;
        }
        const auto* norm = only_for<op::RmsNorm>(plan.source, at);
        if (norm != nullptr && norm->group == attend->head_dim) {
          plan.norm = norm;
          plan.source = op(at).inputs[0];
          deferred_to_[at] = i;
        }
        plans.push_back(plan);
      }
    }
  }

  /// A norm that feeds a float router goes along with it, if nothing else needs it before.
  void defer_router_norms() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const auto* route = action<op::Route>(i);
      if (route == nullptr || is_quantised(*route->router)) continue;
      const int64_t at = producer_[index(op(i).inputs[0])];
      if (at < 0) continue;
      const auto* norm = action<op::RmsNorm>(static_cast<size_t>(at));
      if (norm == nullptr || norm->group != info(op(i).inputs[0]).width || norm->group % 64 != 0) continue;
      const auto& readers = consumers_[index(op(i).inputs[0])];
      if (std::all_of(readers.begin(), readers.end(), [&](size_t r) { return r >= i; }))
        deferred_to_[static_cast<size_t>(at)] = i;
    }
  }

  // ---- Values.

  bool reads_quantised(size_t i) const {
    if (const auto* linear = action<op::Linear>(i)) return is_quantised(*linear->weight);
    return action<op::Experts>(i) != nullptr;
  }
  bool needs_quantised(ValueId id) const {
    const auto& c = consumers_[index(id)];
    return std::any_of(c.begin(), c.end(), [&](size_t i) { return reads_quantised(i); });
  }
  bool needs_floats(ValueId id) const {
    const auto& c = consumers_[index(id)];
    return id == program_.logits || std::any_of(c.begin(), c.end(), [&](size_t i) { return !reads_quantised(i); });
  }

  Expected<Rows> make_floats(ValueId id) {
    DeviceValue& value = values_[index(id)];
    if (value.rows.data == nullptr) {
      const int stride = round_up(info(id).width, 4);
      COHORT_ASSIGN(value.float_memory, pool_.take(static_cast<size_t>(capacity(id) * stride) * sizeof(float)));
      value.rows = {reinterpret_cast<float*>(value.float_memory.get()), stride};
    }
    return value.rows;
  }
  Expected<Quantised> take_quantised(int64_t rows, int64_t width, Buffer& memory) {
    const auto count = static_cast<size_t>(rows * (width / 32));
    COHORT_ASSIGN(memory, pool_.take(count * 40));
    std::byte* base = memory.get();
    return Quantised{reinterpret_cast<int8_t*>(base), reinterpret_cast<float*>(base + count * 32),
                     reinterpret_cast<int32_t*>(base + count * 36)};
  }
  Expected<Quantised> make_quantised(ValueId id) {
    DeviceValue& value = values_[index(id)];
    if (value.quantised.values == nullptr) {
      COHORT_ASSIGN(value.quantised, take_quantised(capacity(id), info(id).width, value.quantised_memory));
    }
    return value.quantised;
  }
  /// The quantised rows of a value; quantises them now if no kernel has yet.
  Expected<Quantised> quantised(ValueId id) {
    DeviceValue& value = values_[index(id)];
    if (value.quantised.values == nullptr) {
      COHORT_TRY(make_quantised(id));
      QuantiseArgs args;
      args.sampled = sampled(id);
      args.blocks = info(id).width / 32;
      args.input = value.rows;
      args.out = value.quantised;
      add("quantise", [args](const Launcher& l) mutable {
        args.step = l.step;
        launch_quantise(args, l.sms, l.stream);
      });
    }
    return value.quantised;
  }

  // ---- Weights.

  Expected<const float*> vector(const VectorWeight* v) {
    if (v == nullptr) return nullptr;
    auto& known = vectors_[v];
    if (known == nullptr) {
      COHORT_ASSIGN(known, uploader_.upload(v->values, v->name.c_str()));
    }
    return known;
  }

  /// [positions, pairs] tables.
  Expected<std::pair<const float*, const float*>> rope_table(const RopeTable* table) {
    auto& known = ropes_[table];
    if (known.first == nullptr) {
      if (table->cosines.empty()) return fail(ErrorCode::internal, "CUDA: a rotary table was not filled");
      COHORT_ASSIGN(known.first, uploader_.upload(table->cosines, "rotary cosines"));
      COHORT_ASSIGN(known.second, uploader_.upload(table->sines, "rotary sines"));
    }
    return known;
  }

  Expected<const float*> decoded_table(const Weight* table) {
    auto& known = tables_[table];
    if (known == nullptr) {
      const size_t stride = row_bytes(table->type, table->cols);
      COHORT_ASSIGN(std::byte * memory, uploader_.upload(
                                            table->rows, static_cast<size_t>(table->cols) * sizeof(float),
                                            [&](int64_t i, std::byte* out) {
                                              decode_row(table->type,
                                                         table->slices[0] + static_cast<size_t>(i) * stride,
                                                         reinterpret_cast<float*>(out), table->cols);
                                            },
                                            table->name.c_str()));
      known = reinterpret_cast<const float*>(memory);
    }
    return known;
  }

  /// Float weights in the router's order: [outputs][K / 64][16 lanes][4].
  Expected<const float*> packed_floats(const Weight* w) {
    auto& known = float_matrices_[w];
    if (known == nullptr) {
      if (w->cols % 64 != 0 || w->cols > 4096) {
        return fail(ErrorCode::unsupported,
                    "CUDA: tensor '{}' is {} with {} columns; float matrices need a multiple of 64, at most 4096: "
                    "quantise it, or use the CPU",
                    w->name, type_info(w->type).name, w->cols);
      }
      const size_t stride = row_bytes(w->type, w->cols);
      COHORT_ASSIGN(std::byte * memory, uploader_.upload(
                                            w->rows, static_cast<size_t>(w->cols) * sizeof(float),
                                            [&](int64_t i, std::byte* out) {
                                              std::vector<float> row(static_cast<size_t>(w->cols));
                                              decode_row(w->type, w->slices[0] + static_cast<size_t>(i) * stride,
                                                         row.data(), w->cols);
                                              auto* packed = reinterpret_cast<float*>(out);
                                              for (size_t k = 0; k < row.size(); ++k)
                                                packed[k / 64 * 64 + k % 16 * 4 + k / 16 % 4] = row[k];
                                            },
                                            w->name.c_str()));
      known = reinterpret_cast<const float*>(memory);
    }
    return known;
  }

  static Expected<void> check_quantised(const Weight& w) {
    if (!is_quantised(w)) {
      return fail(ErrorCode::unsupported, "CUDA: tensor '{}' is {}; experts must be quantised here: use the CPU",
                  w.name, type_info(w.type).name);
    }
    if (w.cols % 32 != 0) {
      return fail(ErrorCode::unsupported, "CUDA: tensor '{}' has {} columns, not a multiple of 32", w.name, w.cols);
    }
    const Geometry geometry = make_geometry(Format::generic, w.rows, static_cast<int>(w.cols / 32), 1);
    if (!stream_fits(geometry)) {
      return fail(ErrorCode::unsupported, "CUDA: tensor '{}' has {} columns, more than the kernels hold: use the CPU",
                  w.name, w.cols);
    }
    return {};
  }

  /// `interleave`: two matrices tile by tile; else the matrices stand below each other (rows % 16 == 0).
  Expected<DeviceMatrix> matrix(const std::vector<const Weight*>& parts, bool interleave) {
    const Weight& first = *parts[0];
    auto& known = matrices_[{parts, interleave}];
    if (known.data != nullptr) return known;
    int64_t rows = 0;
    std::vector<int64_t> first_tile;
    for (const Weight* part : parts) {
      COHORT_TRY(check_quantised(*part));
      first_tile.push_back(rows / kTileRows);
      rows += part->rows;
    }
    DeviceMatrix m;
    m.format = format_of(first.type);
    for (const Weight* part : parts) {
      if (part->type != first.type) m.format = Format::generic;
      m.two_groups |= has_two_groups(part->type);
    }
    m.geometry = make_geometry(m.format, interleave ? first.rows : rows, static_cast<int>(first.cols / 32),
                               interleave ? static_cast<int>(parts.size()) : 1);
    const Geometry g = m.geometry;
    const auto fill = [&](int64_t i, std::byte* out) {
      const int64_t expert = i / g.tiles, tile = i % g.tiles;
      if (interleave) {
        const auto n = static_cast<int64_t>(parts.size());
        pack_tile(m.format, *parts[static_cast<size_t>(tile % n)], expert, tile / n, out);
        return;
      }
      size_t part = parts.size() - 1;
      while (first_tile[part] > tile) --part;
      pack_tile(m.format, *parts[part], expert, tile - first_tile[part], out);
    };
    COHORT_ASSIGN(
        m.data, uploader_.upload(first.experts * g.tiles, static_cast<size_t>(g.tile_bytes), fill, first.name.c_str()));
    known = m;
    return m;
  }

  // ---- Operations.

  /// Emits `args` as a row kernel that makes `output`, with the norm that follows it if there is one.
  Expected<void> emit_rows(size_t at, RowArgs args, ValueId output) {
    args.width = info(output).width;
    args.sampled = sampled(output);
    if (args.width % 4 != 0 || args.width > 48 << 10) {
      return fail(ErrorCode::unsupported, "CUDA: '{}' has rows of {} values; they must be a multiple of 4, at most {}",
                  op(at).name, args.width, 48 << 10);
    }
    const op::RmsNorm* norm = nullptr;
    ValueId normed = output;
    for (size_t c : consumers_[index(output)]) {
      const auto* candidate = action<op::RmsNorm>(c);
      if (candidate == nullptr || candidate->group != args.width || lowered_[c] || deferred_to_[c] != c) continue;
      norm = candidate;
      normed = op(c).output;
      lowered_[c] = true;
      break;
    }
    const bool only_norm = norm != nullptr && consumers_[index(output)].size() == 1;
    if (!only_norm && (needs_floats(output) || norm != nullptr)) {
      COHORT_ASSIGN(args.sum_out, make_floats(output));
    }
    if (norm != nullptr) {
      args.norm = true;
      args.eps = norm->eps;
      COHORT_ASSIGN(args.norm_weight, vector(norm->weight));
      if (needs_floats(normed)) {
        COHORT_ASSIGN(args.norm_out, make_floats(normed));
      }
    }
    if (needs_quantised(normed)) {
      COHORT_ASSIGN(args.quantised, make_quantised(normed));
    }
    add(args.expert_output != nullptr ? "combine" : "rows", [args](const Launcher& l) mutable {
      args.step = l.step;
      launch_rows(args, l.sms, l.stream);
    });
    return {};
  }

  Expected<void> emit(size_t i, const op::Embed& embed) {
    RowArgs args;
    COHORT_ASSIGN(args.table, decoded_table(embed.table));
    args.table_scale = embed.scale;
    return emit_rows(i, args, op(i).output);
  }

  Expected<void> emit(size_t i, const op::Gather&) {
    RowArgs args;
    args.input = values_[index(op(i).inputs[0])].rows;
    args.gather = true;
    return emit_rows(i, args, op(i).output);
  }

  Expected<void> emit(size_t i, const op::Add&) {
    RowArgs args;
    args.input = values_[index(op(i).inputs[0])].rows;
    args.addend = values_[index(op(i).inputs[1])].rows;
    return emit_rows(i, args, op(i).output);
  }

  Expected<void> emit(size_t i, const op::RmsNorm& norm) {
    const ValueId input = op(i).inputs[0], output = op(i).output;
    if (norm.group == info(input).width) {
      RowArgs args;
      args.width = norm.group;
      args.sampled = sampled(output);
      args.input = values_[index(input)].rows;
      args.norm = true;
      args.eps = norm.eps;
      COHORT_ASSIGN(args.norm_weight, vector(norm.weight));
      if (needs_floats(output)) {
        COHORT_ASSIGN(args.norm_out, make_floats(output));
      }
      if (needs_quantised(output)) {
        COHORT_ASSIGN(args.quantised, make_quantised(output));
      }
      add(args.expert_output != nullptr ? "combine" : "rows", [args](const Launcher& l) mutable {
        args.step = l.step;
        launch_rows(args, l.sms, l.stream);
      });
      return {};
    }
    ElementwiseArgs args;
    args.kind = Elementwise::group_norm;
    args.group = norm.group;
    args.eps = norm.eps;
    COHORT_ASSIGN(args.factors, vector(norm.weight));
    return emit_elementwise(i, args);
  }

  Expected<void> emit_elementwise(size_t i, ElementwiseArgs args) {
    const ValueId output = op(i).output;
    args.sampled = sampled(output);
    args.width = info(output).width;
    args.a = values_[index(op(i).inputs[0])].rows;
    if (op(i).inputs.size() > 1) args.b = values_[index(op(i).inputs[1])].rows;
    COHORT_ASSIGN(args.out, make_floats(output));
    add("elementwise", [args](const Launcher& l) mutable {
      args.step = l.step;
      launch_elementwise(args, l.sms, l.stream);
    });
    return {};
  }

  Expected<void> emit(size_t i, const op::Gate& gate) {
    ElementwiseArgs args;
    args.kind = gate.activation == Activation::silu ? Elementwise::gate_silu : Elementwise::gate_gelu;
    return emit_elementwise(i, args);
  }

  Expected<void> emit(size_t i, const op::Scale& scale) {
    ElementwiseArgs args;
    args.kind = scale.values->values.size() == 1 ? Elementwise::scale_one : Elementwise::scale_columns;
    COHORT_ASSIGN(args.factors, vector(scale.values));
    return emit_elementwise(i, args);
  }

  Expected<void> emit(size_t i, const op::Softcap& softcap) {
    ElementwiseArgs args;
    args.kind = Elementwise::softcap;
    args.cap = softcap.cap;
    return emit_elementwise(i, args);
  }

  Expected<void> emit(size_t i, const op::Rope& rope) {
    ElementwiseArgs args;
    args.kind = rope.pairing == RopePairing::half_split ? Elementwise::rope_half : Elementwise::rope_adjacent;
    args.group = rope.head_dim;
    COHORT_TRY(set_rope(rope, args));
    return emit_elementwise(i, args);
  }

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

  Expected<HeadInput> head_input(const HeadPlan& plan, int32_t heads) {
    HeadInput in;
    in.rows = values_[index(plan.source)].rows;
    in.heads = heads;
    if (plan.norm != nullptr) {
      in.norm = true;
      in.eps = plan.norm->eps;
      COHORT_ASSIGN(in.norm_weight, vector(plan.norm->weight));
    }
    if (plan.rope != nullptr) {
      COHORT_TRY(set_rope(*plan.rope, in));
      in.adjacent = plan.rope->pairing == RopePairing::adjacent;
    }
    return in;
  }

  Expected<void> emit(size_t i, const op::Attend& attend) {
    const ValueId output = op(i).output;
    if (attend.head_dim % 8 != 0 || attend.head_dim > 512) {
      return fail(ErrorCode::unsupported, "CUDA: '{}' has heads of {} values; a multiple of 8, at most 512, is needed",
                  op(i).name, attend.head_dim);
    }
    const auto& plans = heads_[i];
    HeadsArgs heads;
    COHORT_ASSIGN(heads.q, head_input(plans[0], attend.heads));
    COHORT_ASSIGN(heads.k, head_input(plans[1], attend.kv_heads));
    COHORT_ASSIGN(heads.v, head_input(plans[2], attend.kv_heads));
    heads.head_dim = attend.head_dim;
    const int64_t q_width = int64_t{attend.heads} * attend.head_dim;
    COHORT_ASSIGN(Buffer q, pool_.take(static_cast<size_t>(limits_.rows * q_width) * sizeof(float)));
    heads.q_out = reinterpret_cast<float*>(q.get());
    const auto layer = static_cast<size_t>(attend.cache_layer);
    const CacheMemory* cache = &cache_;
    add("heads", [heads, cache, layer](const Launcher& l) mutable {
      heads.step = l.step;
      heads.cache = cache->type;
      heads.keys = cache->keys[layer];
      heads.values = cache->values[layer];
      launch_heads(heads, l.sms, l.stream);
    });

    AttentionArgs args;
    args.q = heads.q_out;
    args.heads = attend.heads;
    args.kv_heads = attend.kv_heads;
    args.head_dim = attend.head_dim;
    args.window = attend.window;
    args.scale = attend.scale;
    COHORT_ASSIGN(args.window_index, window_index(attend.window));
    const size_t partial =
        static_cast<size_t>(limits_.units) * static_cast<size_t>(attend.heads * (attend.head_dim + 2)) * sizeof(float);
    COHORT_ASSIGN(Buffer partials, pool_.take(partial));
    args.partial = reinterpret_cast<float*>(partials.get());
    COHORT_ASSIGN(args.counters, zeroed(static_cast<size_t>(limits_.rows * attend.heads)));
    const bool whole_blocks = attend.head_dim % 32 == 0;
    if (needs_floats(output) || !whole_blocks) {
      COHORT_ASSIGN(args.out, make_floats(output));
    }
    if (needs_quantised(output) && whole_blocks) {
      COHORT_ASSIGN(args.quantised, make_quantised(output));
    }
    add("attention", [args, cache, layer](const Launcher& l) mutable {
      args.step = l.step;
      args.cache = cache->type;
      args.keys = cache->keys[layer];
      args.values = cache->values[layer];
      launch_attention(args, l.sms, l.stream);
    });
    return {};
  }

  Expected<int32_t> window_index(int32_t window) {
    auto& windows = result_.windows;
    const auto at = std::find(windows.begin(), windows.end(), window);
    if (at != windows.end()) return static_cast<int32_t>(at - windows.begin());
    if (windows.size() == kMaxWindows)
      return fail(ErrorCode::unsupported, "CUDA: more than {} different attention windows", kMaxWindows);
    windows.push_back(window);
    return static_cast<int32_t>(windows.size() - 1);
  }

  /// One array of zeroed counters serves every launch: each leaves them zero.
  Expected<int32_t*> zeroed(size_t count) {
    if (count > counters_size_) {
      COHORT_ASSIGN(void* fresh, memory_.allocate(count * sizeof(int32_t), "counters"));
      COHORT_TRY(check(cudaMemset(fresh, 0, count * sizeof(int32_t)), "clearing counters"));
      counters_ = static_cast<int32_t*>(fresh);
      counters_size_ = count;
    }
    return counters_;
  }

  /// Other linear layers on the same input that one launch can compute with layer i.
  std::vector<size_t> linear_group(size_t i) const {
    const auto& first = *action<op::Linear>(i);
    std::vector<size_t> group{i};
    if (first.weight->rows % kTileRows != 0) return group;
    for (size_t c : consumers_[index(op(i).inputs[0])]) {
      const auto* other = action<op::Linear>(c);
      if (c == i || other == nullptr || lowered_[c] || other->weight->type != first.weight->type ||
          other->weight->rows % kTileRows != 0 || other->weight->cols != first.weight->cols)
        continue;
      if ((other->bias == nullptr) != (first.bias == nullptr)) continue;
      group.push_back(c);
    }
    return group;
  }

  Expected<void> emit(size_t i, const op::Linear& linear) {
    const ValueId input = op(i).inputs[0];
    if (!is_quantised(*linear.weight)) {
      FloatLinearArgs args;
      COHORT_ASSIGN(args.weights, packed_floats(linear.weight));
      args.outputs = static_cast<int32_t>(linear.weight->rows);
      args.k = static_cast<int32_t>(linear.weight->cols);
      args.sampled = sampled(op(i).output);
      args.input = values_[index(input)].rows;
      COHORT_ASSIGN(args.bias, vector(linear.bias));
      COHORT_ASSIGN(args.out, make_floats(op(i).output));
      add("float_linear", [args](const Launcher& l) mutable {
        args.step = l.step;
        launch_float_linear(args, l.sms, l.stream);
      });
      return {};
    }
    const std::vector<size_t> group = linear_group(i);
    std::vector<const Weight*> weights;
    std::vector<float> biases;
    int64_t outputs = 0;
    for (size_t member : group) {
      const auto& l = *action<op::Linear>(member);
      weights.push_back(l.weight);
      outputs += l.weight->rows;
      if (l.bias != nullptr) biases.insert(biases.end(), l.bias->values.begin(), l.bias->values.end());
    }
    COHORT_ASSIGN(const DeviceMatrix m, matrix(weights, false));
    LinearArgs args;
    args.weights = m.data;
    args.geometry = m.geometry;
    args.two_groups = m.two_groups;
    args.outputs = static_cast<int32_t>(outputs);
    args.sampled = sampled(op(i).output);
    COHORT_ASSIGN(args.input, quantised(input));
    if (!biases.empty()) {
      COHORT_ASSIGN(args.bias, uploader_.upload(biases, "biases"));
    }
    ValueId output = op(i).output;
    if (group.size() == 1) {
      // x + W y: the sum is the output.
      const auto& readers = consumers_[index(output)];
      if (readers.size() == 1 && action<op::Add>(readers[0]) != nullptr && output != program_.logits) {
        const auto& inputs = op(readers[0]).inputs;
        const ValueId other = inputs[0] == output ? inputs[1] : inputs[0];
        if (other != output && values_[index(other)].rows.data != nullptr) {
          args.addend = values_[index(other)].rows;
          lowered_[readers[0]] = true;
          output = op(readers[0]).output;
        }
      }
      COHORT_ASSIGN(args.out, make_floats(output));
    } else {
      const int64_t rows = sampled(output) ? limits_.sampled : limits_.rows;
      COHORT_ASSIGN(Buffer memory, pool_.take(static_cast<size_t>(rows * outputs) * sizeof(float)));
      args.out = {reinterpret_cast<float*>(memory.get()), static_cast<int32_t>(outputs)};
      int64_t offset = 0;
      for (size_t member : group) {
        DeviceValue& value = values_[index(op(member).output)];
        value.float_memory = memory;
        value.rows = {args.out.data + offset, args.out.stride};
        offset += action<op::Linear>(member)->weight->rows;
        lowered_[member] = true;
      }
    }
    const Format format = m.format;
    add(args.sampled                  ? "head"
        : args.addend.data != nullptr ? "linear_add"
                                      : "linear",
        [args, format](const Launcher& l) mutable {
          args.step = l.step;
          if (l.variant == Variant::tiles && !args.sampled) {
            launch_tiles(format, Mode::dense, args, l.sms, l.stream);
          } else {
            launch_stream(format, Mode::dense, l.variant != Variant::small, args, l.sms, l.stream);
          }
        });
    return {};
  }

  Expected<void> allocate_routing() {
    int64_t top_k = 0, experts = 0;
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      if (const auto* route = action<op::Route>(i)) {
        if (route->top_k > kMaxTopK || route->top_k > route->router->rows) {
          return fail(ErrorCode::unsupported, "CUDA: '{}' takes the top {} of {} experts; at most {} are supported",
                      op(i).name, route->top_k, route->router->rows, kMaxTopK);
        }
        if (route->router->rows > kMaxExperts) {
          return fail(ErrorCode::unsupported, "CUDA: '{}' has {} experts; at most {} are supported", op(i).name,
                      route->router->rows, kMaxExperts);
        }
        top_k = std::max<int64_t>(top_k, route->top_k);
        experts = std::max(experts, route->router->rows);
        ++result_.moe_layers;
      }
    }
    if (top_k == 0) return {};
    const int64_t routes = limits_.rows * top_k, entries = routes / 8 + experts + 1;
    const auto ints = [&](int64_t count) -> Expected<int32_t*> {
      COHORT_ASSIGN(void* memory, memory_.allocate(static_cast<size_t>(count) * 4, "routes"));
      COHORT_TRY(check(cudaMemset(memory, 0, static_cast<size_t>(count) * 4), "clearing routes"));
      return static_cast<int32_t*>(memory);
    };
    COHORT_ASSIGN(group_.count, ints(1));
    COHORT_ASSIGN(group_.distinct, ints(1));
    COHORT_ASSIGN(group_.expert, ints(entries));
    COHORT_ASSIGN(group_.begin, ints(entries));
    COHORT_ASSIGN(group_.size, ints(entries));
    COHORT_ASSIGN(group_.routes, ints(routes));
    COHORT_ASSIGN(group_.slot_expert, ints(routes));
    COHORT_ASSIGN(int32_t * weights, ints(routes));
    group_.slot_weight = reinterpret_cast<float*>(weights);
    COHORT_ASSIGN(group_.row_counter, ints(limits_.rows + 1));
    COHORT_ASSIGN(int32_t * logits, ints(limits_.rows * experts));
    router_logits_ = reinterpret_cast<float*>(logits);
    return {};
  }

  Expected<void> emit(size_t i, const op::Route& route) {
    const ValueId input = op(i).inputs[0];
    RouteArgs args;
    args.experts = static_cast<int32_t>(route.router->rows);
    args.k = static_cast<int32_t>(route.router->cols);
    args.top_k = route.top_k;
    args.renormalise = route.renormalise;
    COHORT_ASSIGN(args.expert_scale, vector(route.per_expert_scale));
    args.group = group_;
    args.logits = router_logits_;
    if (is_quantised(*route.router)) {
      COHORT_ASSIGN(const DeviceMatrix m, matrix({route.router}, false));
      LinearArgs linear;
      linear.weights = m.data;
      linear.geometry = m.geometry;
      linear.two_groups = m.two_groups;
      linear.outputs = args.experts;
      COHORT_ASSIGN(linear.input, quantised(input));
      linear.out = {router_logits_, args.experts};
      const Format format = m.format;
      add("router_linear", [linear, format](const Launcher& l) mutable {
        linear.step = l.step;
        launch_stream(format, Mode::dense, l.variant != Variant::small, linear, l.sms, l.stream);
      });
      add("route", [args](const Launcher& l) mutable {
        args.step = l.step;
        args.cap = l.variant == Variant::tiles ? 32 : 8;
        launch_route(args, l.sms, l.stream);
      });
      return {};
    }
    COHORT_ASSIGN(args.weights, packed_floats(route.router));
    const int64_t at = producer_[index(input)];
    const bool with_norm = at >= 0 && deferred_to_[static_cast<size_t>(at)] == i;
    RowArgs norm;
    if (with_norm) {
      const auto& n = *action<op::RmsNorm>(static_cast<size_t>(at));
      args.input = values_[index(op(static_cast<size_t>(at)).inputs[0])].rows;
      args.norm = true;
      args.eps = n.eps;
      COHORT_ASSIGN(args.norm_weight, vector(n.weight));
      COHORT_ASSIGN(args.norm_out, make_floats(input));
      if (needs_quantised(input)) {
        COHORT_ASSIGN(args.quantised, make_quantised(input));
      }
      // Many rows: a pass of its own, instead of once for every slice of experts.
      norm.width = args.k;
      norm.input = args.input;
      norm.norm = true;
      norm.eps = args.eps;
      norm.norm_weight = args.norm_weight;
      norm.norm_out = args.norm_out;
      norm.quantised = args.quantised;
      const auto& readers = consumers_[index(input)];
      const bool others =
          std::any_of(readers.begin(), readers.end(), [&](size_t r) { return r != i && !reads_quantised(r); });
      if (!others) args.norm_out = {};
    } else {
      args.input = values_[index(input)].rows;
    }
    add("route", [args, norm, with_norm](const Launcher& l) {
      RouteArgs a = args;
      a.step = l.step;
      a.cap = l.variant == Variant::tiles ? 32 : 8;
      if (with_norm && l.variant == Variant::tiles) {
        RowArgs n = norm;
        n.step = l.step;
        launch_rows(n, l.sms, l.stream);
        a.norm = false;
        a.input = n.norm_out;
      }
      launch_route(a, l.sms, l.stream);
    });
    return {};
  }

  Expected<void> emit(size_t i, const op::Experts& experts) {
    const ValueId input = op(i).inputs[0];
    const auto inner = static_cast<int32_t>(experts.gate->rows);
    const auto hidden = static_cast<int32_t>(experts.down->rows);
    const int32_t top_k = info(op(i).inputs[1]).width;
    COHORT_ASSIGN(const DeviceMatrix pair, matrix({experts.gate, experts.up}, true));
    COHORT_ASSIGN(const DeviceMatrix down, matrix({experts.down}, false));
    const int64_t routes = int64_t{limits_.rows} * top_k;
    COHORT_ASSIGN(Buffer h_memory, pool_.take(static_cast<size_t>(routes * inner) * sizeof(float)));
    COHORT_ASSIGN(Buffer d_memory, pool_.take(static_cast<size_t>(routes * hidden) * sizeof(float)));
    Buffer hq_memory;
    COHORT_ASSIGN(const Quantised hq, take_quantised(routes, inner, hq_memory));

    LinearArgs up;
    up.group = group_;
    up.weights = pair.data;
    up.geometry = pair.geometry;
    up.two_groups = pair.two_groups;
    up.outputs = inner;
    up.top_k = top_k;
    up.act = experts.activation == Activation::silu ? Act::silu : Act::gelu_tanh;
    COHORT_ASSIGN(up.input, quantised(input));
    up.out = {reinterpret_cast<float*>(h_memory.get()), inner};

    QuantiseArgs quantise;
    quantise.per_row = top_k;
    quantise.blocks = inner / 32;
    quantise.input = up.out;
    quantise.out = hq;

    LinearArgs out;
    out.group = group_;
    out.weights = down.data;
    out.geometry = down.geometry;
    out.two_groups = down.two_groups;
    out.outputs = hidden;
    out.top_k = top_k;
    out.input = hq;
    out.float_input = up.out;
    out.out = {reinterpret_cast<float*>(d_memory.get()), hidden};

    const Format up_format = pair.format, down_format = down.format;
    add("gate_up", [up, up_format](const Launcher& l) mutable {
      up.step = l.step;
      if (l.variant == Variant::tiles) {
        launch_tiles(up_format, Mode::gate_up, up, l.sms, l.stream);
      } else {
        launch_stream(up_format, Mode::gate_up, false, up, l.sms, l.stream);
      }
    });
    add("down", [quantise, out, down_format](const Launcher& l) mutable {
      out.step = l.step;
      if (l.variant == Variant::tiles) {
        quantise.step = l.step;
        launch_quantise(quantise, l.sms, l.stream);
        launch_tiles(down_format, Mode::down, out, l.sms, l.stream);
      } else {
        launch_stream(down_format, Mode::down, false, out, l.sms, l.stream);
      }
    });

    RowArgs combine;
    combine.expert_output = out.out.data;
    combine.slot_weight = group_.slot_weight;
    combine.top_k = top_k;
    ValueId output = op(i).output;
    const auto& readers = consumers_[index(output)];
    if (readers.size() == 1 && action<op::Add>(readers[0]) != nullptr) {
      const auto& inputs = op(readers[0]).inputs;
      const ValueId other = inputs[0] == output ? inputs[1] : inputs[0];
      if (other != output && values_[index(other)].rows.data != nullptr) {
        combine.input = values_[index(other)].rows;
        lowered_[readers[0]] = true;
        output = op(readers[0]).output;
      }
    }
    return emit_rows(i, combine, output);
  }

  const Program& program_;
  const Limits& limits_;
  const CacheMemory& cache_;
  DeviceMemory& memory_;
  Uploader& uploader_;
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
  std::map<const Weight*, const float*> tables_, float_matrices_;
  std::map<std::pair<std::vector<const Weight*>, bool>, DeviceMatrix> matrices_;
  Group group_{};
  float* router_logits_ = nullptr;
  int32_t* counters_ = nullptr;
  size_t counters_size_ = 0;
  Buffer keep_;
};

}  // namespace

Expected<Lowered> lower(const Program& program, const Limits& limits, const CacheMemory& cache, DeviceMemory& memory,
                        Uploader& uploader) {
  return Lowering(program, limits, cache, memory, uploader).run();
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
