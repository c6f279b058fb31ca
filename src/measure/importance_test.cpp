// The sums that the CPU backend shows, against those of the reference and against the definition.
#include "measure/importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/test_folder.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

ImportanceReport collect(const fs::path& text, const char* backend, bool head) {
  ImportanceOptions o;
  o.engine.model = fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";
  o.engine.context = 16;
  o.engine.max_streams = 3;
  o.engine.threads = 2;
  o.engine.backend = backend;
  o.text = text;
  o.windows = 5;
  o.head = head;
  auto report = collect_importance(o);
  EXPECT_TRUE(report.has_value()) << report.error().message;
  return report ? std::move(*report) : ImportanceReport{};
}

class ImportanceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(3);
    std::string words;
    for (int i = 0; i < 300; ++i) words += "word " + std::to_string(random() % 997) + " ";
    text_ = folder_.write("text.txt", words);
  }
  TestFolder folder_;
  fs::path text_;
};

TEST_F(ImportanceTest, CpuAndReferenceShowTheSame) {
  const ImportanceReport cpu = collect(text_, "fast", true), reference = collect(text_, "reference", true);
  ASSERT_GT(cpu.matrix.entries.size(), 10U);
  ASSERT_EQ(cpu.matrix.entries.size(), reference.matrix.entries.size());
  for (const auto& [name, entry] : reference.matrix.entries) {
    const Importance* other = cpu.matrix.find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(other->counts, entry.counts) << name;
    ASSERT_EQ(other->square_sums.size(), entry.square_sums.size());
    for (size_t k = 0; k < entry.square_sums.size(); ++k) {
      // The rows are the same bits; they are added in another order.
      EXPECT_NEAR(other->square_sums[k], entry.square_sums[k], 1e-6 * entry.square_sums[k]) << name << " " << k;
    }
  }
}

TEST_F(ImportanceTest, CountsAreTheRoutes) {
  const ImportanceReport report = collect(text_, "fast", false);
  EXPECT_EQ(report.tokens, 5 * 16);
  EXPECT_EQ(report.matrix.find("output.weight"), nullptr);
  const Importance* q = report.matrix.find("blk.0.attn_q.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->counts, std::vector<float>{5 * 16});
  const Importance* up = report.matrix.find("blk.0.ffn_up_exps.weight");
  const Importance* down = report.matrix.find("blk.0.ffn_down_exps.weight");
  ASSERT_TRUE(up != nullptr && down != nullptr);
  EXPECT_EQ(up->counts, down->counts);
  float routes = 0;
  size_t unrouted = 0;
  for (const float count : up->counts) {
    routes += count;
    unrouted += count == 0 ? 1 : 0;
  }
  EXPECT_EQ(std::fmod(routes, 80.0F), 0.0F);  // top-k experts of every token
  size_t reported = 0;
  for (const UnroutedExperts& u : report.unrouted) {
    if (u.tensor == "blk.0.ffn_down_exps.weight") reported = u.experts.size();
  }
  EXPECT_EQ(reported, unrouted);
  // After an RMS norm the squares of a row add up to its width, times the norm's weights: never zero.
  for (const float sum : q->square_sums) EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace cohort
