// Experts on the host beside those elsewhere: every route's bits are those of the reference.
#include "kernels/cpu/host_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/test_weights.h"
#include "kernels/reference/ops.h"

namespace cohort::cpu {
namespace {

using testing::OwnedWeight;
using testing::random_float;
using testing::random_weight;

struct TestLayer {
  OwnedWeight gate, up, down;
  VectorWeight gate_bias, up_bias, down_bias;
  op::Experts experts;
  TestLayer(TensorType pair, TensorType last, int64_t count, int64_t hidden, int64_t inner, uint64_t seed)
      : gate(random_weight(pair, count, inner, hidden, seed)),
        up(random_weight(pair, count, inner, hidden, seed + 1)),
        down(random_weight(last, count, hidden, inner, seed + 2)),
        experts{&gate.weight, &up.weight, &down.weight, seed % 2 == 0 ? Activation::silu : Activation::gelu_tanh} {}
  /// As gpt-oss has them.
  void add_biases() {
    uint32_t next = 0;
    for (auto [bias, matrix] :
         {std::pair(&gate_bias, &gate.weight), {&up_bias, &up.weight}, {&down_bias, &down.weight}}) {
      for (int64_t i = 0; i < matrix->experts * matrix->rows; ++i) bias->values.push_back(random_float(9, next++));
    }
    experts.activation = Activation::clamped_swiglu;
    experts.gate_bias = &gate_bias;
    experts.up_bias = &up_bias;
    experts.down_bias = &down_bias;
  }
};

struct Rows {
  size_t count, hidden;
  std::vector<float> values;
  Rows(size_t rows, const TestLayer& model) : count(rows), hidden(static_cast<size_t>(model.gate.weight.cols)) {
    for (size_t i = 0; i < count * hidden; ++i) values.push_back(random_float(5, static_cast<uint32_t>(i)));
  }
  const float* row(size_t r) const { return values.data() + r * hidden; }
};

/// down(act(gate x) * (up x)) of one expert.
std::vector<float> reference_result(const TestLayer& model, int32_t expert, const float* x) {
  std::vector<float> out(static_cast<size_t>(model.down.weight.rows));
  const reference::RouteSlot slot{expert, 1.0F};
  reference::experts_row(model.experts, std::span(&slot, 1), ActivationMode::canonical, x, out.data(), {});
  return out;
}

/// The routes of `host`, one after the other, against the reference. chosen: [rows * top_k].
void check(HostExperts& host, size_t layer, const TestLayer& model, const std::vector<int32_t>& chosen, int32_t top_k) {
  const Rows rows(chosen.size() / static_cast<size_t>(top_k), model);
  const auto outputs = static_cast<size_t>(model.down.weight.rows);
  std::vector<int32_t> routes(chosen.size());
  routes.resize(static_cast<size_t>(host.find_routes(layer, chosen, routes.data())));
  std::vector<float> out(routes.size() * outputs, -1.0F);
  host.run(layer, routes, chosen.data(), top_k, rows.values.data(), out.data());
  for (size_t i = 0; i < routes.size(); ++i) {
    const auto route = static_cast<size_t>(routes[i]);
    EXPECT_TRUE(host.holds(layer, chosen[route]));
    const auto expected = reference_result(model, chosen[route], rows.row(route / static_cast<size_t>(top_k)));
    EXPECT_EQ(std::memcmp(expected.data(), out.data() + i * outputs, outputs * sizeof(float)), 0) << "route " << route;
  }
}

TEST(host_experts, routes_have_the_bits_of_the_reference) {
  const TestLayer first(TensorType::q4_0, TensorType::q8_0, 8, 128, 64, 2),
      all(TensorType::q4_k, TensorType::q6_k, 4, 256, 256, 3), none(TensorType::q4_0, TensorType::q4_0, 4, 64, 64, 4),
      floats(TensorType::bf16, TensorType::f16, 6, 96, 48, 6);
  TestLayer biased(TensorType::mxfp4, TensorType::mxfp4, 5, 96, 64, 8);
  biased.add_biases();
  HostExperts::Options options;
  options.threads = 2;
  auto made = HostExperts::create({{&first.experts, {1, 2, 6}},
                                   {&none.experts, {}},
                                   {&all.experts, {0, 1, 2, 3}},
                                   {&floats.experts, {5}},
                                   {&biased.experts, {1, 3}}},
                                  options);
  ASSERT_TRUE(made) << made.error().message;
  HostExperts& host = **made;
  for (int32_t e = 0; e < 8; ++e) EXPECT_EQ(host.holds(0, e), e == 1 || e == 2 || e == 6);
  EXPECT_FALSE(host.holds(1, 0));
  EXPECT_TRUE(host.holds(2, 3));
  check(host, 0, first, {6}, 1);
  std::vector<int32_t> many;
  for (int32_t i = 0; i < 210; ++i) many.push_back(i * 5 % 8);
  check(host, 0, first, many, 3);
  check(host, 2, all, {3, 0, 3, 2, 1, 0}, 2);
  check(host, 3, floats, {5, 4, 3, 5}, 2);
  check(host, 3, floats, {1, 4}, 2);
  check(host, 4, biased, {3, 0, 1, 4, 2, 3, 1, 3}, 2);
}

TEST(host_experts, the_routes_it_holds_are_found_in_order) {
  const TestLayer model(TensorType::q4_0, TensorType::q4_0, 8, 64, 64, 2);
  const auto made = HostExperts::create({{&model.experts, {2, 5}}}, {});
  ASSERT_TRUE(made) << made.error().message;
  const std::vector<int32_t> chosen = {5, 0, 1, 2, 2, 7, 3, 5};
  std::vector<int32_t> routes(chosen.size(), -1);
  EXPECT_EQ((*made)->find_routes(0, chosen, routes.data()), 4);
  EXPECT_EQ(routes, (std::vector<int32_t>{0, 3, 4, 7, -1, -1, -1, -1}));
}

/// A row whose routes are computed in two places and summed in slot order has the bits of the reference, wherever the
/// experts are.
TEST(host_experts, no_placement_changes_the_weighted_sum) {
  constexpr int32_t kExperts = 8, kTopK = 4;
  constexpr size_t kRows = 21;
  const TestLayer model(TensorType::q4_0, TensorType::q8_0, kExperts, 128, 96, 2);
  const Rows rows(kRows, model);
  std::vector<int32_t> chosen;
  std::vector<float> weights;
  for (size_t i = 0; i < kRows * kTopK; ++i) {
    chosen.push_back(static_cast<int32_t>((i / kTopK * 3 + i % kTopK * 2 + i / 11) % kExperts));
    weights.push_back(0.1F + 0.07F * static_cast<float>(i % 5));
  }
  for (const std::vector<int32_t>& here :
       {std::vector<int32_t>{}, {3}, {0, 2, 4, 6}, {1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
    auto made = HostExperts::create({{&model.experts, here}}, {});
    ASSERT_TRUE(made) << made.error().message;
    std::vector<int32_t> routes(chosen.size());
    routes.resize(static_cast<size_t>((*made)->find_routes(0, chosen, routes.data())));
    std::vector<float> results(routes.size() * rows.hidden);
    (*made)->run(0, routes, chosen.data(), kTopK, rows.values.data(), results.data());
    std::vector<std::vector<float>> by_route(chosen.size());
    for (size_t i = 0; i < routes.size(); ++i) {
      const auto first = results.begin() + static_cast<int64_t>(i * rows.hidden);
      by_route[static_cast<size_t>(routes[i])].assign(first, first + static_cast<int64_t>(rows.hidden));
    }
    for (size_t route = 0; route < chosen.size(); ++route)
      if (by_route[route].empty()) by_route[route] = reference_result(model, chosen[route], rows.row(route / kTopK));
    for (size_t r = 0; r < kRows; ++r) {
      std::vector<reference::RouteSlot> slots;
      for (size_t s = r * kTopK; s < (r + 1) * kTopK; ++s) slots.push_back({chosen[s], weights[s]});
      std::vector<float> expected(rows.hidden);
      reference::experts_row(model.experts, slots, ActivationMode::canonical, rows.row(r), expected.data(), {});
      for (size_t k = 0; k < rows.hidden; ++k) {
        float sum = slots[0].weight * by_route[r * kTopK][k];
        for (size_t s = 1; s < kTopK; ++s) sum = std::fma(slots[s].weight, by_route[r * kTopK + s][k], sum);
        ASSERT_EQ(std::memcmp(&sum, &expected[k], sizeof sum), 0)
            << here.size() << " experts here, row " << r << ", value " << k;
      }
    }
  }
}

TEST(host_experts, bytes_are_those_of_its_part) {
  const TestLayer model(TensorType::q8_0, TensorType::q8_0, 8, 128, 64, 2);
  auto half = HostExperts::create({{&model.experts, {0, 1, 2, 3}}}, {});
  auto whole = HostExperts::create({{&model.experts, {0, 1, 2, 3, 4, 5, 6, 7}}}, {});
  ASSERT_TRUE(half && whole);
  EXPECT_EQ(2 * (*half)->bytes(), (*whole)->bytes());
}

}  // namespace
}  // namespace cohort::cpu
