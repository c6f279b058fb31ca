#include "kernels/reference/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace cohort {
namespace {

struct Case {
  op::Attend attend;
  int32_t positions;
};

float random(uint32_t index, uint32_t stream) {
  return 2.0F * uniform(7, index, 0, stream) - 1.0F;
}

size_t index(int32_t value) {
  return static_cast<size_t>(value);
}

// The textbook softmax(q k^T) v in double.
double textbook(const Case& c, const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                int32_t row, int32_t head, int32_t dim) {
  const int32_t kv_width = c.attend.kv_heads * c.attend.head_dim;
  const int32_t kv = head / (c.attend.heads / c.attend.kv_heads) * c.attend.head_dim;
  double sum = c.attend.sinks != nullptr ? std::exp(double{c.attend.sinks->values[index(head)]}) : 0, out = 0;
  for (int32_t j = 0; j <= row; ++j) {
    if (c.attend.window > 0 && row - j >= c.attend.window) continue;
    double score = 0;
    for (int32_t d = 0; d < c.attend.head_dim; ++d) {
      score +=
          double{q[index((row * c.attend.heads + head) * c.attend.head_dim + d)]} * k[index(j * kv_width + kv + d)];
    }
    const double p = std::exp(score * c.attend.scale);
    sum += p;
    out += p * v[index(j * kv_width + kv + dim)];
  }
  return out / sum;
}

TEST(reference_attention, is_the_textbook_up_to_rounding) {
  const VectorWeight sinks{"sinks", {-2.0F, 0.5F, 3.0F, 6.0F}};
  for (const Case& c : {Case{{0, 4, 2, 24, 0.2F, 0, &sinks}, 530}, Case{{0, 2, 1, 16, 0.3F, 100, &sinks}, 400},
                        Case{{0, 4, 2, 24, 0.2F, 0}, 530}, Case{{0, 3, 1, 16, 0.25F, 0}, 40},
                        Case{{0, 2, 2, 32, 0.3F, 100}, 400}, Case{{0, 1, 1, 16, 0.3F, 1}, 300}}) {
    const auto rows = static_cast<size_t>(c.positions);
    const auto width = index(c.attend.heads * c.attend.head_dim);
    const auto kv_width = index(c.attend.kv_heads * c.attend.head_dim);
    std::vector<float> q(rows * width), k(rows * kv_width), v(rows * kv_width), out(rows * width);
    for (size_t i = 0; i < q.size(); ++i) q[i] = 2 * random(static_cast<uint32_t>(i), 0);
    for (size_t i = 0; i < k.size(); ++i) k[i] = random(static_cast<uint32_t>(i), 1);
    for (size_t i = 0; i < v.size(); ++i) v[i] = random(static_cast<uint32_t>(i), 2);
    auto cache = KvCache::create({{c.attend.kv_heads, c.attend.head_dim, c.attend.window}}, TensorType::f32, 40);
    ASSERT_TRUE(cache) << cache.error().message;
    std::vector<int32_t> pages;
    pages.reserve(40);
    for (int32_t i = 0; i < (c.positions + kPagePositions - 1) / kPagePositions; ++i) pages.push_back(39 - 2 * i);
    Batch batch;
    batch.tokens.resize(rows);
    batch.sequences.push_back({0, c.positions, 0, pages});
    reference::append_kv(c.attend, batch, k.data(), v.data(), *cache);
    reference::attend(c.attend, batch, q.data(), *cache, out.data());
    for (int32_t row = 0; row < c.positions; row += 37) {
      for (int32_t head = 0; head < c.attend.heads; ++head) {
        for (int32_t d = 0; d < c.attend.head_dim; ++d) {
          const size_t at = index((row * c.attend.heads + head) * c.attend.head_dim + d);
          ASSERT_NEAR(out[at], textbook(c, q, k, v, row, head, d), 2e-6) << row << " " << head << " " << d;
        }
      }
    }
  }
}

TEST(reference_attention, cached_values_round_to_the_type) {
  std::vector<std::byte> memory(64);
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16}) {
    reference::store_cached(type, memory.data(), 3, 1.00390625F + 0x1p-12F);
    const float expected = type == TensorType::f32   ? 1.00390625F + 0x1p-12F
                           : type == TensorType::f16 ? 1.00390625F
                                                     : 1.0078125F;
    EXPECT_EQ(reference::load_cached(type, memory.data(), 3), expected);
  }
}

}  // namespace
}  // namespace cohort
