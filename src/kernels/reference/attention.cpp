#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "numerics/functions.h"
#include "numerics/reduce.h"
#include "quant/half.h"

namespace cohort::reference {
namespace {

constexpr int kSegments = kSplitPositions / kSegmentPositions;

// One head of one layer of one sequence: K and V by position.
struct HeadCache {
  KvCache& cache;
  const op::Attend& attend;
  const SequenceRows& sequence;
  int64_t kv_head;

  int32_t page(int32_t position) const { return sequence.pages[static_cast<size_t>(position / kPagePositions)]; }
  int64_t key_index(int32_t position, int64_t dim) const {
    return (kv_head * attend.head_dim + dim) * kPagePositions + position % kPagePositions;
  }
  int64_t value_index(int32_t position, int64_t dim) const {
    return (kv_head * kPagePositions + position % kPagePositions) * attend.head_dim + dim;
  }
  // q8_0 (kv/cache.h): the code of K or V times the scale that 32 dimensions share.
  float scaled(const std::byte* base, int32_t position, int64_t dim, int64_t code) const {
    const std::byte* area = base + kv_head * scaled_head_bytes(attend.head_dim);
    const int64_t at = dim / kScaledDims * kPagePositions + position % kPagePositions;
    uint16_t scale = 0;
    std::memcpy(&scale, area + 2 * at, sizeof scale);
    return static_cast<float>(static_cast<int8_t>(area[scale_bytes(attend.head_dim) + code])) * f16_to_f32(scale);
  }
  int64_t key_code(int32_t position, int64_t dim) const { return dim * kPagePositions + position % kPagePositions; }
  int64_t value_code(int32_t position, int64_t dim) const { return position % kPagePositions * attend.head_dim + dim; }
  float key(int32_t position, int64_t dim) const {
    if (cache.type() == TensorType::q8_0)
      return scaled(cache.keys(attend.cache_layer, page(position)), position, dim, key_code(position, dim));
    return load_cached(cache.type(), cache.keys(attend.cache_layer, page(position)), key_index(position, dim));
  }
  float value(int32_t position, int64_t dim) const {
    if (cache.type() == TensorType::q8_0)
      return scaled(cache.values(attend.cache_layer, page(position)), position, dim, value_code(position, dim));
    return load_cached(cache.type(), cache.values(attend.cache_layer, page(position)), value_index(position, dim));
  }
};

// What one split contributes: m, l and o[head_dim].
struct Split {
  float maximum, sum;
  std::vector<float> output;
};

// Positions [begin, end), all inside one split.
Split attend_split(const HeadCache& head, const float* q, int32_t begin, int32_t end) {
  const int64_t dims = head.attend.head_dim;
  Split split{-std::numeric_limits<float>::infinity(), 0.0F, std::vector<float>(static_cast<size_t>(dims))};
  float p[kSplitPositions];
  for (int32_t j = begin; j < end; ++j) {
    float score = 0.0F;
    for (int64_t d = 0; d < dims; ++d) score = std::fma(q[d], head.key(j, d), score);
    score *= head.attend.scale;
    p[j - begin] = score;
    split.maximum = std::max(split.maximum, score);  // a NaN score is passed over here and found again in p
  }
  float lanes[numerics::kLanes] = {};
  for (int32_t j = begin; j < end; ++j) {
    p[j - begin] = numerics::exp(p[j - begin] - split.maximum);
    lanes[j % numerics::kLanes] += p[j - begin];
  }
  split.sum = numerics::tree16(lanes);
  for (int64_t d = 0; d < dims; ++d) {
    float segments[kSegments] = {};
    for (int32_t j = begin; j < end; ++j) {
      float& o = segments[j % kSplitPositions / kSegmentPositions];
      o = std::fma(p[j - begin], head.value(j, d), o);
    }
    split.output[static_cast<size_t>(d)] = numerics::tree(segments, kSegments);
  }
  return split;
}

/// `sink`: a score without a value, or null.
void attend_row(const HeadCache& head, const float* q, VisiblePositions visible, const float* sink, float* out) {
  const auto [begin, end] = visible;
  std::vector<Split> splits;
  for (int32_t start = begin / kSplitPositions * kSplitPositions; start < end; start += kSplitPositions) {
    splits.push_back(attend_split(head, q, std::max(start, begin), std::min(start + kSplitPositions, end)));
  }
  float maximum = -std::numeric_limits<float>::infinity();
  for (const Split& split : splits) maximum = std::max(maximum, split.maximum);
  if (sink != nullptr) maximum = std::max(maximum, *sink);
  const auto dims = static_cast<size_t>(head.attend.head_dim);
  float sum = 0.0F;
  for (size_t i = 0; i < splits.size(); ++i) {
    const float w = numerics::exp(splits[i].maximum - maximum);
    sum = i == 0 ? w * splits[i].sum : std::fma(w, splits[i].sum, sum);
    for (size_t d = 0; d < dims; ++d) {
      out[d] = i == 0 ? w * splits[i].output[d] : std::fma(w, splits[i].output[d], out[d]);
    }
  }
  if (sink != nullptr) sum += numerics::exp(*sink - maximum);
  const float inverse = 1.0F / sum;
  for (size_t d = 0; d < dims; ++d) out[d] *= inverse;
}

}  // namespace

float load_cached(TensorType type, const std::byte* base, int64_t index) {
  if (type == TensorType::f32) {
    float value;
    std::memcpy(&value, base + index * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, base + index * 2, sizeof bits);
  return type == TensorType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void store_cached(TensorType type, std::byte* base, int64_t index, float value) {
  if (type == TensorType::f32) {
    std::memcpy(base + index * 4, &value, sizeof value);
    return;
  }
  const uint16_t bits = type == TensorType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(base + index * 2, &bits, sizeof bits);
}

int8_t scaled_code(float x, float scale) {
  const float q = std::nearbyint(x * (scale > 0.0F ? 1.0F / scale : 0.0F));
  if (!(q > -127.0F)) return -127;  // and what is no number, of which the scale is none, either
  return static_cast<int8_t>(std::min(q, 127.0F));
}

float cache_scale(const float* x, int64_t count) {
  float largest = 0.0F, probe = 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(x[i]) > largest) largest = std::abs(x[i]);
    probe += x[i] * 0.0F;  // infinity and NaN become NaN
  }
  constexpr float kLargestHalf = 65504.0F;
  return f16_to_f32(f32_to_f16(std::min(largest / 127.0F, kLargestHalf) + probe));
}

void append_kv(const op::Attend& attend, const Batch& batch, const float* k, const float* v, KvCache& cache) {
  const int64_t width = int64_t{attend.kv_heads} * attend.head_dim;
  for (const SequenceRows& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int32_t position = sequence.first_position + i;
      const int64_t row = int64_t{sequence.first_row} + i;
      for (int64_t h = 0; h < attend.kv_heads; ++h) {
        const HeadCache head{cache, attend, sequence, h};
        std::byte* keys = cache.keys(attend.cache_layer, head.page(position));
        std::byte* values = cache.values(attend.cache_layer, head.page(position));
        if (cache.type() == TensorType::q8_0) {
          const int64_t source = row * width + h * attend.head_dim;
          for (int64_t d = 0; d < attend.head_dim; d += kScaledDims) {
            const int64_t count = std::min<int64_t>(kScaledDims, attend.head_dim - d);
            const int64_t scale_at = d / kScaledDims * kPagePositions + position % kPagePositions;
            for (const auto& [base, x] : {std::pair(keys, k), std::pair(values, v)}) {
              std::byte* area = base + h * scaled_head_bytes(attend.head_dim);
              const float scale = cache_scale(x + source + d, count);
              const uint16_t bits = f32_to_f16(scale);
              std::memcpy(area + 2 * scale_at, &bits, sizeof bits);
              for (int64_t i = d; i < d + count; ++i) {
                const int64_t code = base == keys ? head.key_code(position, i) : head.value_code(position, i);
                area[scale_bytes(attend.head_dim) + code] = static_cast<std::byte>(scaled_code(x[source + i], scale));
              }
            }
          }
          continue;
        }
        for (int64_t d = 0; d < attend.head_dim; ++d) {
          const int64_t source = row * width + h * attend.head_dim + d;
          store_cached(cache.type(), keys, head.key_index(position, d), k[source]);
          store_cached(cache.type(), values, head.value_index(position, d), v[source]);
        }
      }
    }
  }
}

void attend(const op::Attend& attend, const Batch& batch, const float* q, KvCache& cache, float* out) {
  const int64_t group = attend.heads / attend.kv_heads;
  for (const SequenceRows& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      for (int64_t h = 0; h < attend.heads; ++h) {
        const HeadCache head{cache, attend, sequence, h / group};
        const int64_t at = ((int64_t{sequence.first_row} + i) * attend.heads + h) * attend.head_dim;
        const float* sink = attend.sinks != nullptr ? &attend.sinks->values[static_cast<size_t>(h)] : nullptr;
        attend_row(head, q + at, visible_positions(sequence, i, attend.window), sink, out + at);
      }
    }
  }
}

}  // namespace cohort::reference
