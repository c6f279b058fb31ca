#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lowering.h"
#include "kernels/cuda/pack.h"

namespace cohort::cuda {

Expected<const std::byte*> Lowering::float_matrix(const std::vector<const Weight*>& parts) {
  auto& known = float_matrices_[parts];
  if (known != nullptr) return known;
  const Weight& first = *parts[0];
  int64_t rows = 0;
  std::vector<int64_t> begins;
  std::vector<SliceHold> holds;
  for (const Weight* part : parts) {
    begins.push_back(rows);
    rows += part->rows;
    holds.push_back(hold(*part));
  }
  const auto fill = [&](int64_t i, std::byte* out) {
    const int64_t expert = i / rows, row = i % rows;
    size_t part = parts.size() - 1;
    while (begins[part] > row) --part;
    pack_float_row(*parts[part], expert, row - begins[part], out);
  };
  const auto bytes = static_cast<size_t>(float_row_bytes(float_type(first.type), first.cols));
  COHORT_ASSIGN(known, uploader_.upload(first.experts * rows, bytes, fill, first.name.c_str()));
  return known;
}

Expected<void> Lowering::emit_float(size_t i, const op::Linear& linear) {
  std::vector<const Weight*> weights;
  std::vector<float> biases;
  int64_t outputs = 0;
  const std::vector<size_t> group = linear_group(i);
  for (size_t member : group) {
    const auto& l = *action<op::Linear>(member);
    weights.push_back(l.weight);
    outputs += l.weight->rows;
    if (l.bias != nullptr) biases.insert(biases.end(), l.bias->values.begin(), l.bias->values.end());
  }
  FloatMatrixArgs args;
  const FloatType type = float_type(linear.weight->type);
  COHORT_ASSIGN(args.weights, float_matrix(weights));
  args.k = static_cast<int32_t>(linear.weight->cols);
  args.row_bytes = static_cast<int32_t>(float_row_bytes(type, args.k));
  args.outputs = static_cast<int32_t>(outputs);
  args.sampled = sampled(op(i).output);
  args.input = values_[index(op(i).inputs[0])].rows;
  if (!biases.empty()) {
    COHORT_ASSIGN(args.bias, uploader_.upload(biases, "biases"));
  }
  if (group.size() == 1) {
    COHORT_ASSIGN(args.out, make_floats(op(i).output));
  } else {
    COHORT_ASSIGN(args.out, make_group(group, outputs));
  }
  add(args.sampled ? "head" : "linear", [args, type](const Launcher& l) mutable {
    args.step = l.step;
    launch_float_matrix(type, Mode::dense, l.variant == Variant::small, args, l.sms, l.stream);
  });
  return {};
}

Expected<void> Lowering::emit_float(size_t i, const op::Experts& experts) {
  const bool float_pair = !is_quantised(*experts.gate), float_down = !is_quantised(*experts.down);
  if (float_pair != !is_quantised(*experts.up) || (float_pair && experts.gate->type != experts.up->type)) {
    return fail(ErrorCode::unsupported,
                "CUDA: tensor '{}' is {} and '{}' is {}; gate and up must both be quantised or have the same float "
                "type here: use the CPU",
                experts.gate->name, type_info(experts.gate->type).name, experts.up->name,
                type_info(experts.up->type).name);
  }
  const ValueId input = op(i).inputs[0];
  const auto inner = static_cast<int32_t>(experts.gate->rows);
  const auto hidden = static_cast<int32_t>(experts.down->rows);
  const int32_t top_k = info(op(i).inputs[1]).width;
  const int64_t routes = int64_t{limits_.rows} * top_k;
  const int32_t inner_stride = round_up(inner, 4);
  COHORT_ASSIGN(Buffer h_memory, pool_.take(static_cast<size_t>(routes * inner_stride) * sizeof(float)));
  COHORT_ASSIGN(Buffer d_memory, pool_.take(static_cast<size_t>(routes * hidden) * sizeof(float)));
  const Rows h{reinterpret_cast<float*>(h_memory.get()), inner_stride};
  const Rows d{reinterpret_cast<float*>(d_memory.get()), hidden};
  const bool streams = this->streams(i);
  const Act act = act_of(experts.activation);
  COHORT_ASSIGN(const PairBias bias, pair_bias(experts));
  COHORT_ASSIGN(const float* down_bias, vector(experts.down_bias));

  if (float_pair) {
    FloatMatrixArgs pair;
    const FloatType type = float_type(experts.gate->type);
    pair.group = group_;
    COHORT_ASSIGN(pair.weights, float_matrix({experts.gate}));
    COHORT_ASSIGN(pair.up_weights, float_matrix({experts.up}));
    pair.k = static_cast<int32_t>(experts.gate->cols);
    pair.row_bytes = static_cast<int32_t>(float_row_bytes(type, pair.k));
    pair.outputs = inner;
    pair.top_k = top_k;
    pair.act = act;
    pair.pair_bias = bias;
    pair.input = values_[index(input)].rows;
    pair.out = h;
    add("gate_up", [pair, type, streams](const Launcher& l) mutable {
      pair.step = l.step;
      pair.cap = entry_columns(l.variant, streams);
      launch_float_matrix(type, Mode::gate_up, l.variant == Variant::small, pair, l.sms, l.stream);
    });
  } else {
    COHORT_ASSIGN(const DeviceMatrix pair, matrix({experts.gate, experts.up}, true));
    LinearArgs args;
    args.group = group_;
    args.weights = pair.data;
    args.geometry = pair.geometry;
    args.two_groups = pair.two_groups;
    args.outputs = inner;
    args.top_k = top_k;
    args.act = act;
    args.pair_bias = bias;
    COHORT_ASSIGN(args.input, quantised(input));
    args.out = h;
    add("gate_up", [args, format = pair.format](const Launcher& l) mutable {
      args.step = l.step;
      launch_tiles(format, Mode::gate_up, args, l.sms, l.stream);
    });
  }

  Buffer hq_memory;
  if (float_down) {
    FloatMatrixArgs down;
    const FloatType type = float_type(experts.down->type);
    down.group = group_;
    COHORT_ASSIGN(down.weights, float_matrix({experts.down}));
    down.k = inner;
    down.row_bytes = static_cast<int32_t>(float_row_bytes(type, inner));
    down.outputs = hidden;
    down.top_k = top_k;
    down.bias = down_bias;
    down.input = h;
    down.out = d;
    add("down", [down, type, streams](const Launcher& l) mutable {
      down.step = l.step;
      down.cap = entry_columns(l.variant, streams);
      launch_float_matrix(type, Mode::down, l.variant == Variant::small, down, l.sms, l.stream);
    });
  } else {
    COHORT_ASSIGN(const DeviceMatrix matrix_down, matrix({experts.down}, false));
    QuantiseArgs quantise;
    quantise.each = top_k;
    quantise.blocks = inner / 32;
    quantise.input = h;
    COHORT_ASSIGN(quantise.out, take_quantised(routes, inner, hq_memory));
    LinearArgs down;
    down.group = group_;
    down.weights = matrix_down.data;
    down.geometry = matrix_down.geometry;
    down.two_groups = matrix_down.two_groups;
    down.outputs = hidden;
    down.top_k = top_k;
    down.bias = down_bias;
    down.input = quantise.out;
    down.out = d;
    add("down", [quantise, down, format = matrix_down.format](const Launcher& l) mutable {
      quantise.step = down.step = l.step;
      launch_quantise(quantise, l.sms, l.stream);
      launch_tiles(format, Mode::down, down, l.sms, l.stream);
    });
  }

  bring(i, d);
  RowArgs sum = weighted_sum(i, d);
  ValueId output = op(i).output;
  sum.input = fold_add(output);
  return emit_rows(i, sum, output);
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
