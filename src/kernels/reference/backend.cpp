#include "kernels/reference/backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "base/counted.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/ops.h"
#include "kv/cache.h"
#include "models/made_slices.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort {
namespace {

using reference::RouteSlot;

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(const Program& program, const ReferenceOptions& options)
      : program_(program),
        options_(options),
        team_(options.threads),
        floats_(program.values.size()),
        routes_(program.values.size()) {
    for (const Op& op : program.ops) {
      for (const Weight* weight : matrices_of(op)) holds_.emplace_back(*weight);
      if (const auto* embed = std::get_if<op::Embed>(&op.action)) holds_.emplace_back(*embed->table);
      if (const auto* mix = std::get_if<op::Mix>(&op.action)) holds_.emplace_back(*mix->table);
    }
  }

  std::string description() const override { return fmt::format("reference, {}", counted(options_.threads, "thread")); }

  Expected<void> allocate_cache(TensorType type, int32_t pages) override {
    COHORT_ASSIGN(cache_, KvCache::create(program_.cache_layers, type, pages));
    return {};
  }

  void copy_page(int32_t from, int32_t to) override { cache_.copy_page(from, to); }
  Expected<void> observe(MatrixInputObserver* observer) override {
    observer_ = observer;
    return {};
  }

  Expected<StepStats> run(const Batch& batch, std::span<float> logits) override {
    const auto start = std::chrono::steady_clock::now();
    stats_ = {};
    stats_.rows = batch.rows();
    double moe_layers = 0;
    for (const Op& op : program_.ops) {
      const ValueInfo& info = value(op.output);
      const auto rows =
          static_cast<int64_t>(info.extent == Extent::sampled ? batch.sampled_rows.size() : batch.tokens.size());
      floats(op.output).resize(static_cast<size_t>(rows * (info.kind == ValueKind::floats ? info.width : 0)));
      std::visit([&](const auto& action) { run_op(action, op, batch, rows); }, op.action);
      if (std::holds_alternative<op::Experts>(op.action)) {
        ++moe_layers;
        stats_.distinct_experts += distinct(op.inputs[1]);
      }
      stats_.bytes += cost_of(program_, op, query(batch, op)).weight_bytes;
    }
    if (moe_layers > 0) stats_.distinct_experts /= moe_layers;
    std::copy(floats(program_.logits).begin(), floats(program_.logits).end(), logits.begin());
    stats_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return stats_;
  }

 private:
  const ValueInfo& value(ValueId id) const { return program_.values[static_cast<size_t>(id)]; }
  std::vector<float>& floats(ValueId id) { return floats_[static_cast<size_t>(id)]; }
  float* row_of(ValueId id, int64_t row) { return floats(id).data() + row * value(id).width; }
  std::vector<std::vector<RouteSlot>>& routes(ValueId id) { return routes_[static_cast<size_t>(id)]; }

  double distinct(ValueId routes_id) {
    std::set<int32_t> experts;
    for (const auto& row : routes(routes_id)) {
      for (const RouteSlot& slot : row) experts.insert(slot.expert);
    }
    return static_cast<double>(experts.size());
  }

  CostQuery query(const Batch& batch, const Op& op) {
    CostQuery q;
    q.rows = batch.rows();
    q.sampled = static_cast<int64_t>(batch.sampled_rows.size());
    if (std::holds_alternative<op::Experts>(op.action)) q.distinct_experts = distinct(op.inputs[1]);
    return q;
  }

  void run_op(const op::Embed& embed, const Op& op, const Batch& batch, int64_t rows) {
    const size_t stride = row_bytes(embed.table->type, embed.table->cols);
    for (int64_t r = 0; r < rows; ++r) {
      const auto token = static_cast<size_t>(batch.tokens[static_cast<size_t>(r)]);
      float* y = row_of(op.output, r);
      decode_row(embed.table->type, embed.table->slices[0] + token * stride, y, embed.table->cols);
      if (embed.scale == 1.0F) continue;
      for (int64_t i = 0; i < embed.table->cols; ++i) y[i] *= embed.scale;
    }
  }

  void run_op(const op::RmsNorm& norm, const Op& op, const Batch&, int64_t rows) {
    const int32_t groups = value(op.output).width / norm.group;
    const float* weight = norm.weight != nullptr ? norm.weight->values.data() : nullptr;
    for (int64_t r = 0; r < rows * groups; ++r) {
      numerics::rms_norm(floats(op.inputs[0]).data() + r * norm.group, weight, norm.eps, norm.group,
                         floats(op.output).data() + r * norm.group);
    }
  }

  void show(const Weight& weight, ValueId input, int64_t rows) {
    for (int64_t r = 0; observer_ != nullptr && r < rows; ++r) show_row(weight, 0, row_of(input, r));
  }
  void show_row(const Weight& weight, int64_t expert, const float* row) {
    observer_->see(weight, expert, std::span(&row, 1));
  }

  void run_op(const op::Linear& linear, const Op& op, const Batch&, int64_t rows) {
    show(*linear.weight, op.inputs[0], rows);
    team_.run(rows, [&](int64_t r, int) {
      reference::linear_row(*linear.weight, 0, bias_of(linear.bias, 0, 0), options_.activations,
                            row_of(op.inputs[0], r), row_of(op.output, r));
    });
  }

  void run_op(const op::Rope& rope, const Op& op, const Batch& batch, int64_t rows) {
    floats(op.output) = floats(op.inputs[0]);
    for (int64_t r = 0; r < rows; ++r)
      reference::rope_row(rope, batch.positions[static_cast<size_t>(r)], row_of(op.output, r));
  }

  void run_op(const op::Attend& attend, const Op& op, const Batch& batch, int64_t) {
    reference::append_kv(attend, batch, floats(op.inputs[1]).data(), floats(op.inputs[2]).data(), cache_);
    reference::attend(attend, batch, floats(op.inputs[0]).data(), cache_, floats(op.output).data());
  }

  void run_op(const op::Add&, const Op& op, const Batch&, int64_t) {
    const auto& a = floats(op.inputs[0]);
    const auto& b = floats(op.inputs[1]);
    for (size_t i = 0; i < a.size(); ++i) floats(op.output)[i] = a[i] + b[i];
  }

  void run_op(const op::Gate& gate, const Op& op, const Batch&, int64_t rows) {
    reference::gate_row(gate.activation, floats(op.inputs[0]).data(), floats(op.inputs[1]).data(),
                        rows * value(op.output).width, floats(op.output).data());
  }

  void run_op(const op::Route& route, const Op& op, const Batch&, int64_t rows) {
    routes(op.output).resize(static_cast<size_t>(rows));
    show(*route.router, op.inputs[0], rows);
    // The router decides, it is not served through int8: a rounded router would pick other experts (float weights stay
    // f32 in every mode).
    const ActivationMode mode =
        options_.activations == ActivationMode::int8_all ? ActivationMode::canonical : options_.activations;
    team_.run(rows, [&](int64_t r, int) {
      std::vector<float> logits(static_cast<size_t>(route.router->rows));
      reference::linear_row(*route.router, 0, bias_of(route.bias, 0, 0), mode, row_of(op.inputs[0], r), logits.data());
      routes(op.output)[static_cast<size_t>(r)] = reference::route_row(route, logits);
    });
  }

  void run_op(const op::Experts& experts, const Op& op, const Batch&, int64_t rows) {
    if (observer_ != nullptr) {
      run_shown(experts, op, rows);
      return;
    }
    team_.run(rows, [&](int64_t r, int) {
      reference::experts_row(experts, routes(op.inputs[1])[static_cast<size_t>(r)], options_.activations,
                             row_of(op.inputs[0], r), row_of(op.output, r));
    });
  }

  /// One row after another: the observer is called from one thread.
  void run_shown(const op::Experts& experts, const Op& op, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto& slots = routes(op.inputs[1])[static_cast<size_t>(r)];
      for (const RouteSlot& slot : slots) {
        show_row(*experts.gate, slot.expert, row_of(op.inputs[0], r));
        show_row(*experts.up, slot.expert, row_of(op.inputs[0], r));
      }
      reference::experts_row(experts, slots, options_.activations, row_of(op.inputs[0], r), row_of(op.output, r),
                             [&](int64_t expert, const float* hidden) { show_row(*experts.down, expert, hidden); });
    }
  }

  void run_op(const op::Scale& scale, const Op& op, const Batch& batch, int64_t rows) {
    const auto width = static_cast<size_t>(value(op.output).width);
    for (int64_t r = 0; r < rows; ++r) {
      const auto& factors = scale.of(is_canvas(batch, r))->values;
      const float* x = row_of(op.inputs[0], r);
      float* y = row_of(op.output, r);
      for (size_t i = 0; i < width; ++i) y[i] = x[i] * factors[factors.size() == 1 ? 0 : i];
    }
  }

  /// Row `row` of all rows of the step.
  static bool is_canvas(const Batch& batch, int64_t row) {
    return std::ranges::any_of(batch.sequences, [&](const SequenceRows& s) {
      return s.canvas && row >= s.first_row && row < s.first_row + s.rows;
    });
  }

  void run_op(const op::Mix& mix, const Op& op, const Batch& batch, int64_t) {
    std::ranges::fill(floats(op.output), 0.0F);
    for (const SequenceRows& s : batch.sequences) {
      if (s.mixtures.empty()) continue;
      team_.run(s.rows, [&](int64_t i, int) {
        reference::mix_row(mix, s.mixtures[static_cast<size_t>(i)], row_of(op.output, s.first_row + i));
      });
    }
  }

  void run_op(const op::Condition& condition, const Op& op, const Batch& batch, int64_t rows) {
    const int64_t width = value(op.output).width;
    for (int64_t r = 0; r < rows; ++r) {
      const float* e = row_of(op.inputs[0], r);
      const float* g = row_of(op.inputs[1], r);
      float* y = row_of(op.output, r);
      const bool canvas = is_canvas(batch, r);
      for (int64_t i = 0; i < width; ++i) y[i] = canvas ? e[i] + g[i] : e[i];
      if (canvas) numerics::rms_norm(y, nullptr, condition.eps, width, y);
    }
  }

  void run_op(const op::Softcap& softcap, const Op& op, const Batch&, int64_t) {
    const auto& x = floats(op.inputs[0]);
    for (size_t i = 0; i < x.size(); ++i) floats(op.output)[i] = softcap.cap * numerics::tanh(x[i] / softcap.cap);
  }

  void run_op(const op::Gather&, const Op& op, const Batch& batch, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(row_of(op.inputs[0], batch.sampled_rows[static_cast<size_t>(r)]), value(op.output).width,
                  row_of(op.output, r));
    }
  }

  const Program& program_;
  std::vector<SliceHold> holds_;  // of every matrix
  ReferenceOptions options_;
  ThreadTeam team_;
  KvCache cache_;
  std::vector<std::vector<float>> floats_;                   // by value id
  std::vector<std::vector<std::vector<RouteSlot>>> routes_;  // by value id, row
  StepStats stats_;
  MatrixInputObserver* observer_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const Program& program, const ReferenceOptions& options) {
  return std::make_unique<ReferenceBackend>(program, options);
}

}  // namespace cohort
