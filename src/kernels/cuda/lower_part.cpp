#ifdef COHORT_HAS_CUDA

#include <cstring>
#include <utility>

#include "kernels/cuda/lowering.h"
#include "kernels/cuda/pack.h"
#include "models/expert_parts.h"

namespace cohort::cuda {

size_t device_expert_bytes(const op::Experts& experts) {
  const auto floats = [](const Weight& w) {
    return static_cast<size_t>(w.rows * float_row_bytes(float_type(w.type), w.cols));
  };
  const auto tiles = [](Format format, const Weight& w, int matrices) {
    const Geometry g = make_geometry(format, w.rows, static_cast<int>(w.cols / 32), matrices);
    return static_cast<size_t>(g.tiles) * static_cast<size_t>(g.tile_bytes);
  };
  const Weight &gate = *experts.gate, &up = *experts.up, &down = *experts.down;
  size_t last = is_quantised(down) ? tiles(format_of(down.type), down, 1) : floats(down);
  for (const auto& [bias, of] :
       {std::pair(experts.gate_bias, &gate), {experts.up_bias, &up}, {experts.down_bias, &down}}) {
    if (bias != nullptr) last += static_cast<size_t>(of->rows) * sizeof(float);
  }
  if (!is_quantised(gate)) return last + floats(gate) + floats(up);
  return last + tiles(gate.type == up.type ? format_of(gate.type) : Format::generic, gate, 2);
}

size_t Lowering::moe_layer(size_t i) const {
  size_t layer = 0;
  for (size_t before = 0; before < i; ++before) layer += action<op::Experts>(before) != nullptr ? 1 : 0;
  return layer;
}

const std::vector<int32_t>* Lowering::host_experts(size_t i) const {
  if (part_.experts.empty() || action<op::Experts>(i) == nullptr) return nullptr;
  const auto& experts = part_.experts[moe_layer(i)];
  return experts.empty() ? nullptr : &experts;
}

Expected<void> Lowering::emit_part(size_t i, const op::Experts& experts, const std::vector<int32_t>& on_host) {
  std::vector<int32_t> place(static_cast<size_t>(experts.gate->experts), 0);
  for (int32_t expert : on_host) place[static_cast<size_t>(expert)] = -1;
  int32_t next = 0;
  for (int32_t& p : place) p = p < 0 ? -1 : next++;
  const MeetingPlace& meet = part_.place;
  const size_t visit = result_.visits.size();

  PartArgs args;
  args.all = group_;
  if (next > 0) {
    args.here = here_;
    // The bits of integers go up as those of floats.
    std::vector<float> bits(place.size());
    std::memcpy(bits.data(), place.data(), place.size() * sizeof(float));
    COHORT_ASSIGN(const float* on_device, uploader_.upload(bits, "places of experts"));
    args.place = reinterpret_cast<const int32_t*>(on_device);
  }
  args.cap = kTileColumns;
  args.input = values_[index(op(i).inputs[0])].rows;
  args.width = static_cast<int32_t>(experts.gate->cols);
  if (args.width % 4 != 0 || experts.down->rows % 4 != 0) {
    return fail(ErrorCode::unsupported,
                "CUDA: '{}' has {} inputs and {} outputs; experts in host memory need multiples of 4", op(i).name,
                args.width, experts.down->rows);
  }
  args.arrivals = arrivals_;
  args.arrived = meet.arrived + visit * kMeetingWords;
  args.chosen = meet.chosen;
  args.told = meet.input;
  add("part", [args](const Launcher& l) mutable {
    args.step = l.step;
    launch_part(args, l.sms, l.stream);
  });
  result_.visits.push_back(
      {moe_layer(i), 0, info(op(i).inputs[1]).width, args.width, static_cast<int32_t>(experts.down->rows)});
  if (next == 0) return emit_hosted(i, experts);

  std::vector<int32_t> kept;
  for (size_t e = 0; e < place.size(); ++e)
    if (place[e] >= 0) kept.push_back(static_cast<int32_t>(e));
  const auto kept_matrices = [&](const Weight& whole) {
    parts_.push_back(std::make_unique<Weight>(part_of(whole, kept)));
    return parts_.back().get();
  };
  const auto kept_biases = [&](const VectorWeight* whole, const Weight& matrix) -> const VectorWeight* {
    if (whole == nullptr) return nullptr;
    bias_parts_.push_back(std::make_unique<VectorWeight>(biases_of(*whole, kept, matrix.rows)));
    return bias_parts_.back().get();
  };
  const op::Experts here{kept_matrices(*experts.gate),
                         kept_matrices(*experts.up),
                         kept_matrices(*experts.down),
                         experts.activation,
                         kept_biases(experts.gate_bias, *experts.gate),
                         kept_biases(experts.up_bias, *experts.up),
                         kept_biases(experts.down_bias, *experts.down)};
  const Group all = group_;
  group_ = here_;
  auto done = emit_all(i, here);
  group_ = all;
  return done;
}

Expected<void> Lowering::emit_hosted(size_t i, const op::Experts& experts) {
  const auto hidden = static_cast<int32_t>(experts.down->rows);
  const int64_t routes = int64_t{limits_.rows} * info(op(i).inputs[1]).width;
  COHORT_ASSIGN(Buffer memory, pool_.take(static_cast<size_t>(routes * hidden) * sizeof(float)));
  const Rows results{reinterpret_cast<float*>(memory.get()), hidden};
  bring(i, results);
  RowArgs sum = weighted_sum(i, results);
  ValueId output = op(i).output;
  sum.input = fold_add(output);
  return emit_rows(i, sum, output);
}

void Lowering::bring(size_t i, const Rows& out) {
  if (host_experts(i) == nullptr) return;
  Visit& visit = result_.visits.back();
  visit.resume = result_.launches.size();
  BringArgs args;
  args.done = part_.place.done + (result_.visits.size() - 1) * kMeetingWords;
  args.routes = part_.place.routes;
  args.results = part_.place.results;
  args.released = released_ + (result_.visits.size() - 1) * 2;
  args.width = visit.outputs;
  args.out = out;
  add("bring", [args](const Launcher& l) mutable {
    args.step = l.step;
    launch_bring(args, l.sms, l.stream);
  });
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
