#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/lower.h"

#include <algorithm>

#include "kernels/cuda/lowering.h"

namespace cohort::cuda {

Expected<Lowered> Lowering::run() {
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
  if (result_.visits.empty()) COHORT_TRY(find_flow(sms_));
  return std::move(result_);
}

void Lowering::defer_head_operations() {
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

void Lowering::defer_router_norms() {
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const auto* route = action<op::Route>(i);
    if (route == nullptr || is_quantised(*route->router)) continue;
    const int64_t at = producer_[index(op(i).inputs[0])];
    if (at < 0) continue;
    const auto* norm = action<op::RmsNorm>(static_cast<size_t>(at));
    if (norm == nullptr || norm->group != info(op(i).inputs[0]).width || norm->group % 64 != 0 ||
        norm->group > kRouterColumns)
      continue;
    const auto& readers = consumers_[index(op(i).inputs[0])];
    if (std::all_of(readers.begin(), readers.end(), [&](size_t r) { return r >= i; }))
      deferred_to_[static_cast<size_t>(at)] = i;
  }
}

Expected<Rows> Lowering::make_floats(ValueId id) {
  DeviceValue& value = values_[index(id)];
  if (value.rows.data == nullptr) {
    // The host and the choice of tokens take logits without gaps.
    const int stride = id == program_.logits ? info(id).width : round_up(info(id).width, 4);
    COHORT_ASSIGN(value.float_memory, pool_.take(static_cast<size_t>(capacity(id) * stride) * sizeof(float)));
    value.rows = {reinterpret_cast<float*>(value.float_memory.get()), stride};
  }
  return value.rows;
}

Expected<Quantised> Lowering::take_quantised(int64_t rows, int64_t width, Buffer& memory) {
  const auto blocks = static_cast<int32_t>(width / 32);
  const Quantised shape{nullptr, record_bytes(blocks, true), blocks};
  COHORT_ASSIGN(memory, pool_.take(static_cast<size_t>(rows * shape.stride)));
  return Quantised{memory.get(), shape.stride, shape.blocks};
}
Expected<Quantised> Lowering::make_quantised(ValueId id) {
  DeviceValue& value = values_[index(id)];
  if (value.quantised.data == nullptr) {
    COHORT_ASSIGN(value.quantised, take_quantised(capacity(id), info(id).width, value.quantised_memory));
  }
  return value.quantised;
}

Expected<Quantised> Lowering::quantised(ValueId id) {
  DeviceValue& value = values_[index(id)];
  if (value.quantised.data == nullptr) {
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

Expected<Lowered> lower(const Program& program, const Limits& limits, const CacheMemory& cache, DeviceMemory& memory,
                        Uploader& uploader, int sms, const HostPart& part) {
  return Lowering(program, limits, cache, memory, uploader, sms, part).run();
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
