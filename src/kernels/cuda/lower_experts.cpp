#ifdef COHORT_HAS_CUDA

#include <algorithm>
#include <string_view>

#include "kernels/cuda/lowering.h"
#include "kernels/cuda/pack.h"

namespace cohort::cuda {

Expected<void> Lowering::allocate_routing() {
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
  const int64_t routes = limits_.rows * top_k, words = (routes / 8 + 3 * (experts + 1)) * 12;
  const auto ints = [&](int64_t count) -> Expected<int32_t*> {
    COHORT_ASSIGN(void* memory, memory_.allocate_zeros(static_cast<size_t>(count) * 4, "routes"));
    return static_cast<int32_t*>(memory);
  };
  COHORT_ASSIGN(group_.count, ints(1));
  COHORT_ASSIGN(group_.distinct, ints(1));
  // Entries of 8 routes have 12 words, those of 32 have 36: this holds either.
  COHORT_ASSIGN(group_.entries, ints(words));
  COHORT_ASSIGN(group_.slot_expert, ints(routes));
  COHORT_ASSIGN(int32_t * weights, ints(routes));
  group_.slot_weight = reinterpret_cast<float*>(weights);
  COHORT_ASSIGN(group_.counter, ints(1));
  COHORT_ASSIGN(group_.counts, ints(kMaxExperts));
  COHORT_ASSIGN(group_.places, ints(routes));
  COHORT_ASSIGN(int32_t * logits, ints(limits_.rows * experts));
  router_logits_ = reinterpret_cast<float*>(logits);
  const auto& hosted = part_.experts;
  if (std::any_of(hosted.begin(), hosted.end(), [](const auto& layer) { return !layer.empty(); })) {
    here_ = group_;
    COHORT_ASSIGN(here_.count, ints(1));
    COHORT_ASSIGN(here_.entries, ints(words));
    COHORT_ASSIGN(arrivals_, ints(1));
    COHORT_ASSIGN(released_, ints(2 * static_cast<int64_t>(hosted.size())));
  }
  experts_stream_ = experts_stream();
  return {};
}

size_t Lowering::experts_of(size_t i) const {
  const auto& readers = consumers_[index(op(i).output)];
  const auto at =
      std::find_if(readers.begin(), readers.end(), [&](size_t r) { return action<op::Experts>(r) != nullptr; });
  return at != readers.end() ? *at : i;
}

RowArgs Lowering::weighted_sum(size_t i, const Rows& results) const {
  RowArgs sum;
  sum.width = static_cast<int32_t>(action<op::Experts>(i)->down->rows);
  sum.expert_output = results.data;
  sum.slot_weight = group_.slot_weight;
  sum.top_k = info(op(i).inputs[1]).width;
  return sum;
}

bool Lowering::experts_stream() const {
  for (const Op& op : program_.ops) {
    const auto* experts = std::get_if<op::Experts>(&op.action);
    if (experts == nullptr) continue;
    if (is_quantised(*experts->gate) != is_quantised(*experts->down)) return false;
    if (!is_quantised(*experts->gate)) continue;  // takes entries of any size
    const Format up = experts->gate->type == experts->up->type ? format_of(experts->gate->type) : Format::generic;
    const Format down = format_of(experts->down->type);
    const auto blocks = [](const Weight& w) { return static_cast<int>(w.cols / 32); };
    if (!experts_fit(up, make_geometry(up, experts->gate->rows, blocks(*experts->gate), 2), down,
                     make_geometry(down, experts->down->rows, blocks(*experts->down), 1)))
      return false;
  }
  return true;
}

Expected<void> Lowering::emit(size_t i, const op::Route& route) {
  const ValueId input = op(i).inputs[0];
  RouteArgs args;
  args.experts = static_cast<int32_t>(route.router->rows);
  args.k = static_cast<int32_t>(route.router->cols);
  args.top_k = route.top_k;
  args.renormalise = route.renormalise;
  COHORT_ASSIGN(args.bias, vector(route.bias));
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
    linear.bias = args.bias;
    COHORT_ASSIGN(linear.input, quantised(input));
    linear.out = {router_logits_, args.experts};
    add_dense("router_linear", m, linear);
    add("route", [args, streams = streams(experts_of(i))](const Launcher& l) mutable {
      args.step = l.step;
      args.cap = entry_columns(l.variant, streams);
      launch_select(args, l.sms, l.stream);
    });
    return {};
  }
  if (args.k % 64 != 0 || args.k > kRouterColumns) {
    FloatMatrixArgs linear;
    const FloatType type = float_type(route.router->type);
    COHORT_ASSIGN(linear.weights, float_matrix({route.router}));
    linear.row_bytes = static_cast<int32_t>(float_row_bytes(type, args.k));
    linear.outputs = args.experts;
    linear.bias = args.bias;
    linear.k = args.k;
    linear.input = values_[index(input)].rows;
    linear.out = {router_logits_, args.experts};
    add("router_linear", [linear, type](const Launcher& l) mutable {
      linear.step = l.step;
      launch_float_matrix(type, Mode::dense, l.variant == Variant::small, linear, l.sms, l.stream);
    });
    add("route", [args, streams = streams(experts_of(i))](const Launcher& l) mutable {
      args.step = l.step;
      args.cap = entry_columns(l.variant, streams);
      launch_select(args, l.sms, l.stream);
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
    // More than a few rows: a pass of its own, instead of once for every expert.
    norm.width = args.k;
    norm.input = args.input;
    norm.norm = true;
    norm.eps = args.eps;
    norm.norm_weight = args.norm_weight;
    norm.norm_out = args.norm_out;
    norm.quantised = args.quantised;
    const auto& readers = consumers_[index(input)];
    const bool others =
        std::any_of(readers.begin(), readers.end(), [&](size_t r) { return r != i && reads_floats(r); });
    if (!others) args.norm_out = {};
  } else {
    args.input = values_[index(input)].rows;
  }
  FloatLinearArgs dots;
  dots.weights = args.weights;
  dots.outputs = args.experts;
  dots.bias = args.bias;
  dots.k = args.k;
  dots.input = with_norm ? norm.norm_out : args.input;
  dots.out = {router_logits_, args.experts};
  add("route", [args, norm, dots, with_norm, streams = streams(experts_of(i))](const Launcher& l) {
    RouteArgs a = args;
    a.step = l.step;
    a.cap = entry_columns(l.variant, streams);
    if (l.variant == Variant::small) {
      launch_router(a, l.sms, l.stream);
    } else {
      if (with_norm) {
        RowArgs n = norm;
        n.step = l.step;
        launch_rows(n, l.sms, l.stream);
      }
      FloatLinearArgs d = dots;
      d.step = l.step;
      launch_float_linear(d, l.sms, l.stream);
    }
    launch_select(a, l.sms, l.stream);
  });
  if (with_norm) note(args);
  return {};
}

Act Lowering::act_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return Act::silu;
    case Activation::gelu_tanh:
      return Act::gelu_tanh;
    case Activation::clamped_swiglu:
      return Act::clamped_swiglu;
  }
  return Act::silu;
}

Expected<PairBias> Lowering::pair_bias(const op::Experts& experts) {
  PairBias bias;
  COHORT_ASSIGN(bias.gate, vector(experts.gate_bias));
  COHORT_ASSIGN(bias.up, vector(experts.up_bias));
  return bias;
}

Expected<void> Lowering::emit(size_t i, const op::Experts& experts) {
  const auto* on_host = host_experts(i);
  return on_host != nullptr ? emit_part(i, experts, *on_host) : emit_all(i, experts);
}

Expected<void> Lowering::emit_all(size_t i, const op::Experts& experts) {
  if (!is_quantised(*experts.gate) || !is_quantised(*experts.down)) return emit_float(i, experts);
  const ValueId input = op(i).inputs[0];
  const auto inner = static_cast<int32_t>(experts.gate->rows);
  const auto hidden = static_cast<int32_t>(experts.down->rows);
  const int32_t top_k = info(op(i).inputs[1]).width;
  COHORT_ASSIGN(const DeviceMatrix pair, matrix({experts.gate, experts.up}, true));
  COHORT_ASSIGN(const DeviceMatrix down, matrix({experts.down}, false));
  const int64_t routes = int64_t{limits_.rows} * top_k;
  COHORT_ASSIGN(Buffer d_memory, pool_.take(static_cast<size_t>(routes * hidden) * sizeof(float)));
  Buffer hq_memory;
  COHORT_ASSIGN(const Quantised hq, take_quantised(routes, inner, hq_memory));

  // Many rows: tensor tiles, and the weighted sum by a pass over rows.
  LinearArgs up;
  up.group = group_;
  up.weights = pair.data;
  up.geometry = pair.geometry;
  up.two_groups = pair.two_groups;
  up.outputs = inner;
  up.top_k = top_k;
  up.act = act_of(experts.activation);
  COHORT_ASSIGN(up.pair_bias, pair_bias(experts));
  // Whether the last kernel before these is the one that chooses experts, which does not make the input.
  const bool early = values_[index(input)].quantised.data != nullptr && !result_.launches.empty() &&
                     std::string_view(result_.launches.back().kind) == "route";
  COHORT_ASSIGN(up.input, quantised(input));
  up.quantised = hq;

  LinearArgs out;
  out.group = group_;
  out.weights = down.data;
  out.geometry = down.geometry;
  out.two_groups = down.two_groups;
  out.outputs = hidden;
  out.top_k = top_k;
  COHORT_ASSIGN(out.bias, vector(experts.down_bias));
  out.input = hq;
  out.out = {reinterpret_cast<float*>(d_memory.get()), hidden};

  // Few rows: two kernels.
  UpArgs few_up;
  few_up.group = group_;
  few_up.weights = pair.data;
  few_up.matrix_bytes = int64_t{pair.geometry.tiles} * pair.geometry.tile_bytes;
  few_up.tile_bytes = pair.geometry.tile_bytes;
  few_up.units = inner / 32;
  few_up.two_groups = pair.two_groups;
  few_up.top_k = top_k;
  few_up.act = up.act;
  few_up.bias = up.pair_bias;
  few_up.input = up.input;
  few_up.out = hq;

  DownArgs few_down;
  few_down.group = group_;
  few_down.weights = down.data;
  few_down.matrix_bytes = int64_t{down.geometry.tiles} * down.geometry.tile_bytes;
  few_down.tile_bytes = down.geometry.tile_bytes;
  few_down.outputs = hidden;
  few_down.two_groups = down.two_groups;
  few_down.top_k = top_k;
  few_down.bias = out.bias;
  few_down.input = hq;
  few_down.results = out.out;

  RowArgs sum = weighted_sum(i, out.out);
  ValueId output = op(i).output;
  sum.input = fold_add(output);
  few_down.addend = sum.input;
  COHORT_ASSIGN(few_down.out, make_floats(output));

  const Format up_format = pair.format, down_format = down.format;
  const bool streams = this->streams(i);
  add("gate_up", [up, few_up, up_format, streams, early](const Launcher& l) mutable {
    if (l.variant == Variant::tiles || !streams) {
      up.step = l.step;
      launch_tiles(up_format, Mode::gate_up, up, l.sms, l.stream);
    } else {
      few_up.step = l.step;
      few_up.early = early && l.variant == Variant::small;
      launch_up(up_format, up.geometry, few_up, l.sms, l.stream);
    }
  });
  note(ExpertsNote{up_format, down_format, pair.geometry, down.geometry, few_up, few_down});
  add("down", [out, few_down, down_format, streams](const Launcher& l) mutable {
    if (l.variant == Variant::tiles || !streams) {
      out.step = l.step;
      launch_tiles(down_format, Mode::down, out, l.sms, l.stream);
    } else {
      few_down.step = l.step;
      launch_down(down_format, l.variant == Variant::small, out.geometry, few_down, l.sms, l.stream);
    }
  });
  bring(i, out.out);
  return emit_rows(i, sum, output, streams ? &few_down.out : nullptr);
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
