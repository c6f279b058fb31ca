#include "kernels/cpu/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::cpu {
namespace {

class Compiler {
 public:
  Compiler(const Program& program, const WeightMemory& weights, bool keep_inputs)
      : program_(program), weights_(weights), keep_inputs_(keep_inputs) {
    for (const ValueInfo& info : program.values) add_value(info.width, info.extent, info.kind);
    last_attend_.assign(program.cache_layers.size(), -1);
  }

  Plan compile() {
    for (const Op& op : program_.ops) find_quantised_inputs(op);
    for (const Op& op : program_.ops) std::visit([&](const auto& action) { place(action, op); }, op.action);
    assign_buffers();
    return std::move(plan_);
  }

 private:
  struct Life {
    int32_t made = -1, used = -1;              // stage of the floats and of their last reader
    int32_t quant_made = -1, quant_used = -1;  // of the int8 form
  };

  ValueId add_value(int32_t width, Extent extent, ValueKind kind) {
    plan_.values.push_back({-1, -1, 0, width, extent, kind});
    lives_.emplace_back();
    return static_cast<ValueId>(plan_.values.size() - 1);
  }
  ValuePlace& value(ValueId id) { return plan_.values[static_cast<size_t>(id)]; }
  Life& life(ValueId id) { return lives_[static_cast<size_t>(id)]; }

  void want_quantised(const Weight* weight, ValueId id) {
    if (weights_.matrix(weight).quantised)
      value(id).sums |= layout_info(weights_.matrix(weight).packed.shape.layout).sums | kWanted;
  }
  void find_quantised_inputs(const Op& op) {
    if (const auto* linear = std::get_if<op::Linear>(&op.action)) want_quantised(linear->weight, op.inputs[0]);
    if (const auto* route = std::get_if<op::Route>(&op.action)) want_quantised(route->router, op.inputs[0]);
    if (const auto* experts = std::get_if<op::Experts>(&op.action)) {
      want_quantised(experts->gate, op.inputs[0]);
      want_quantised(experts->up, op.inputs[0]);
    }
  }

  int32_t push(Stage stage) {
    plan_.stages.push_back(std::move(stage));
    return static_cast<int32_t>(plan_.stages.size() - 1);
  }

  /// The first stage of this kind at or after `from`, or a new one.
  int32_t find(Stage::Kind kind, Extent extent, int32_t from) {
    for (auto i = static_cast<size_t>(std::max(from, 0)); i < plan_.stages.size(); ++i) {
      if (plan_.stages[i].kind == kind && plan_.stages[i].extent == extent) return static_cast<int32_t>(i);
    }
    Stage stage;
    stage.kind = kind;
    stage.extent = extent;
    return push(std::move(stage));
  }

  /// A row item may share the stage of its inputs (`ready`): it runs after them on the same row.
  int32_t row_stage(Extent extent, int32_t ready) { return find(Stage::Kind::rows, extent, ready); }

  void read(ValueId id, int32_t stage) { life(id).used = std::max(life(id).used, stage); }
  void read_quant(ValueId id, int32_t stage) { life(id).quant_used = std::max(life(id).quant_used, stage); }

  /// The floats of `id` now exist; if a quantised matrix will read them, so will the int8 form.
  void made(ValueId id, int32_t stage, const Op& op) {
    life(id).made = stage;
    if ((value(id).sums & kWanted) == 0) return;
    const bool by_rows = plan_.stages[static_cast<size_t>(stage)].kind == Stage::Kind::rows;
    const int32_t at = row_stage(value(id).extent, by_rows ? stage : stage + 1);
    plan_.stages[static_cast<size_t>(at)].rows.push_back({RowItem::Kind::quantise, &op, id, id});
    life(id).quant_made = at;
    read(id, at);
  }

  void place_row(RowItem::Kind kind, const Op& op) {
    int32_t ready = 0;
    for (ValueId input : op.inputs) ready = std::max(ready, after(input, value(op.output).extent));
    const int32_t at = row_stage(value(op.output).extent, ready);
    plan_.stages[static_cast<size_t>(at)].rows.push_back({kind, &op, op.inputs.empty() ? -1 : op.inputs[0], op.output});
    for (ValueId input : op.inputs) read(input, at);
    made(op.output, at, op);
  }

  /// The first stage in which a row item may read the value: its own if that one walks the same rows.
  int32_t after(ValueId id, Extent extent) {
    const int32_t stage = life(id).made;
    const Stage& s = plan_.stages[static_cast<size_t>(stage)];
    return s.kind == Stage::Kind::rows && s.extent == extent ? stage : stage + 1;
  }

  /// Reads of a matrix's input happen one stage after it was made, from the int8 form or the floats.
  int32_t matrix_ready(const Matrix& matrix, ValueId id) {
    return (matrix.quantised ? life(id).quant_made : life(id).made) + 1;
  }
  void read_by(const Matrix& matrix, ValueId id, int32_t stage) {
    if (matrix.quantised) read_quant(id, stage);
    if (!matrix.quantised || keep_inputs_) read(id, stage);
  }

  void place_linear(const Matrix& matrix, const VectorWeight* bias, ValueId input, ValueId output, const Op& op) {
    const int32_t at = find(Stage::Kind::linear, value(output).extent, matrix_ready(matrix, input));
    plan_.stages[static_cast<size_t>(at)].linears.push_back({&op, &matrix, bias, input, output});
    read_by(matrix, input, at);
    made(output, at, op);
  }

  void place(const op::Embed&, const Op& op) { place_row(RowItem::Kind::embed, op); }
  void place(const op::RmsNorm&, const Op& op) { place_row(RowItem::Kind::rms_norm, op); }
  void place(const op::Rope&, const Op& op) { place_row(RowItem::Kind::rope, op); }
  void place(const op::Add&, const Op& op) { place_row(RowItem::Kind::add, op); }
  void place(const op::Gate&, const Op& op) { place_row(RowItem::Kind::gate, op); }
  void place(const op::Scale&, const Op& op) { place_row(RowItem::Kind::scale, op); }
  void place(const op::Softcap&, const Op& op) { place_row(RowItem::Kind::softcap, op); }
  void place(const op::Gather&, const Op& op) { place_row(RowItem::Kind::gather, op); }
  void place(const op::Condition&, const Op& op) { place_row(RowItem::Kind::condition, op); }

  void place(const op::Mix&, const Op& op) {
    Stage stage;
    stage.kind = Stage::Kind::mix;
    stage.op = &op;
    made(op.output, push(std::move(stage)), op);
  }

  void place(const op::Linear& linear, const Op& op) {
    place_linear(weights_.matrix(linear.weight), linear.bias, op.inputs[0], op.output, op);
  }

  void place(const op::Route& route, const Op& op) {
    const ValueId logits = add_value(static_cast<int32_t>(route.router->rows), Extent::rows, ValueKind::floats);
    value(logits).extent = value(op.output).extent;
    place_linear(weights_.matrix(route.router), route.bias, op.inputs[0], logits, op);
    const int32_t at = row_stage(value(op.output).extent, life(logits).made + 1);
    plan_.stages[static_cast<size_t>(at)].rows.push_back({RowItem::Kind::choose, &op, logits, op.output});
    read(logits, at);
    life(op.output).made = at;
  }

  void place(const op::Attend& attend, const Op& op) {
    // A layer may be attended to more than once: new positions come after the readers of the old ones.
    int32_t& last = last_attend_[static_cast<size_t>(attend.cache_layer)];
    const int32_t ready = std::max({after(op.inputs[1], Extent::rows), after(op.inputs[2], Extent::rows), last + 1});
    const int32_t append = row_stage(Extent::rows, ready);
    plan_.stages[static_cast<size_t>(append)].rows.push_back({RowItem::Kind::append, &op, op.inputs[1], op.inputs[2]});
    read(op.inputs[1], append);
    read(op.inputs[2], append);
    Stage stage;
    stage.kind = Stage::Kind::attend;
    stage.op = &op;
    const int32_t at = push(std::move(stage));
    last = at;
    read(op.inputs[0], at);
    made(op.output, at, op);
  }

  void place(const op::Experts& experts, const Op& op) {
    Stage stage;
    stage.kind = Stage::Kind::experts;
    stage.op = &op;
    stage.extent = value(op.output).extent;
    const int32_t at = push(std::move(stage));
    read_by(weights_.matrix(experts.gate), op.inputs[0], at);
    read_by(weights_.matrix(experts.up), op.inputs[0], at);
    read(op.inputs[1], at);
    made(op.output, at, op);
  }

  /// Buffers are shared by values whose lives do not touch in any stage.
  void assign_buffers() {
    struct Buffer {
      int32_t width, free_from;
      SumMask sums;
    };
    std::vector<Buffer> floats, quants;
    const auto take = [](std::vector<Buffer>& buffers, int32_t width, SumMask sums, bool exact, int32_t made,
                         int32_t used) {
      size_t best = buffers.size();
      for (size_t i = 0; i < buffers.size(); ++i) {
        const Buffer& b = buffers[i];
        const bool fits = exact ? b.width == width && b.sums == sums : b.width >= width;
        if (b.free_from <= made && fits && (best == buffers.size() || b.width < buffers[best].width)) best = i;
      }
      if (best == buffers.size()) buffers.push_back({width, 0, sums});
      buffers[best].free_from = std::max(made, used) + 1;
      return static_cast<int32_t>(best);
    };
    const auto stages = static_cast<int32_t>(plan_.stages.size());
    for (int32_t stage = 0; stage < stages; ++stage) {
      for (size_t v = 0; v < plan_.values.size(); ++v) {
        ValuePlace& place = plan_.values[v];
        if (place.kind != ValueKind::floats) continue;
        const Life& l = lives_[v];
        if (l.made == stage)
          place.floats = static_cast<ValueId>(v) == program_.logits
                             ? kCallersBuffer
                             : take(floats, place.width, 0, false, l.made, l.used);
        if (l.quant_made == stage)
          place.quant = take(quants, place.width, place.sums & ~kWanted, true, l.quant_made, l.quant_used);
      }
    }
    for (const Buffer& b : floats) plan_.float_widths.push_back(b.width);
    for (const Buffer& b : quants) plan_.quants.push_back({b.width, b.sums});
    for (ValuePlace& place : plan_.values) place.sums &= ~kWanted;
  }

  /// Marks that an int8 form is needed, even by a layout that needs no sums.
  static constexpr SumMask kWanted = SumMask{1} << 31;

  const Program& program_;
  const WeightMemory& weights_;
  bool keep_inputs_;
  Plan plan_;
  std::vector<Life> lives_;
  std::vector<int32_t> last_attend_;
};

std::string_view name_of(RowItem::Kind kind) {
  switch (kind) {
    case RowItem::Kind::embed:
      return "embed";
    case RowItem::Kind::rms_norm:
      return "norm";
    case RowItem::Kind::rope:
      return "rope";
    case RowItem::Kind::add:
      return "add";
    case RowItem::Kind::gate:
      return "gate";
    case RowItem::Kind::scale:
      return "scale";
    case RowItem::Kind::softcap:
      return "softcap";
    case RowItem::Kind::gather:
      return "gather";
    case RowItem::Kind::condition:
      return "condition";
    case RowItem::Kind::append:
      return "append";
    case RowItem::Kind::quantise:
      return "quantise";
    case RowItem::Kind::choose:
      return "choose";
  }
  return "?";
}

}  // namespace

Plan compile(const Program& program, const WeightMemory& weights, bool keep_inputs) {
  return Compiler(program, weights, keep_inputs).compile();
}

std::string to_text(const Program&, const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const Stage& stage = plan.stages[i];
    text += fmt::format("{:4} {:<8}", i,
                        stage.kind == Stage::Kind::rows     ? "rows"
                        : stage.kind == Stage::Kind::linear ? "linear"
                        : stage.kind == Stage::Kind::attend ? "attend"
                        : stage.kind == Stage::Kind::mix    ? "mix"
                                                            : "experts");
    for (const RowItem& item : stage.rows) text += fmt::format(" {}({})", name_of(item.kind), item.op->name);
    for (const LinearItem& item : stage.linears) text += fmt::format(" {}", item.op->name);
    if (stage.op != nullptr) text += fmt::format(" {}", stage.op->name);
    text += stage.extent == Extent::sampled ? " [sampled]\n" : "\n";
  }
  return text;
}

}  // namespace cohort::cpu
