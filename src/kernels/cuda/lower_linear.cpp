#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lowering.h"

namespace cohort::cuda {

std::vector<size_t> Lowering::linear_group(size_t i) const {
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

Expected<void> Lowering::emit(size_t i, const op::Linear& linear) {
  if (!is_quantised(*linear.weight)) return emit_float(i, linear);
  const ValueId input = op(i).inputs[0];
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
    if (output != program_.logits) args.addend = fold_add(output);
    COHORT_ASSIGN(args.out, make_floats(output));
  } else {
    COHORT_ASSIGN(args.out, make_group(group, outputs));
  }
  add_dense(args.sampled ? "head" : args.addend.data != nullptr ? "linear_add" : "linear", m, args);
  note(DenseNote{m.format, args});
  return {};
}

Expected<Rows> Lowering::make_group(const std::vector<size_t>& group, int64_t outputs) {
  const int64_t rows = capacity(op(group[0]).output);
  COHORT_ASSIGN(Buffer memory, pool_.take(static_cast<size_t>(rows * outputs) * sizeof(float)));
  const Rows all{reinterpret_cast<float*>(memory.get()), static_cast<int32_t>(outputs)};
  int64_t offset = 0;
  for (size_t member : group) {
    DeviceValue& value = values_[index(op(member).output)];
    value.float_memory = memory;
    value.rows = {all.data + offset, all.stride};
    offset += action<op::Linear>(member)->weight->rows;
    lowered_[member] = true;
  }
  return all;
}

Rows Lowering::fold_add(ValueId& output) {
  const auto& readers = consumers_[index(output)];
  if (readers.size() != 1 || action<op::Add>(readers[0]) == nullptr) return {};
  const auto& inputs = op(readers[0]).inputs;
  const ValueId other = inputs[0] == output ? inputs[1] : inputs[0];
  if (other == output || values_[index(other)].rows.data == nullptr) return {};
  lowered_[readers[0]] = true;
  output = op(readers[0]).output;
  return values_[index(other)].rows;
}

void Lowering::add_dense(const char* kind, const DeviceMatrix& m, LinearArgs args) {
  const Format format = m.format;
  const bool streams = stream_fits(format, m.geometry);
  const bool few = args.sampled && limits_.canvas == 0;  // else whole canvases are sampled
  add(kind, [args, format, streams, few](const Launcher& l) mutable {
    args.step = l.step;
    if (!streams || (l.variant == Variant::tiles && !few)) {
      launch_tiles(format, Mode::dense, args, l.sms, l.stream);
    } else {
      launch_stream(format, l.variant != Variant::small, args, l.sms, l.stream);
    }
  });
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
