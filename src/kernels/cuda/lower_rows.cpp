#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lowering.h"

namespace cohort::cuda {

Expected<void> Lowering::emit_rows(size_t at, RowArgs args, ValueId output, const Rows* few) {
  args.width = info(output).width;
  args.sampled = sampled(output);
  if (args.width % 4 != 0 || args.width > kMostRowValues) {
    return fail(ErrorCode::unsupported, "CUDA: '{}' has rows of {} values; they must be a multiple of 4, at most {}",
                op(at).name, args.width, kMostRowValues);
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
  if (few != nullptr || (!only_norm && (needs_floats(output) || norm != nullptr))) {
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
  if (few == nullptr) {
    add("rows", [args](const Launcher& l) mutable {
      args.step = l.step;
      launch_rows(args, l.sms, l.stream);
    });
    note(args);
    return {};
  }
  RowArgs ready = args;  // the sum is there: only what follows
  ready.expert_output = nullptr;
  ready.input = *few;
  ready.sum_out = {};
  const bool nothing = !ready.norm && ready.quantised.data == nullptr;
  add("combine", [args, ready, nothing](const Launcher& l) {
    const bool summed = l.variant == Variant::small || l.flow != FlowRows::none;
    if (nothing && summed) return;
    RowArgs a = summed ? ready : args;
    a.step = l.step;
    launch_rows(a, l.sms, l.stream);
  });
  note(args);
  return {};
}

Expected<void> Lowering::emit(size_t i, const op::Embed& embed) {
  RowArgs args;
  COHORT_ASSIGN(args.table, decoded_table(embed.table));
  args.table_scale = embed.scale;
  return emit_rows(i, args, op(i).output);
}

Expected<void> Lowering::emit(size_t i, const op::Gather&) {
  RowArgs args;
  args.input = values_[index(op(i).inputs[0])].rows;
  args.gather = true;
  return emit_rows(i, args, op(i).output);
}

Expected<void> Lowering::emit(size_t i, const op::Add&) {
  RowArgs args;
  args.input = values_[index(op(i).inputs[0])].rows;
  args.addend = values_[index(op(i).inputs[1])].rows;
  return emit_rows(i, args, op(i).output);
}

Expected<void> Lowering::emit(size_t i, const op::RmsNorm& norm) {
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
    add("rows", [args](const Launcher& l) mutable {
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

Expected<void> Lowering::emit_elementwise(size_t i, ElementwiseArgs args) {
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

Expected<void> Lowering::emit(size_t i, const op::Gate& gate) {
  ElementwiseArgs args;
  switch (gate.activation) {
    case Activation::silu:
      args.kind = Elementwise::gate_silu;
      break;
    case Activation::gelu_tanh:
      args.kind = Elementwise::gate_gelu;
      break;
    case Activation::clamped_swiglu:
      args.kind = Elementwise::gate_clamped_swiglu;
      break;
  }
  return emit_elementwise(i, args);
}

Expected<void> Lowering::emit(size_t i, const op::Scale& scale) {
  if (scale.canvas_values != nullptr) return emit_canvas_scale(i, scale);
  ElementwiseArgs args;
  args.kind = scale.values->values.size() == 1 ? Elementwise::scale_one : Elementwise::scale_columns;
  COHORT_ASSIGN(args.factors, vector(scale.values));
  return emit_elementwise(i, args);
}

Expected<void> Lowering::emit(size_t i, const op::Softcap& softcap) {
  ElementwiseArgs args;
  args.kind = Elementwise::softcap;
  args.cap = softcap.cap;
  // In place where nobody else reads the input: the logits of canvases are large.
  const ValueId input = op(i).inputs[0];
  if (consumers_[index(input)].size() == 1 && values_[index(input)].rows.stride == info(input).width) {
    values_[index(op(i).output)].rows = values_[index(input)].rows;
    values_[index(op(i).output)].float_memory = values_[index(input)].float_memory;
  }
  return emit_elementwise(i, args);
}

Expected<void> Lowering::emit(size_t i, const op::Rope& rope) {
  ElementwiseArgs args;
  args.kind = rope.pairing == RopePairing::half_split ? Elementwise::rope_half : Elementwise::rope_adjacent;
  args.group = rope.head_dim;
  COHORT_TRY(set_rope(rope, args));
  return emit_elementwise(i, args);
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
