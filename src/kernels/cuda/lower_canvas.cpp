#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lowering.h"
#include "kv/cache.h"

namespace cohort::cuda {
namespace {

/// That a step can come to: those of its rotary tables, which are filled for the context in use.
int64_t positions_of(const Program& program) {
  int64_t positions = program.context;
  for (const Op& op : program.ops) {
    const auto* rope = std::get_if<op::Rope>(&op.action);
    if (rope == nullptr || rope->table->frequencies.empty() || rope->table->cosines.empty()) continue;
    positions =
        std::min(positions, static_cast<int64_t>(rope->table->cosines.size() / rope->table->frequencies.size()));
  }
  return positions;
}

/// Ids that rows can be thought to hold.
int32_t tokens_of(const Program& program) {
  int64_t tokens = program.vocabulary;
  for (const Op& op : program.ops) {
    if (const auto* mix = std::get_if<op::Mix>(&op.action)) tokens = std::max(tokens, mix->table->rows);
  }
  return static_cast<int32_t>(tokens);
}

}  // namespace

Limits limits_of(const Program& program, int32_t max_rows, int32_t canvas, int32_t streams) {
  Limits limits;
  limits.rows = std::max(max_rows, kWideRows);
  if (canvas <= 0) return limits;
  limits.canvas = canvas;
  limits.places = std::max(streams, 1);
  limits.rows = std::max(limits.rows, limits.canvas);
  limits.sampled = std::max(limits.sampled, std::min(limits.places, limits.rows / limits.canvas) * limits.canvas);
  const int64_t splits = positions_of(program) / kSplitPositions + 1;
  limits.units = static_cast<int32_t>(std::clamp<int64_t>(limits.canvas * splits, limits.units, INT32_MAX / 64));
  return limits;
}

/// Once, for whatever needs them first.
Expected<void> Lowering::allocate_canvases(size_t i) {
  CanvasMemory& canvases = result_.canvases;
  if (canvases.kinds != nullptr) return {};
  if (limits_.canvas == 0) {
    return fail(ErrorCode::unsupported, "CUDA: '{}' is for rows of canvases, whose length was not given", op(i).name);
  }
  const int32_t tokens = tokens_of(program_);
  canvases.thoughts = thoughts_of(tokens, limits_.places * limits_.canvas);
  const auto weights = static_cast<size_t>(canvases.thoughts.rows) * static_cast<size_t>(canvases.thoughts.stride);
  COHORT_ASSIGN(void* memory, memory_.allocate(thought_bytes(canvases.thoughts), "what canvases are thought to hold"));
  canvases.thoughts.weights = static_cast<float*>(memory);
  canvases.thoughts.marks = reinterpret_cast<uint32_t*>(canvases.thoughts.weights + weights);
  canvases.most_entries = std::max(tokens, 1 << 16);
  COHORT_ASSIGN(memory,
                memory_.allocate(static_cast<size_t>(canvases.most_entries) * sizeof(ThoughtEntry), "mixtures"));
  canvases.entries = static_cast<ThoughtEntry*>(memory);
  const auto ints = static_cast<size_t>(limits_.canvas) + 1 + static_cast<size_t>(limits_.rows);
  COHORT_ASSIGN(memory, memory_.allocate(ints * sizeof(int32_t), "the rows of canvases"));
  canvases.begins = static_cast<int32_t*>(memory);
  canvases.kinds = canvases.begins + limits_.canvas + 1;
  return {};
}

Expected<void> Lowering::emit(size_t i, const op::Mix& mix) {
  const ValueId output = op(i).output;
  const int32_t width = info(output).width;
  COHORT_TRY(allocate_canvases(i));
  if (width % 4 != 0) {
    return fail(ErrorCode::unsupported, "CUDA: '{}' has rows of {} values; they must be a multiple of 4", op(i).name,
                width);
  }
  MixArgs args;
  args.kinds = result_.canvases.kinds;
  args.thoughts = result_.canvases.thoughts;
  COHORT_ASSIGN(args.table, decoded_table(mix.table));
  args.vocabulary = static_cast<int32_t>(mix.table->rows);
  args.width = width;
  args.scale = mix.scale;
  COHORT_ASSIGN(args.out, make_floats(output));
  add("mix", [args](const Launcher& l) mutable {
    args.step = l.step;
    launch_mix(args, l.sms, l.stream);
  });
  return {};
}

Expected<void> Lowering::emit(size_t i, const op::Condition& condition) {
  const ValueId output = op(i).output;
  COHORT_TRY(allocate_canvases(i));
  ConditionArgs args;
  args.kinds = result_.canvases.kinds;
  args.width = info(output).width;
  if (args.width > kMostRowValues) {
    return fail(ErrorCode::unsupported, "CUDA: '{}' has rows of {} values; at most {} fit", op(i).name, args.width,
                kMostRowValues);
  }
  args.eps = condition.eps;
  args.e = values_[index(op(i).inputs[0])].rows;
  args.g = values_[index(op(i).inputs[1])].rows;
  COHORT_ASSIGN(args.out, make_floats(output));
  add("condition", [args](const Launcher& l) mutable {
    args.step = l.step;
    launch_condition(args, l.sms, l.stream);
  });
  return {};
}

/// As elementwise, but rows of canvases have factors of their own.
Expected<void> Lowering::emit_canvas_scale(size_t i, const op::Scale& scale) {
  const ValueId output = op(i).output;
  COHORT_TRY(allocate_canvases(i));
  CanvasScaleArgs args;
  args.kinds = result_.canvases.kinds;
  args.width = info(output).width;
  args.columns = scale.values->values.size() > 1;
  if (sampled(output) || scale.canvas_values->values.size() != scale.values->values.size()) {
    return fail(ErrorCode::unsupported, "CUDA: '{}' has {} factors for rows of canvases and {} for others", op(i).name,
                scale.canvas_values->values.size(), scale.values->values.size());
  }
  COHORT_ASSIGN(args.factors, vector(scale.values));
  COHORT_ASSIGN(args.canvas_factors, vector(scale.canvas_values));
  args.in = values_[index(op(i).inputs[0])].rows;
  COHORT_ASSIGN(args.out, make_floats(output));
  add("canvas_scale", [args](const Launcher& l) mutable {
    args.step = l.step;
    launch_canvas_scale(args, l.sms, l.stream);
  });
  return {};
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
