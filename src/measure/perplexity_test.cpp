// Perplexity against the same sums taken the long way, and the file of log-probabilities.
#include "measure/perplexity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "base/file.h"
#include "base/test_folder.h"
#include "kernels/reference/backend.h"
#include "kv/pages.h"
#include "measure/logits_base.h"
#include "measure/token_windows.h"
#include "text/text_model.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";

class PerplexityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    std::ofstream file(text());
    for (int i = 0; i < 400; ++i) file << "the quick brown fox " << random() % 1000 << (i % 9 == 0 ? "\n" : " ");
  }
  fs::path text() const { return folder_.path() / "text.txt"; }
  fs::path base() const { return folder_.path() / "base.bin"; }
  PerplexityOptions options() const {
    PerplexityOptions o;
    o.engine.model = kModel;
    o.engine.context = 32;
    o.engine.max_streams = 3;
    o.engine.threads = 2;
    o.text = text();
    o.windows = 7;
    return o;
  }
  TestFolder folder_;
};

TEST_F(PerplexityTest, EqualsTheSumTakenTheLongWay) {
  auto model = Model::load(kModel, 32);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  auto words = load_text_model(**model);
  ASSERT_TRUE(words.has_value()) << words.error().message;
  const auto tokens = words->tokenizer.encode(*read_text_file(text())).value();
  auto backend = make_reference_backend((*model)->program(), {2, ActivationMode::canonical});
  ASSERT_TRUE(backend->allocate_cache(TensorType::f16, 1).has_value());
  const auto vocabulary = static_cast<size_t>((*model)->program().vocabulary);
  const std::vector<int32_t> pages{0};
  double sum = 0;
  int count = 0;
  for (size_t w = 0; w < 7; ++w) {
    Batch batch;
    for (int32_t i = 0; i < 32; ++i) {
      batch.tokens.push_back(tokens[w * 32 + static_cast<size_t>(i)]);
      batch.positions.push_back(i);
      batch.sampled_rows.push_back(i);
    }
    batch.sequences.push_back({0, 32, 0, pages});
    std::vector<float> logits(32 * vocabulary);
    ASSERT_TRUE(backend->run(batch, logits).has_value());
    for (size_t i = 16; i < 31; ++i) {
      double total = 0;
      for (size_t v = 0; v < vocabulary; ++v) total += std::exp(static_cast<double>(logits[i * vocabulary + v]));
      sum += std::log(total) - logits[i * vocabulary + static_cast<size_t>(batch.tokens[i + 1])];
      ++count;
    }
  }
  const auto report = measure_perplexity(options());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->scored_tokens, count);
  EXPECT_EQ(report->windows, 7);
  EXPECT_NEAR(report->nll.mean, sum / count, 1e-5);
  EXPECT_GT(report->nll.error, 0);
}

TEST_F(PerplexityTest, DoesNotDependOnTheBatch) {
  PerplexityOptions one = options();
  one.engine.max_streams = 1;
  one.engine.prefill_rows = 5;
  const auto a = measure_perplexity(one), b = measure_perplexity(options());
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->nll.mean, b->nll.mean);
}

TEST_F(PerplexityTest, AModelIsItsOwnBase) {
  PerplexityOptions o = options();
  o.save_base = base();
  const auto saved = measure_perplexity(o);
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  PerplexityOptions compared;
  compared.engine = o.engine;
  compared.engine.context = 0;  // the base knows
  compared.kl_base = base();
  const auto report = measure_perplexity(compared);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->nll.mean, saved->nll.mean);
  ASSERT_TRUE(report->divergence.has_value());
  EXPECT_LT(report->divergence->max, 1e-4);  // what 16 bits of a logarithm leave
  EXPECT_EQ(report->divergence->same_top.mean, 1);
  EXPECT_NEAR(report->divergence->nll_difference.mean, 0, 1e-4);
}

TEST_F(PerplexityTest, StridedWindowsScoreTheirEnds) {
  PerplexityOptions o = options();
  o.stride = 8;
  const auto report = measure_perplexity(o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->scored_tokens, 7 * 8);
}

TEST_F(PerplexityTest, RefusesWhatCannotBe) {
  const auto message = [](const PerplexityOptions& o) {
    const auto report = measure_perplexity(o);
    return report ? std::string() : report.error().message;
  };
  PerplexityOptions o = options();
  o.stride = 32;
  EXPECT_NE(message(o).find("--stride"), std::string::npos);
  o = options();
  o.text.clear();
  EXPECT_NE(message(o).find("-f FILE"), std::string::npos);
  std::ofstream(text()) << "short";
  o = options();
  EXPECT_NE(message(o).find("one window needs 32"), std::string::npos);
  std::ofstream(base()) << "not a base";
  o.text.clear();
  o.kl_base = base();
  EXPECT_NE(message(o).find("_logits_"), std::string::npos);
}

TEST_F(PerplexityTest, BaseFilesAreCheckedCompletely) {
  std::vector<int32_t> tokens(16, 3);
  {
    auto writer = LogitsBaseWriter::create(base(), 8, 11, tokens);
    ASSERT_TRUE(writer.has_value());
    std::vector<uint16_t> rows(2 * 3 * logits_row_size(11));
    ASSERT_TRUE(writer->write(rows).has_value());
    ASSERT_TRUE(writer->commit().has_value());
  }
  ASSERT_TRUE(LogitsBase::open(base()).has_value());
  const std::string good = *read_text_file(base());
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(base(), std::ios::binary) << bytes;
    return !LogitsBase::open(base()).has_value();
  };
  EXPECT_TRUE(refused(good.substr(0, good.size() - 1)));
  EXPECT_TRUE(refused(good.substr(0, 12)));
  std::string bad = good;
  bad[20] = 11;  // the first token
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad[11] = 127;  // a context of two thousand million
  EXPECT_TRUE(refused(bad));
}

TEST(LogitsRow, KeepsSixteenBits) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(1001);
  for (float& l : logits) l = normal(random);
  std::vector<uint16_t> row(logits_row_size(1001));
  encode_logits_row(logits, row);
  float step = 0, lowest = 0;
  std::memcpy(&step, row.data(), 4);
  std::memcpy(&lowest, row.data() + 2, 4);
  const double normaliser = log_sum_exp(logits);
  const float largest = *std::ranges::max_element(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < largest - 16) continue;
    EXPECT_NEAR(lowest + step * static_cast<float>(row[4 + i]), logits[i] - normaliser, 16.0 / 65535);
  }
}

}  // namespace
}  // namespace cohort
