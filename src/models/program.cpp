#include "models/program.h"

#include <fmt/format.h>

#include <cmath>

namespace cohort {
namespace {

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

constexpr double kFloat = sizeof(float);

double dense_cost_bytes(const Weight& w) {
  return static_cast<double>(w.bytes());
}
double multiply_adds(const Weight& w) {
  return 2.0 * static_cast<double>(w.rows) * static_cast<double>(w.cols);
}

std::string weight_text(const Weight& w) {
  const auto shape =
      w.experts > 1 ? fmt::format("{}x{}x{}", w.experts, w.rows, w.cols) : fmt::format("{}x{}", w.rows, w.cols);
  return fmt::format("{} {} [{}] {:.2f} MB", w.name, type_info(w.type).name, shape,
                     static_cast<double>(w.bytes()) / 1e6);
}

std::string vector_text(const VectorWeight* v) {
  return v != nullptr ? fmt::format("{} [{}]", v->name, v->values.size()) : "no weight";
}

std::string_view activation_name(Activation a) {
  if (a == Activation::clamped_swiglu) return "clamped swiglu";
  return a == Activation::silu ? "silu" : "gelu_tanh";
}

std::string details(const Action& action) {
  return std::visit(
      Overload{
          [](const op::Embed& o) {
            return weight_text(*o.table) + (o.scale != 1.0F ? fmt::format(", times {}", o.scale) : "");
          },
          [](const op::RmsNorm& o) {
            return fmt::format("{}, eps {}, groups of {}", vector_text(o.weight), o.eps, o.group);
          },
          [](const op::Linear& o) {
            return weight_text(*o.weight) + (o.bias != nullptr ? ", bias " + o.bias->name : "");
          },
          [](const op::Rope& o) {
            return fmt::format("{} heads of {}, {} dims rotate, {}", o.heads, o.head_dim, o.table->rotary_dims,
                               o.pairing == RopePairing::half_split ? "half-split" : "adjacent");
          },
          [](const op::Attend& o) {
            return fmt::format("{} heads on {} KV heads of {}, scale {:.6g}, {}", o.heads, o.kv_heads, o.head_dim,
                               o.scale, o.window > 0 ? fmt::format("window {}", o.window) : "full") +
                   (o.sinks != nullptr ? ", sinks" : "");
          },
          [](const op::Add&) { return std::string("residual"); },
          [](const op::Gate& o) { return std::string(activation_name(o.activation)); },
          [](const op::Route& o) {
            return fmt::format("{}, top {}{}{}{}", weight_text(*o.router), o.top_k,
                               o.renormalise ? ", renormalised" : "", o.bias != nullptr ? ", bias" : "",
                               o.per_expert_scale != nullptr ? ", times " + o.per_expert_scale->name : "");
          },
          [](const op::Experts& o) {
            return fmt::format("{}; {}; {}; {}{}", weight_text(*o.gate), weight_text(*o.up), weight_text(*o.down),
                               activation_name(o.activation), o.down_bias != nullptr ? ", biases" : "");
          },
          [](const op::Scale& o) {
            return vector_text(o.values) + (o.canvas_values != nullptr ? ", canvas " + o.canvas_values->name : "");
          },
          [](const op::Softcap& o) { return fmt::format("cap {}", o.cap); },
          [](const op::Gather&) { return std::string("sampled rows only"); },
          [](const op::Mix& o) { return weight_text(*o.table) + fmt::format(", times {}", o.scale); },
          [](const op::Condition& o) { return fmt::format("canvas rows: norm of the sum, eps {}", o.eps); },
      },
      action);
}

}  // namespace

void RopeTable::fill(int32_t positions) {
  const size_t pairs = frequencies.size();
  cosines.resize(static_cast<size_t>(positions) * pairs);
  sines.resize(cosines.size());
  for (int32_t position = 0; position < positions; ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      cosines[static_cast<size_t>(position) * pairs + i] =
          static_cast<float>(std::cos(angle) * static_cast<double>(magnitude));
      sines[static_cast<size_t>(position) * pairs + i] =
          static_cast<float>(std::sin(angle) * static_cast<double>(magnitude));
    }
  }
}

std::string_view kind_name(const Action& action) {
  return std::visit(Overload{
                        [](const op::Embed&) { return "embed"; },
                        [](const op::RmsNorm&) { return "rms_norm"; },
                        [](const op::Linear&) { return "linear"; },
                        [](const op::Rope&) { return "rope"; },
                        [](const op::Attend&) { return "attend"; },
                        [](const op::Add&) { return "add"; },
                        [](const op::Gate&) { return "gate"; },
                        [](const op::Route&) { return "route"; },
                        [](const op::Experts&) { return "experts"; },
                        [](const op::Scale&) { return "scale"; },
                        [](const op::Softcap&) { return "softcap"; },
                        [](const op::Gather&) { return "gather"; },
                        [](const op::Mix&) { return "mix"; },
                        [](const op::Condition&) { return "condition"; },
                    },
                    action);
}

double expected_distinct_experts(int64_t experts, int64_t top_k, int64_t rows) {
  const auto e = static_cast<double>(experts);
  return e * (1.0 - std::pow(1.0 - static_cast<double>(top_k) / e, static_cast<double>(rows)));
}

OpCost cost_of(const Program& program, const Op& op, const CostQuery& query) {
  const auto extent_rows = [&](ValueId id) {
    const bool sampled = program.values[static_cast<size_t>(id)].extent == Extent::sampled;
    return static_cast<double>(sampled ? query.sampled : query.rows);
  };
  const double rows = extent_rows(op.output);
  OpCost cost;
  for (ValueId id : op.inputs)
    cost.activation_bytes += extent_rows(id) * program.values[static_cast<size_t>(id)].width * kFloat;
  cost.activation_bytes += rows * program.values[static_cast<size_t>(op.output)].width * kFloat;
  std::visit(Overload{
                 [&](const op::Embed& o) {
                   cost.weight_bytes = rows * static_cast<double>(row_bytes(o.table->type, o.table->cols));
                 },
                 [&](const op::Linear& o) {
                   cost.weight_bytes = dense_cost_bytes(*o.weight);
                   cost.operations = rows * multiply_adds(*o.weight);
                 },
                 [&](const op::Route& o) {
                   cost.weight_bytes = dense_cost_bytes(*o.router);
                   cost.operations = rows * multiply_adds(*o.router);
                 },
                 [&](const op::Experts& o) {
                   for (const Weight* w : {o.gate, o.up, o.down}) {
                     cost.weight_bytes += query.distinct_experts * static_cast<double>(w->slice_bytes());
                     cost.operations +=
                         rows * program.values[static_cast<size_t>(op.inputs[1])].width * multiply_adds(*w);
                   }
                 },
                 [&](const op::Attend& o) {
                   const double width = static_cast<double>(o.kv_heads) * o.head_dim;
                   cost.kv_bytes = query.kv_positions * 2 * width * query.kv_value_bytes;
                   cost.operations = query.kv_positions * 4 * static_cast<double>(o.heads) * o.head_dim;
                 },
                 [](const auto&) {},
             },
             op.action);
  return cost;
}

std::vector<const Weight*> matrices_of(const Op& op) {
  if (const auto* linear = std::get_if<op::Linear>(&op.action)) return {linear->weight};
  if (const auto* route = std::get_if<op::Route>(&op.action)) return {route->router};
  if (const auto* experts = std::get_if<op::Experts>(&op.action)) return {experts->gate, experts->up, experts->down};
  return {};
}

std::string to_text(const Program& program) {
  std::string out = fmt::format("program {}: {} operations, {} values, {} cache layers\n", program.family,
                                program.ops.size(), program.values.size(), program.cache_layers.size());
  for (const Op& op : program.ops) {
    const ValueInfo& value = program.values[static_cast<size_t>(op.output)];
    // Of one row, with as many experts as a row chooses.
    CostQuery row;
    if (std::holds_alternative<op::Experts>(op.action))
      row.distinct_experts = program.values[static_cast<size_t>(op.inputs[1])].width;
    const OpCost cost = cost_of(program, op, row);
    out += fmt::format("{:<28} {:<9} {:>9.3f} MB {:>9.3f} Mop -> [{}, {}]  {}\n", op.name, kind_name(op.action),
                       cost.weight_bytes / 1e6, cost.operations / 1e6,
                       value.extent == Extent::sampled ? "sampled" : "rows", value.width, details(op.action));
  }
  return out;
}

}  // namespace cohort
