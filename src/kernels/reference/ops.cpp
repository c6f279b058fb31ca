#include "kernels/reference/ops.h"

#include <algorithm>
#include <numeric>

#include "base/clones.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace cohort::reference {
namespace {

using numerics::kBlock;

/// Rule 3 for one block: acc after the block.
inline float add_block(const IntBlock& w, const int8_t* q, float d, float acc) {
  const int per_group = kBlock / w.groups;
  for (int group = 0; group < w.groups; ++group) {
    int32_t isum = 0;
    for (int j = group * per_group; j < (group + 1) * per_group; ++j) isum += w.coeff[j] * q[j];
    acc = std::fma((group == 0 ? w.scale : w.scale2) * d, static_cast<float>(isum), acc);
  }
  if (w.has_offset) {
    int32_t msum = 0;
    for (int j = 0; j < kBlock; ++j) msum += w.offset[j] * q[j];
    acc = std::fma(w.offset_scale * d, static_cast<float>(msum), acc);
  }
  return acc;
}

/// Rule 4: segments of blocks in order, then the tree.
COHORT_FMA_CLONES float quantised_dot(TensorType type, const std::byte* row, int64_t cols, const int8_t* q,
                                      const float* d) {
  const int segments = numerics::segments_of(cols);
  const int64_t per_segment = cols / kBlock / segments;
  float sums[numerics::kMaxSegments];
  IntBlock block;
  for (int s = 0; s < segments; ++s) {
    float acc = 0.0F;
    for (int64_t b = s * per_segment; b < (s + 1) * per_segment; ++b) {
      decode_int_block(type, row, b, block);
      acc = add_block(block, q + b * kBlock, d[b], acc);
    }
    sums[s] = acc;
  }
  return numerics::tree(sums, segments);
}

/// int8_all validation: what the row is after a round trip through rule 2.
std::vector<float> round_trip(const float* x, int64_t count) {
  std::vector<float> out(x, x + count);
  const int64_t whole = count / kBlock * kBlock;  // a float weight may have any K: the tail stays as it is
  std::vector<int8_t> q(static_cast<size_t>(whole));
  std::vector<float> d(static_cast<size_t>(whole / kBlock));
  numerics::quantise_row(x, whole, q.data(), d.data());
  for (int64_t k = 0; k < whole; ++k)
    out[static_cast<size_t>(k)] = d[static_cast<size_t>(k / kBlock)] * static_cast<float>(q[static_cast<size_t>(k)]);
  return out;
}

}  // namespace

void linear_row(const Weight& weight, int64_t expert, const float* bias, ActivationMode mode, const float* x,
                float* y) {
  const std::byte* data = weight.slices[static_cast<size_t>(expert)];
  const size_t stride = row_bytes(weight.type, weight.cols);
  if (type_info(weight.type).quantised && mode != ActivationMode::float_all) {
    std::vector<int8_t> q(static_cast<size_t>(weight.cols));
    std::vector<float> d(static_cast<size_t>(weight.cols / kBlock));
    numerics::quantise_row(x, weight.cols, q.data(), d.data());
    for (int64_t r = 0; r < weight.rows; ++r) {
      y[r] = quantised_dot(weight.type, data + static_cast<size_t>(r) * stride, weight.cols, q.data(), d.data());
    }
  } else {
    std::vector<float> rounded;
    if (mode == ActivationMode::int8_all) {
      rounded = round_trip(x, weight.cols);
      x = rounded.data();
    }
    std::vector<float> decoded(static_cast<size_t>(weight.cols));
    for (int64_t r = 0; r < weight.rows; ++r) {
      decode_row(weight.type, data + static_cast<size_t>(r) * stride, decoded.data(), weight.cols);
      y[r] = numerics::dot16(x, decoded.data(), weight.cols);
    }
  }
  if (bias != nullptr) {
    for (int64_t r = 0; r < weight.rows; ++r) y[r] += bias[r];
  }
}

std::vector<RouteSlot> route_row(const op::Route& route, std::span<const float> logits) {
  std::vector<float> p(logits.begin(), logits.end());
  numerics::softmax(p);
  std::vector<int32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float pa = p[static_cast<size_t>(a)], pb = p[static_cast<size_t>(b)];
    const bool a_number = pa == pa, b_number = pb == pb;
    if (a_number != b_number) return a_number;
    if (a_number && pa != pb) return pa > pb;
    return a < b;
  };
  std::partial_sort(order.begin(), order.begin() + route.top_k, order.end(), before);
  std::vector<RouteSlot> slots(static_cast<size_t>(route.top_k));
  std::vector<float> weights(slots.size());
  for (size_t s = 0; s < slots.size(); ++s) {
    slots[s].expert = order[s];
    weights[s] = p[static_cast<size_t>(order[s])];
  }
  const float sum = numerics::sum16(weights.data(), route.top_k);
  for (size_t s = 0; s < slots.size(); ++s) {
    slots[s].weight = route.renormalise ? weights[s] / sum : weights[s];
    if (route.per_expert_scale != nullptr)
      slots[s].weight *= route.per_expert_scale->values[static_cast<size_t>(slots[s].expert)];
  }
  return slots;
}

void experts_row(const op::Experts& experts, std::span<const RouteSlot> slots, ActivationMode mode, const float* x,
                 float* y, const HiddenSink& hidden) {
  const auto inner = static_cast<size_t>(experts.gate->rows);
  std::vector<float> gate(inner), up(inner), out(static_cast<size_t>(experts.down->rows));
  for (size_t s = 0; s < slots.size(); ++s) {
    const int64_t expert = slots[s].expert;
    linear_row(*experts.gate, expert, bias_of(experts.gate_bias, expert, experts.gate->rows), mode, x, gate.data());
    linear_row(*experts.up, expert, bias_of(experts.up_bias, expert, experts.up->rows), mode, x, up.data());
    gate_row(experts.activation, gate.data(), up.data(), experts.gate->rows, gate.data());
    if (hidden) hidden(expert, gate.data());
    linear_row(*experts.down, expert, bias_of(experts.down_bias, expert, experts.down->rows), mode, gate.data(),
               out.data());
    for (size_t i = 0; i < out.size(); ++i)
      y[i] = s == 0 ? slots[s].weight * out[i] : std::fma(slots[s].weight, out[i], y[i]);
  }
}

void mix_row(const op::Mix& mix, const Mixture& mixture, float* y) {
  const Weight& table = *mix.table;
  std::fill_n(y, table.cols, 0.0F);
  std::vector<float> row(static_cast<size_t>(table.cols));
  for (size_t k = 0; k < mixture.tokens.size(); ++k) {
    const auto token = static_cast<size_t>(mixture.tokens[k]);
    decode_row(table.type, table.slices[0] + token * row_bytes(table.type, table.cols), row.data(), table.cols);
    for (size_t d = 0; d < row.size(); ++d) y[d] = std::fma(mixture.weights[k], row[d], y[d]);
  }
  for (int64_t d = 0; d < table.cols; ++d) y[d] *= mix.scale;
}

void gate_row(Activation activation, const float* gate, const float* up, int64_t count, float* y) {
  if (activation == Activation::clamped_swiglu) {
    for (int64_t i = 0; i < count; ++i) y[i] = numerics::clamped_swiglu(gate[i], up[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float a = activation == Activation::silu ? numerics::silu(gate[i]) : numerics::gelu_tanh(gate[i]);
    y[i] = a * up[i];
  }
}

void rope_row(const op::Rope& rope, int32_t position, float* x) {
  const auto pairs = static_cast<int32_t>(rope.table->frequencies.size());
  const bool half_split = rope.pairing == RopePairing::half_split;
  const float* cosines = rope.table->cosines.data() + static_cast<size_t>(position) * static_cast<size_t>(pairs);
  const float* sines = rope.table->sines.data() + static_cast<size_t>(position) * static_cast<size_t>(pairs);
  for (int32_t h = 0; h < rope.heads; ++h, x += rope.head_dim) {
    for (int32_t i = 0; i < pairs; ++i) {
      float& first = half_split ? x[i] : x[2 * i];
      float& second = half_split ? x[i + rope.table->rotary_dims / 2] : x[2 * i + 1];
      const float x0 = first, x1 = second;
      first = std::fma(x0, cosines[i], -(x1 * sines[i]));
      second = std::fma(x0, sines[i], x1 * cosines[i]);
    }
  }
}

}  // namespace cohort::reference
