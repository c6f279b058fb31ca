#ifdef COHORT_HAS_CUDA

#include <string_view>

#include "kernels/cuda/lowering.h"

namespace cohort::cuda {
namespace {

using Shape = FlowShape;

// Values between blocks: of the kernel of one row, and of the one of several.
constexpr size_t kFlowBytes = (kFlowWords + 1) * sizeof(Flagged);
constexpr size_t kFlowRowBytes =
    kFlowRows * kFlowRowWords * sizeof(Flagged) + kFlowRows * kFlowRowQuads * sizeof(FlaggedQuad);

bool fits(const Geometry& g, int blocks, int segments) {
  return g.blocks == blocks && g.segments == segments;
}

/// The second format of the kernel that takes k4 layers.
bool is_other(FlowFormats formats, Format format) {
  return formats == FlowFormats::k && format == Format::k6;
}
bool matches(FlowFormats formats, Format format) {
  switch (formats) {
    case FlowFormats::q4:
      return format == Format::q4;
    case FlowFormats::q8:
      return format == Format::q8;
    case FlowFormats::k:
      break;
  }
  return format == Format::k4 || format == Format::k6;
}

}  // namespace

/// Reads the launches of one layer after the other.
class FlowReader {
 public:
  FlowReader(const std::vector<Launch>& launches, const std::map<size_t, Note>& notes)
      : launches_(launches), notes_(notes) {}

  /// Whether all launches from the first linear layer on are layers of the kernel's shape, up to the last layer's sum.
  bool read(FlowPlan& plan) {
    while (at_ < launches_.size() && !is("linear")) ++at_;
    if (at_ == 0 || at_ == launches_.size()) return false;
    plan.first = at_--;
    const RowArgs* row = next<RowArgs>("rows");
    if (row == nullptr) return false;
    norm_ = *row;
    while (is("linear")) {
      FlowLayer layer;
      if (!read_heads(plan, layer) || !read_output(plan, layer) || !read_experts(plan, layer)) return false;
      plan.layers.push_back(layer);
    }
    plan.last = at_ - 1;  // what follows the last layer's sum
    plan.args.out = x_;
    return true;
  }

 private:
  bool is(std::string_view kind) const { return at_ < launches_.size() && kind == launches_[at_].kind; }
  template <class T>
  const T* next(std::string_view kind) {
    if (!is(kind)) return nullptr;
    const auto note = notes_.find(at_++);
    return note == notes_.end() ? nullptr : std::get_if<T>(&note->second);
  }
  /// One format family for all layers; `alone`: the second format is not possible here.
  bool same(FlowPlan& plan, Format format, bool alone) {
    if (!known_) {
      plan.formats = format == Format::q4 ? FlowFormats::q4 : format == Format::q8 ? FlowFormats::q8 : FlowFormats::k;
      known_ = true;
    }
    return matches(plan.formats, format) && !(alone && is_other(plan.formats, format));
  }

  bool read_heads(FlowPlan& plan, FlowLayer& layer) {
    if (!norm_.norm || norm_.norm_weight == nullptr) return false;
    layer.attention_norm = norm_.norm_weight;
    layer.attention_eps = norm_.eps;
    LinearArgs parts[2];
    int count = 0, values = 0;
    for (; is("linear"); ++count) {
      const auto* dense = next<DenseNote>("linear");
      if (dense == nullptr || count == 2) return false;
      const LinearArgs& a = dense->args;
      if (!same(plan, dense->format, false) || a.bias != nullptr || a.addend.data != nullptr || a.sampled ||
          a.two_groups || a.outputs % kTileRows != 0 || a.out.stride != a.outputs ||
          !fits(a.geometry, Shape::kHiddenBlocks, 16))
        return false;
      layer.dense[count] = {a.weights, a.outputs / kTileRows, a.geometry.tile_bytes, values,
                            is_other(plan.formats, dense->format) ? 1 : 0};
      parts[count] = a;
      values += a.outputs;
    }
    if (values != Shape::kAttention + 2 * Shape::kKeys || !is("heads")) return false;
    ++at_;
    const auto* attention = next<AttentionNote>("attention");
    if (attention == nullptr) return false;
    const AttentionArgs& a = attention->args;
    const auto place = [&](const HeadInput& in, int32_t& to) {
      for (int i = 0; i < count; ++i) {
        const auto offset = in.rows.data - parts[i].out.data;
        if (offset < 0 || offset >= parts[i].outputs) continue;
        to = layer.dense[i].first + static_cast<int32_t>(offset);
        return true;
      }
      return false;
    };
    const auto rope = [](const HeadInput& in) {
      return in.cosines != nullptr && !in.adjacent && in.pairs * 2 == Shape::kHeadDim && in.norm &&
             in.norm_weight != nullptr;
    };
    if (a.heads != Shape::kHeads || a.kv_heads != Shape::kKvHeads || a.head_dim != Shape::kHeadDim || a.window != 0 ||
        a.sinks != nullptr || a.out.data != nullptr || !rope(a.new_q) || !rope(a.new_k) || a.new_v.norm ||
        a.new_v.cosines != nullptr || a.new_q.cosines != a.new_k.cosines || !place(a.new_q, layer.q) ||
        !place(a.new_k, layer.k) || !place(a.new_v, layer.v))
      return false;
    if (plan.layers.empty()) {
      plan.args.cosines = a.new_q.cosines;
      plan.args.sines = a.new_q.sines;
      plan.args.scale = a.scale;
    } else if (plan.args.cosines != a.new_q.cosines || plan.args.scale != a.scale) {
      return false;
    }
    layer.q_norm = a.new_q.norm_weight;
    layer.k_norm = a.new_k.norm_weight;
    layer.q_eps = a.new_q.eps;
    layer.k_eps = a.new_k.eps;
    plan.cache_layers.push_back(attention->layer);
    return true;
  }

  bool read_output(FlowPlan& plan, FlowLayer& layer) {
    const auto* dense = next<DenseNote>("linear_add");
    if (dense == nullptr) return false;
    const LinearArgs& a = dense->args;
    if (!same(plan, dense->format, false) || a.bias != nullptr || a.two_groups || a.outputs != Shape::kHidden ||
        !fits(a.geometry, Shape::kAttentionBlocks, 32))
      return false;
    if (plan.layers.empty()) {
      plan.args.input = a.addend;
    } else if (a.addend.data != x_.data) {
      return false;
    }
    layer.output = {a.weights, Shape::kTiles, a.geometry.tile_bytes, 0, is_other(plan.formats, dense->format) ? 1 : 0};
    middle_ = a.out;
    return true;
  }

  bool read_experts(FlowPlan& plan, FlowLayer& layer) {
    const auto* route = next<RouteArgs>("route");
    const auto* experts = next<ExpertsNote>("gate_up");
    if (route == nullptr || experts == nullptr || !is("down")) return false;
    ++at_;
    const auto* row = next<RowArgs>("combine");
    if (row == nullptr) return false;
    const UpArgs& up = experts->up;
    const DownArgs& down = experts->down;
    if (!route->norm || route->norm_weight == nullptr || route->norm_out.data != nullptr ||
        route->experts != Shape::kExperts || route->k != Shape::kHidden || route->top_k != Shape::kTopK ||
        route->bias != nullptr || route->expert_scale != nullptr || up.bias.gate != nullptr || up.bias.up != nullptr ||
        down.bias != nullptr || up.act == Act::clamped_swiglu || route->input.data != middle_.data ||
        !same(plan, experts->up_format, true) || !same(plan, experts->down_format, false) ||
        up.units != Shape::kInnerBlocks || up.two_groups || down.two_groups || down.outputs != Shape::kHidden ||
        !fits(experts->up_geometry, Shape::kHiddenBlocks, 16) ||
        !fits(experts->down_geometry, Shape::kInnerBlocks, 4) || down.addend.data != middle_.data)
      return false;
    layer.router = route->weights;
    layer.act = up.act;
    layer.expert_norm = route->norm_weight;
    layer.expert_eps = route->eps;
    layer.renormalise = route->renormalise ? 1 : 0;
    layer.pair = {up.weights, experts->up_geometry.tiles, up.tile_bytes, 0, 0};
    layer.pair_bytes = up.matrix_bytes;
    layer.down = {down.weights, Shape::kTiles, down.tile_bytes, 0,
                  is_other(plan.formats, experts->down_format) ? 1 : 0};
    layer.down_bytes = down.matrix_bytes;
    plan.args.distinct = route->group.distinct;
    x_ = down.out;
    norm_ = *row;
    return true;
  }

  const std::vector<Launch>& launches_;
  const std::map<size_t, Note>& notes_;
  size_t at_ = 0;
  bool known_ = false;
  RowArgs norm_;  // the row kernel before the layer: it has the layer's first norm
  Rows x_, middle_;
};

size_t flow_bytes(size_t layers) {
  return layers * sizeof(FlowLayer) + kFlowBytes + kFlowRowBytes;
}

Expected<void> Lowering::find_flow(int sms) {
  auto plan = std::make_shared<FlowPlan>();
  if (!FlowReader(result_.launches, notes_).read(*plan) || !flow_fits(plan->formats, sms)) return {};
  FlowArgs& args = plan->args;
  args.count = static_cast<int32_t>(plan->layers.size());
  COHORT_ASSIGN(void* layers, memory_.allocate(plan->layers.size() * sizeof(FlowLayer), "layers"));
  plan->device = static_cast<FlowLayer*>(layers);
  args.layers = plan->device;
  COHORT_ASSIGN(void* words, memory_.allocate_zeros(kFlowBytes, "values between blocks"));
  auto* next = static_cast<Flagged*>(words);
  const auto take = [&](int count) {
    Flagged* mine = next;
    next += count;
    return mine;
  };
  args.x = take(Shape::kHidden);
  args.middle = take(Shape::kHidden);
  args.heads = take(Shape::kAttention + 2 * Shape::kKeys);
  args.partial = take(Shape::kHeads * Shape::kMaxSplits * kFlowPartial);
  args.attended = take(Shape::kAttentionBlocks * kFlowBlock);
  args.logits = take(Shape::kExperts);
  args.hidden = take(Shape::kItems * kFlowBlock);
  plan->epoch = reinterpret_cast<uint32_t*>(take(1));
  COHORT_ASSIGN(void* of_rows, memory_.allocate_zeros(kFlowRowBytes, "values between blocks"));
  auto* quads = static_cast<FlaggedQuad*>(of_rows);
  const auto take_quads = [&](int blocks) {
    FlaggedQuad* mine = quads;
    quads += kFlowRows * blocks * 4;
    return mine;
  };
  FlowRowWords& rows = args.rows;
  rows.normed = take_quads(Shape::kHiddenBlocks);
  rows.attended = take_quads(Shape::kAttentionBlocks);
  rows.routed = take_quads(Shape::kHiddenBlocks);
  rows.activated = take_quads(kFlowEntries * Shape::kInnerBlocks);
  next = reinterpret_cast<Flagged*>(quads);
  rows.x = take(kFlowRows * Shape::kHidden);
  rows.middle = take(kFlowRows * Shape::kHidden);
  rows.heads = take(kFlowRows * (Shape::kAttention + 2 * Shape::kKeys));
  rows.partial = take(kFlowRows * Shape::kHeads * Shape::kMaxSplits * kFlowPartial);
  rows.logits = take(kFlowRows * Shape::kExperts);
  args.epoch = plan->epoch;
  plan->launch = {"layers", [plan = plan.get()](const Launcher& l) {
                    FlowArgs a = plan->args;
                    a.step = l.step;
                    launch_flow(plan->formats, l.flow, a, plan->epoch, l.sms, l.stream);
                  }};
  result_.flow = std::move(plan);
  return {};
}

Expected<void> set_flow_cache(FlowPlan& plan, const CacheMemory& cache) {
  plan.ready = cache.type == CacheType::f16;
  if (!plan.ready) return {};
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    plan.layers[i].keys = cache.keys[plan.cache_layers[i]];
    plan.layers[i].values = cache.values[plan.cache_layers[i]];
  }
  return check(
      cudaMemcpy(plan.device, plan.layers.data(), plan.layers.size() * sizeof(FlowLayer), cudaMemcpyHostToDevice),
      "uploading the layers");
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
