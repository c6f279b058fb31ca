#include "synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/half.h"

namespace cohort::device_check {
namespace {

uint64_t next(uint64_t& state) {  // splitmix64
  uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}
float uniform(uint64_t& state) {
  return static_cast<float>(next(state) >> 40) * 0x1p-24F;
}

// Where a block's f16 scales are, and how large the rest of a value is on average, so that rows keep their size.
struct ScalePlaces {
  TensorType type;
  std::vector<int> at;
  float code;
};
const std::vector<ScalePlaces>& scale_places() {
  static const std::vector<ScalePlaces> places = {
      {TensorType::q4_0, {0}, 4.6F},      {TensorType::q4_1, {0, 2}, 8.0F},   {TensorType::q5_0, {0}, 9.0F},
      {TensorType::q5_1, {0, 2}, 16.0F},  {TensorType::q8_0, {0}, 74.0F},     {TensorType::q2_k, {80, 82}, 14.0F},
      {TensorType::q3_k, {108}, 40.0F},   {TensorType::q4_k, {0, 2}, 160.0F}, {TensorType::q5_k, {0, 2}, 320.0F},
      {TensorType::q6_k, {208}, 1300.0F}, {TensorType::iq4_nl, {0}, 70.0F},   {TensorType::iq4_xs, {0}, 1200.0F},
      {TensorType::iq3_s, {0}, 100.0F},   {TensorType::iq2_xxs, {0}, 100.0F},
  };
  return places;
}

}  // namespace

void SyntheticModel::fill(TensorType type, int64_t cols, std::byte* bytes, int64_t blocks) {
  const TypeInfo& info = type_info(type);
  const auto size = static_cast<size_t>(blocks) * info.block_bytes;
  const float target = 1.0F / std::sqrt(static_cast<float>(cols));
  if (type == TensorType::f32) {
    for (int64_t i = 0; i < blocks; ++i) {
      const float x = (uniform(state_) + uniform(state_) + uniform(state_) - 1.5F) * 2.0F * target;
      std::memcpy(bytes + i * 4, &x, 4);
    }
    return;
  }
  if (type == TensorType::bf16) {
    for (int64_t i = 0; i < blocks; ++i) {
      const uint16_t x = f32_to_bf16((uniform(state_) - 0.5F) * 3.4F * target);
      std::memcpy(bytes + i * 2, &x, 2);
    }
    return;
  }
  if (type == TensorType::f16) {
    for (int64_t i = 0; i < blocks; ++i) {
      const uint16_t x = f32_to_f16((uniform(state_) - 0.5F) * 3.4F);
      std::memcpy(bytes + i * 2, &x, 2);
    }
    return;
  }
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = next(state_);
    std::memcpy(bytes + i, &word, 8);
  }
  for (size_t i = size / 8 * 8; i < size; ++i) bytes[i] = static_cast<std::byte>(next(state_));
  // Codes without a mean: else every output would hold the sum of its row, all rows would look alike, and all would
  // take the same experts.
  if (type == TensorType::q4_0) {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int i = 2; i < 18; ++i) {
        std::byte& pair = bytes[b * 18 + i];
        if ((pair & std::byte{0x0f}) == std::byte{0}) pair |= std::byte{0x08};
        if ((pair & std::byte{0xf0}) == std::byte{0}) pair |= std::byte{0x80};
      }
    }
  }
  const float offset_share = type == TensorType::q5_k ? 15.5F : type == TensorType::q4_k ? 7.5F : 0.5F;
  for (const ScalePlaces& places : scale_places()) {
    if (places.type != type) continue;
    for (int64_t b = 0; b < blocks; ++b) {
      for (size_t s = 0; s < places.at.size(); ++s) {
        const float d = target / places.code * (0.5F + uniform(state_)) * (s == 1 ? offset_share : 1.0F);
        const uint16_t half = f32_to_f16(d);
        std::memcpy(bytes + b * info.block_bytes + places.at[s], &half, 2);
      }
    }
  }
  if (type == TensorType::fp8_e4m3) {  // codes up to 120: no NaN
    for (int64_t b = 0; b < blocks; ++b) {
      const float d = target / 100.0F * (0.5F + uniform(state_));
      std::memcpy(bytes + b * info.block_bytes, &d, 4);
      for (size_t i = 4; i < info.block_bytes; ++i) bytes[b * info.block_bytes + i] &= std::byte{0xf7};
    }
  }
  if (type == TensorType::mxfp4) {
    for (int64_t b = 0; b < blocks; ++b) bytes[b * info.block_bytes] = static_cast<std::byte>(118 + next(state_) % 4);
  }
  if (type == TensorType::nvfp4) {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int i = 0; i < 4; ++i) bytes[b * info.block_bytes + i] = static_cast<std::byte>(1 + next(state_) % 30);
    }
  }
}

const Weight* SyntheticModel::matrix(const std::string& name, TensorType type, int64_t rows, int64_t cols,
                                     int64_t experts) {
  auto w = std::make_unique<Weight>();
  w->name = (layer_ >= 0 ? "blk." + std::to_string(layer_) + "." : "") + name;
  w->type = type;
  w->rows = rows;
  w->cols = cols;
  w->experts = experts;
  const size_t slice = w->slice_bytes();
  const TypeInfo& info = type_info(type);
  if (shared_) {
    constexpr size_t kPool = size_t{48} << 20;
    auto pool = std::find_if(pools_.begin(), pools_.end(), [&](const auto& p) { return p.first == type; });
    if (pool == pools_.end() || bytes_[pool->second].size() < slice) {
      const auto blocks = static_cast<int64_t>((std::max(kPool, slice) + slice / 4) / info.block_bytes);
      bytes_.emplace_back(static_cast<size_t>(blocks) * info.block_bytes);
      fill(type, cols, bytes_.back().data(), blocks);
      pools_.insert(pools_.begin(), {type, bytes_.size() - 1});
      pool = pools_.begin();
    }
    const auto& bytes = bytes_[pool->second];
    for (int64_t e = 0; e < experts; ++e) {
      const uint64_t room = (bytes.size() - slice) / info.block_bytes;
      w->slices.push_back(bytes.data() + (room > 0 ? next(state_) % room : 0) * info.block_bytes);
    }
  } else {
    bytes_.emplace_back(slice * static_cast<size_t>(experts));
    fill(type, cols, bytes_.back().data(), static_cast<int64_t>(bytes_.back().size() / info.block_bytes));
    for (int64_t e = 0; e < experts; ++e) w->slices.push_back(bytes_.back().data() + static_cast<size_t>(e) * slice);
  }
  weights_.push_back(std::move(w));
  return weights_.back().get();
}

const VectorWeight* SyntheticModel::vector(const std::string& name, int64_t size, float around) {
  auto v = std::make_unique<VectorWeight>();
  v->name = name;
  for (int64_t i = 0; i < size; ++i) v->values.push_back(around + 0.2F * (uniform(state_) - 0.5F));
  vectors_.push_back(std::move(v));
  return vectors_.back().get();
}

ValueId SyntheticModel::value(const std::string& name, int32_t width, Extent extent, ValueKind kind) {
  program_.values.push_back({name, width, extent, kind});
  return static_cast<ValueId>(program_.values.size() - 1);
}

ValueId SyntheticModel::add(const std::string& name, Action action, std::vector<ValueId> inputs, int32_t width,
                            ValueKind kind, Extent extent) {
  const ValueId out = value(name, width, extent, kind);
  program_.ops.push_back({name, layer_, std::move(inputs), out, std::move(action)});
  return out;
}

SyntheticModel::SyntheticModel(const Shape& s, const Types& types, uint32_t seed, bool shared)
    : seed_(seed), shared_(shared), state_(seed) {
  rope_.rotary_dims = s.head_dim;
  for (int i = 0; i < s.head_dim / 2; ++i) rope_.frequencies.push_back(std::pow(1e6, -2.0 * i / s.head_dim));
  rope_.fill(s.context);
  program_.family = s.name;
  program_.vocabulary = s.vocabulary;
  program_.context = s.context;
  const int32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const RopePairing pairing = s.adjacent_rope ? RopePairing::adjacent : RopePairing::half_split;
  ValueId x =
      add("embed", op::Embed{matrix("token_embd", TensorType::f16, s.vocabulary, s.hidden), 1.0F}, {}, s.hidden);
  for (layer_ = 0; layer_ < s.layers; ++layer_) {
    const auto bias = [&](int32_t width) { return s.biases ? vector("bias", width, 0.0F) : nullptr; };
    const ValueId a =
        add("attn_norm", op::RmsNorm{vector("attn_norm", s.hidden, 1.0F), 1e-6F, s.hidden}, {x}, s.hidden);
    ValueId q =
        add("attn_q", op::Linear{matrix("attn_q", types.attention, q_width, s.hidden), bias(q_width)}, {a}, q_width);
    ValueId k =
        add("attn_k", op::Linear{matrix("attn_k", types.attention, kv_width, s.hidden), bias(kv_width)}, {a}, kv_width);
    const ValueId v =
        add("attn_v", op::Linear{matrix("attn_v", types.value, kv_width, s.hidden), bias(kv_width)}, {a}, kv_width);
    if (!s.biases) {
      q = add("q_norm", op::RmsNorm{vector("q_norm", s.head_dim, 1.0F), 1e-6F, s.head_dim}, {q}, q_width);
      k = add("k_norm", op::RmsNorm{vector("k_norm", s.head_dim, 1.0F), 1e-6F, s.head_dim}, {k}, kv_width);
    }
    q = add("q_rope", op::Rope{&rope_, s.heads, s.head_dim, pairing}, {q}, q_width);
    k = add("k_rope", op::Rope{&rope_, s.kv_heads, s.head_dim, pairing}, {k}, kv_width);
    const int32_t window = layer_ % 2 == 1 ? s.window : 0;
    program_.cache_layers.push_back({s.kv_heads, s.head_dim, window});
    const float scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    const ValueId o = add("attn",
                          op::Attend{layer_, s.heads, s.kv_heads, s.head_dim, scale, window,
                                     s.gpt_oss ? vector("sinks", s.heads, 0.0F) : nullptr},
                          {q, k, v}, q_width);
    const ValueId proj =
        add("attn_output", op::Linear{matrix("attn_output", types.attention, s.hidden, q_width), bias(s.hidden)}, {o},
            s.hidden);
    x = add("attn_residual", op::Add{}, {x, proj}, s.hidden);
    const ValueId n = add("ffn_norm", op::RmsNorm{vector("ffn_norm", s.hidden, 1.0F), 1e-6F, s.hidden}, {x}, s.hidden);
    ValueId y;
    if (s.dense) {
      const ValueId gate =
          add("ffn_gate", op::Linear{matrix("ffn_gate", types.gate_up, s.inner, s.hidden)}, {n}, s.inner);
      const ValueId up = add("ffn_up", op::Linear{matrix("ffn_up", types.gate_up, s.inner, s.hidden)}, {n}, s.inner);
      const ValueId h =
          add("ffn_act", op::Gate{layer_ % 2 == 1 ? Activation::gelu_tanh : Activation::silu}, {gate, up}, s.inner);
      y = add("ffn_down", op::Linear{matrix("ffn_down", types.down, s.hidden, s.inner)}, {h}, s.hidden);
    } else {
      const auto of_experts = [&](int32_t width) {
        return s.gpt_oss ? vector("bias", int64_t{s.experts} * width, 0.0F) : nullptr;
      };
      const ValueId routes =
          add("ffn_route",
              op::Route{matrix("ffn_gate_inp", TensorType::f32, s.experts, s.hidden), s.top_k, true,
                        s.biases && !s.gpt_oss ? vector("scale", s.experts, 1.0F) : nullptr, of_experts(1)},
              {n}, s.top_k, ValueKind::routes);
      const Activation activation = s.gpt_oss         ? Activation::clamped_swiglu
                                    : layer_ % 2 == 1 ? Activation::gelu_tanh
                                                      : Activation::silu;
      y = add("ffn_experts",
              op::Experts{matrix("ffn_gate_exps", types.gate_up, s.inner, s.hidden, s.experts),
                          matrix("ffn_up_exps", types.gate_up, s.inner, s.hidden, s.experts),
                          matrix("ffn_down_exps", types.down, s.hidden, s.inner, s.experts), activation,
                          of_experts(s.inner), of_experts(s.inner), of_experts(s.hidden)},
              {n, routes}, s.hidden);
    }
    x = add("ffn_residual", op::Add{}, {x, y}, s.hidden);
  }
  layer_ = -1;
  x = add("gather", op::Gather{}, {x}, s.hidden, ValueKind::floats, Extent::sampled);
  x = add("output_norm", op::RmsNorm{vector("output_norm", s.hidden, 1.0F), 1e-6F, s.hidden}, {x}, s.hidden,
          ValueKind::floats, Extent::sampled);
  program_.logits = add("output", op::Linear{matrix("output", types.head, s.vocabulary, s.hidden)}, {x}, s.vocabulary,
                        ValueKind::floats, Extent::sampled);
}

}  // namespace cohort::device_check
