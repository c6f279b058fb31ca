#include "measure/tune.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "base/test_folder.h"
#include "measure/synth_blocks.h"

namespace cohort {
namespace {

ExpertShape small_shape() {
  ExpertShape shape;
  shape.hidden = 256;
  shape.inner = 512;
  shape.experts = 8;
  shape.top_k = 3;
  return shape;
}

std::vector<uint32_t> pass_bits(ExpertRunner& runner, const ExpertShape& shape, int32_t rows) {
  std::vector<float> x(static_cast<size_t>(rows * shape.hidden)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_word(3, i) >> 40) * 0x1p-24F - 0.5F;
  const std::vector<float> slots(static_cast<size_t>(rows * shape.top_k), 0.3F);
  runner.run(0, x, routes_with_share(rows, shape.experts, shape.top_k, -1, 4), slots, y);
  std::vector<uint32_t> bits;
  for (const float v : y) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

TEST(Tune, NoChoiceChangesABit) {
  for (const auto& [gate_up, down] :
       {std::pair{"iq2_xxs", "q4_k"}, {"q2_k", "iq3_s"}, {"q4_0", "f16"}, {"f32", "q2_0"}}) {
    ExpertShape shape = small_shape();
    shape.gate_up = gate_up;
    shape.down = down;
    const auto weights = ExpertWeights::create(shape, 1, 2);
    ASSERT_TRUE(weights) << weights.error().message;
    auto runner = ExpertRunner::create(*weights, best_isa(), 2);
    ASSERT_TRUE(runner) << runner.error().message;
    for (const int32_t rows : {1, 3, 20}) {
      (*runner)->set_tuning({});
      const auto expected = pass_bits(**runner, shape, rows);
      auto candidates = tuning_candidates();
      candidates.push_back({true, cpu::kMinJobBytes});
      for (const cpu::ExpertTuning& choice : candidates) {
        cpu::TuningTable table;
        for (const int32_t c : cpu::TuningTable::kClassRows)
          table.set(cpu::layout_of(find_type(gate_up)->type), c, choice);
        (*runner)->set_tuning(table);
        EXPECT_EQ(pass_bits(**runner, shape, rows), expected)
            << gate_up << " " << down << " rows " << rows << (choice.interleave ? " interleaved " : " sequential ")
            << choice.job_bytes;
      }
    }
  }
}

TEST(Tune, MeasuresEveryClassOfRowsAndRefusesWhatIsNoQuantisedType) {
  TuneOptions o;
  o.shape = small_shape();
  o.types = {"q2_0"};
  o.repeats = 1;
  const auto report = tune(o);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->types.size(), cpu::TuningTable::kClassRows.size());
  for (const TunedType& t : report->types) {
    EXPECT_GT(t.seconds, 0);
    EXPECT_LE(t.seconds, t.default_seconds);
  }
  EXPECT_NE(to_markdown(*report).find("| q2_0 "), std::string::npos);
  o.types = {"f16"};
  const auto refused = tune(o);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'f16' (--types) is no quantised type"), std::string::npos);
}

class TuningFile : public ::testing::Test {
 protected:
  std::string reason(const std::string& text) {
    std::ofstream(path_) << text;
    const auto loaded = load_tuning(path_, key_);
    return loaded ? "" : loaded.error().message;
  }
  TestFolder folder_;
  std::filesystem::path path_ = folder_.path() / "a" / "tuning.json";
  TuningKey key_{"A processor", Isa::scalar, 2};
};

TEST_F(TuningFile, ComesBackAsItWasSaved) {
  const cpu::ExpertTuning choice{true, 96 << 10};
  ASSERT_TRUE(save_tuning(path_, key_, {{TensorType::iq2_xxs, 4, choice}, {TensorType::q4_k, 1, {false, 8 << 10}}}));
  const auto table = load_tuning(path_, key_);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->find(cpu::Layout::iq2_xxs, 3), choice);
  EXPECT_EQ(table->find(cpu::Layout::iq2_xxs, 2), cpu::ExpertTuning{});
  EXPECT_EQ(table->find(cpu::Layout::q4_k, 1).job_bytes, 8 << 10);
}

TEST_F(TuningFile, BadFilesAreRefusedWithAReason) {
  ASSERT_TRUE(save_tuning(path_, key_, {}));
  EXPECT_NE(reason("{").find("tuning.json"), std::string::npos);
  EXPECT_NE(reason("[]").find("version"), std::string::npos);
  EXPECT_NE(reason(R"({"version": 9})").find("has version 9; expected 1"), std::string::npos);
  const std::string head = R"({"version": 1, "processor": "A processor", "isa": "scalar", "threads": 2)";
  EXPECT_EQ(reason(head + R"(, "choices": []})"), "");
  EXPECT_NE(reason(head + "}").find("no list 'choices'"), std::string::npos);
  const auto choice = [&](const std::string& fields) { return reason(head + R"(, "choices": [{)" + fields + "}]}"); };
  EXPECT_NE(choice(R"("type": "f32", "rows": 1, "interleave": true, "job_bytes": 8192)").find("'f32' is no quantised"),
            std::string::npos);
  EXPECT_NE(choice(R"("type": "q4_0", "rows": 0, "interleave": true, "job_bytes": 8192)").find("0 rows"),
            std::string::npos);
  EXPECT_NE(choice(R"("type": "q4_0", "rows": 1, "interleave": true, "job_bytes": 1)").find("jobs of 1 bytes"),
            std::string::npos);
  EXPECT_NE(choice(R"("type": "q4_0", "rows": 1, "interleave": 3, "job_bytes": 8192)").find("interleave"),
            std::string::npos);
  key_.processor = "Another";
  EXPECT_NE(reason(head + R"(, "choices": []})").find("was measured on 'A processor'"), std::string::npos);
}

}  // namespace
}  // namespace cohort
