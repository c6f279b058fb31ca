#include "measure/expert_bench.h"

#include <gtest/gtest.h>

#include <set>

namespace cohort {
namespace {

int64_t distinct(const std::vector<int32_t>& routes) {
  return static_cast<int64_t>(std::set<int32_t>(routes.begin(), routes.end()).size());
}

TEST(expert_bench, routes_repeat_as_many_experts_as_asked_for) {
  EXPECT_EQ(distinct(routes_with_share(8, 128, 8, 0, 1)), 64);    // nothing repeats
  EXPECT_EQ(distinct(routes_with_share(32, 128, 8, 0, 1)), 128);  // until all experts are in use
  EXPECT_EQ(distinct(routes_with_share(64, 128, 8, 1, 1)), 8);
  EXPECT_EQ(distinct(routes_with_share(9, 128, 8, 0.5, 1)), 40);
  EXPECT_NEAR(static_cast<double>(distinct(routes_with_share(8, 128, 8, -1, 1))), 51.6, 6);
  for (double share : {-1.0, 0.0, 0.3, 1.0}) {
    const auto routes = routes_with_share(5, 16, 8, share, 3);
    for (size_t row = 0; row < 5; ++row) {
      EXPECT_EQ(distinct({routes.begin() + static_cast<int64_t>(row) * 8,
                          routes.begin() + static_cast<int64_t>(row + 1) * 8}),
                8);
    }
  }
}

TEST(expert_bench, counts_what_a_pass_reads) {
  ExpertBenchOptions o;
  o.shape = {"q4_0", "q6_k", 256, 256, 16, 4, 2};
  o.tokens = {1, 3};
  o.share = 0;
  o.repeats = 2;
  const auto report = bench_experts(o);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->points.size(), 2U);
  EXPECT_EQ(report->points[0].distinct, 4);
  EXPECT_EQ(report->points[1].distinct, 12);
  const double expert = 256 * 256 * (2 * 18 / 32.0 + 210 / 256.0);
  EXPECT_NEAR(report->points[1].bytes, 12 * expert, 0.1 * 12 * expert);  // packed tiles may be a little wider
  EXPECT_EQ(report->points[1].operations, 2.0 * 3 * 3 * 4 * 256 * 256);
  EXPECT_GT(report->points[1].seconds, 0);
  EXPECT_NE(to_csv(*report).find("q4_0,q6_k,256,256,16,4,2,3,12.00"), std::string::npos) << to_csv(*report);
}

TEST(expert_bench, refuses_what_does_not_fit) {
  ExpertBenchOptions o;
  o.shape.gate_up = "q4_k";
  o.shape.hidden = 320;
  EXPECT_NE(bench_experts(o).error().message.find("256"), std::string::npos);
  o.shape = {};
  o.shape.down = "q9_9";
  EXPECT_NE(bench_experts(o).error().message.find("q9_9"), std::string::npos);
  o.shape = {};
  o.shape.top_k = 200;
  EXPECT_NE(bench_experts(o).error().message.find("--top-k is 200"), std::string::npos);
  o.shape = {};
  o.tokens = {0};
  EXPECT_NE(bench_experts(o).error().message.find("--tokens"), std::string::npos);
}

}  // namespace
}  // namespace cohort
