#ifdef COHORT_HAS_CUDA

#include <algorithm>

#include "kernels/cuda/lowering.h"

namespace cohort::cuda {

Expected<HeadInput> Lowering::head_input(const HeadPlan& plan, int32_t heads) {
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

Expected<void> Lowering::emit(size_t i, const op::Attend& attend) {
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
  const int32_t head_dim = attend.head_dim;
  const auto fuses = [cache, head_dim](const Launcher& l) {
    return l.decode && attention_fuses(cache->type, head_dim);
  };
  add("heads", [heads, cache, layer, fuses](const Launcher& l) mutable {
    if (fuses(l)) return;
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
  COHORT_ASSIGN(args.sinks, vector(attend.sinks));
  COHORT_ASSIGN(args.window_index, window_index(attend.window));
  const size_t partial = static_cast<size_t>(limits_.units) *
                         static_cast<size_t>(attend.heads * (attend.head_dim + kPartialHead)) * sizeof(float);
  COHORT_ASSIGN(Buffer partials, pool_.take(partial));
  args.partial = reinterpret_cast<float*>(partials.get());
  const auto counters = static_cast<size_t>(limits_.rows * attend.heads);
  COHORT_ASSIGN(args.counters, zeroed(counters + 1));
  args.next_item = args.counters + counters;
  const bool whole_blocks = attend.head_dim % 32 == 0;
  if (needs_floats(output) || !whole_blocks) {
    COHORT_ASSIGN(args.out, make_floats(output));
  }
  if (needs_quantised(output) && whole_blocks) {
    COHORT_ASSIGN(args.quantised, make_quantised(output));
  }
  args.new_q = heads.q;
  args.new_k = heads.k;
  args.new_v = heads.v;
  result_.attention_groups &= attention_groups(args);
  result_.group_rows = std::min(result_.group_rows, attention_group_rows(args));
  add("attention", [args, cache, layer, fuses](const Launcher& l) mutable {
    args.fused = fuses(l);
    args.step = l.step;
    args.cache = cache->type;
    args.keys = cache->keys[layer];
    args.values = cache->values[layer];
    if (args.fused && !l.attention_groups && l.one_row && attention_few_fits(args)) {
      launch_attention_few(args, l.sms, l.stream);
    } else if (l.attention_groups) {
      if (!args.fused) launch_attention_tile(args, l.sms, l.stream);
      launch_attention_group(args, l.sms, l.stream);
    } else {
      launch_attention(args, l.sms, l.stream);
    }
  });
  note(AttentionNote{args, layer});
  return {};
}

Expected<int32_t> Lowering::window_index(int32_t window) {
  auto& windows = result_.windows;
  const auto at = std::find(windows.begin(), windows.end(), window);
  if (at != windows.end()) return static_cast<int32_t>(at - windows.begin());
  if (windows.size() == kMaxWindows)
    return fail(ErrorCode::unsupported, "CUDA: more than {} different attention windows", kMaxWindows);
  windows.push_back(window);
  return static_cast<int32_t>(windows.size() - 1);
}

Expected<int32_t*> Lowering::zeroed(size_t count) {
  if (count > counters_size_) {
    COHORT_ASSIGN(void* fresh, memory_.allocate_zeros(count * sizeof(int32_t), "counters"));
    counters_ = static_cast<int32_t*>(fresh);
    counters_size_ = count;
  }
  return counters_;
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
