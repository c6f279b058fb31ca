// Mixes as the field has them, and quantising a small model in every way.
#include "convert/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>

#include "base/file.h"
#include "base/test_folder.h"
#include "formats/gguf/gguf.h"
#include "formats/imatrix/imatrix.h"
#include "models/model.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using enum TensorType;

TensorType choose(std::string_view mix, const std::string& name, const MixModel& model,
                  AttentionWidth width = AttentionWidth::as_mix) {
  return mix_type(*find_mix(mix), model, width, name);
}

TEST(Mixes, NamesAreUnique) {
  for (const MixInfo& mix : all_mixes()) EXPECT_EQ(find_mix(mix.name), &mix) << mix.name;
  EXPECT_EQ(find_mix("Q4_K")->name, "q4_k_m");
  EXPECT_EQ(find_mix("q3_k")->name, "q3_k_m");
  EXPECT_EQ(find_mix("q9"), nullptr);
}

TEST(Mixes, AreThoseOfTheField) {
  MixModel dense{.layers = 32, .query_groups = 4};
  EXPECT_EQ(choose("q4_k_m", "output.weight", dense), q6_k);
  EXPECT_EQ(choose("q4_k_m", "token_embd.weight", dense), q4_k);
  EXPECT_EQ(choose("q4_k_m", "blk.0.ffn_down.weight", dense), q6_k);
  EXPECT_EQ(choose("q4_k_m", "blk.4.ffn_down.weight", dense), q4_k);
  EXPECT_EQ(choose("q4_k_m", "blk.6.ffn_down.weight", dense), q6_k);
  EXPECT_EQ(choose("q4_k_m", "blk.31.attn_v.weight", dense), q6_k);
  EXPECT_EQ(choose("q4_k_m", "blk.31.attn_q.weight", dense), q4_k);
  EXPECT_EQ(choose("q4_k_s", "blk.3.ffn_down.weight", dense), q5_k);
  EXPECT_EQ(choose("q4_k_s", "blk.4.ffn_down.weight", dense), q4_k);
  EXPECT_EQ(choose("q2_k", "blk.9.attn_v.weight", dense), q4_k);
  EXPECT_EQ(choose("q2_k", "blk.9.ffn_down.weight", dense), q3_k);
  EXPECT_EQ(choose("q3_k_m", "blk.0.attn_v.weight", dense), q5_k);
  EXPECT_EQ(choose("q3_k_m", "blk.2.attn_v.weight", dense), q4_k);
  EXPECT_EQ(choose("iq2_xxs", "token_embd.weight", dense), q2_k);
  EXPECT_EQ(choose("iq2_xxs", "output.weight", dense), q5_k);
  EXPECT_EQ(choose("iq3_xxs", "blk.0.attn_k.weight", dense), iq2_s);
  EXPECT_EQ(choose("q8_0", "output.weight", dense), q8_0);
  dense.tied = true;
  EXPECT_EQ(choose("q4_k_m", "token_embd.weight", dense), q6_k);
  EXPECT_EQ(choose("f16", "token_embd.weight", dense), f16);
  const MixModel mixtral{.layers = 32, .experts = 8, .query_groups = 4};
  EXPECT_EQ(choose("q4_k_m", "blk.5.attn_v.weight", mixtral), q8_0);
  EXPECT_EQ(choose("mxfp4_moe", "blk.5.ffn_up_exps.weight", mixtral), mxfp4);
  EXPECT_EQ(choose("mxfp4_moe", "blk.5.attn_q.weight", mixtral), q8_0);
}

TEST(Mixes, AttentionOfMoeModelsIsWiderThanTheExperts) {
  const MixModel moe{.layers = 48, .experts = 128, .query_groups = 8};
  const auto wide = [&](std::string_view mix) {
    return choose(mix, "blk.20.attn_q.weight", moe, AttentionWidth::wider);
  };
  EXPECT_EQ(wide("iq2_xxs"), q4_k);
  EXPECT_EQ(wide("q3_k_m"), q4_k);
  EXPECT_EQ(wide("q4_k_m"), q5_k);
  EXPECT_EQ(wide("q5_k_m"), q6_k);
  EXPECT_EQ(wide("q6_k"), q8_0);
  EXPECT_EQ(wide("q8_0"), q8_0);
  EXPECT_EQ(choose("q4_k_m", "blk.20.ffn_up_exps.weight", moe, AttentionWidth::wider), q4_k);
  EXPECT_EQ(choose("q4_k_m", "blk.0.attn_v.weight", moe, AttentionWidth::wider), q6_k);
}

TEST(Mixes, FallBackWhereBlocksDoNotDivide) {
  EXPECT_EQ(fitting_type(q4_k, 256), q4_k);
  EXPECT_EQ(fitting_type(q4_k, 96), q5_0);
  EXPECT_EQ(fitting_type(q5_k, 96), q5_1);
  EXPECT_EQ(fitting_type(q6_k, 96), q8_0);
  EXPECT_EQ(fitting_type(iq2_xxs, 96), iq4_nl);
  EXPECT_EQ(fitting_type(q4_k, 100), f16);
}

class QuantiseTest : public ::testing::Test {
 protected:
  fs::path input() const { return fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf"; }
  fs::path output() const { return folder_ / "out.gguf"; }
  QuantiseOptions options(std::string_view mix) const {
    QuantiseOptions o;
    o.mix = find_mix(mix);
    o.jobs = 2;
    return o;
  }
  std::string message_of(const QuantiseOptions& o) const {
    const auto report = quantise(input(), output(), o);
    return report ? std::string() : report.error().message;
  }
  TestFolder folder_;
};

TEST_F(QuantiseTest, EveryMixMakesAModelThatLoads) {
  for (const MixInfo& mix : all_mixes()) {
    QuantiseOptions o = options(mix.name);
    o.allow_no_importance = true;
    const auto report = quantise(input(), output(), o);
    ASSERT_TRUE(report.has_value()) << mix.name << ": " << report.error().message;
    const auto model = Model::load(output(), 64);
    ASSERT_TRUE(model.has_value()) << mix.name << ": " << model.error().message;
    const auto file = gguf::File::open(output());
    EXPECT_EQ(file->metadata().get_u32("general.file_type").value(), mix.file_type);
    EXPECT_EQ(file->find_tensor("blk.0.ffn_gate_inp.weight")->type, f32);
    for (const QuantisedTensor& t : report->tensors) EXPECT_EQ(file->find_tensor(t.name)->type, t.to) << t.name;
  }
}

TEST_F(QuantiseTest, ValuesAreThoseOfTheEncoder) {
  QuantiseOptions o = options("q8_0");
  o.overrides = {{"attn_q", f16}, {"blk\\.0\\.attn_", q4_0}};
  ASSERT_TRUE(quantise(input(), output(), o).has_value());
  const auto before = gguf::File::open(input()), after = gguf::File::open(output());
  EXPECT_EQ(after->find_tensor("blk.0.attn_q.weight")->type, f16);  // the first that matches
  EXPECT_EQ(after->find_tensor("blk.0.attn_k.weight")->type, q4_0);
  EXPECT_EQ(after->find_tensor("blk.1.attn_k.weight")->type, q8_0);
  for (const gguf::TensorInfo& tensor : before->tensors()) {
    const gguf::TensorInfo* other = after->find_tensor(tensor.name);
    ASSERT_NE(other, nullptr);
    const int64_t count = tensor.values(), row = tensor.shape[0];
    std::vector<float> values(static_cast<size_t>(count));
    std::vector<std::byte> encoded(other->bytes);
    decode_row(tensor.type, tensor.data, values.data(), count);
    const size_t stride = row_bytes(other->type, row);
    for (int64_t r = 0; r < count / row; ++r) {
      ASSERT_TRUE(
          encode_row(other->type, values.data() + r * row, encoded.data() + static_cast<size_t>(r) * stride, row)
              .has_value());
    }
    EXPECT_EQ(std::memcmp(encoded.data(), other->data, encoded.size()), 0) << tensor.name;
  }
}

TEST_F(QuantiseTest, ImportanceMatters) {
  const auto file = gguf::File::open(input());
  ImportanceMatrix matrix;
  for (const gguf::TensorInfo& t : file->tensors()) {
    if (!t.name.ends_with("_exps.weight")) continue;
    Importance& entry = matrix.entries[t.name];
    entry.cols = t.shape[0];
    entry.experts = t.shape[2];
    for (int64_t i = 0; i < entry.cols * entry.experts; ++i) {
      entry.square_sums.push_back(i / entry.cols == 1 ? 0.0F : static_cast<float>(1 + i % 5 * 100));
    }
    entry.counts.assign(static_cast<size_t>(entry.experts), 1);
    entry.counts[1] = 0;  // never routed to
  }
  ASSERT_TRUE(write_importance(matrix, folder_ / "m.gguf", ImportanceFormat::gguf).has_value());
  QuantiseOptions o = options("q4_0");
  ASSERT_TRUE(quantise(input(), folder_ / "plain.gguf", o).has_value());
  o.importance = folder_ / "m.gguf";
  const auto report = quantise(input(), output(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(std::ranges::count_if(
                report->notes, [](const std::string& note) { return note.find("never routed") != std::string::npos; }),
            1);  // the same of several tensors
  const auto plain = gguf::File::open(folder_ / "plain.gguf"), weighed = gguf::File::open(output());
  const auto* a = plain->find_tensor("blk.1.ffn_up_exps.weight");
  const auto* b = weighed->find_tensor("blk.1.ffn_up_exps.weight");
  const size_t slice = a->bytes / static_cast<size_t>(a->shape[2]);
  EXPECT_NE(std::memcmp(a->data, b->data, slice), 0);
  EXPECT_EQ(std::memcmp(a->data + slice, b->data + slice, slice), 0);  // without importance: as before
  EXPECT_EQ(weighed->metadata().get_string("quantize.imatrix.file").value(), "m.gguf");

  matrix.entries.begin()->second.cols += 1;
  matrix.entries.begin()->second.square_sums.resize(
      static_cast<size_t>(matrix.entries.begin()->second.cols * matrix.entries.begin()->second.experts));
  ASSERT_TRUE(write_importance(matrix, folder_ / "m.gguf", ImportanceFormat::gguf).has_value());
  EXPECT_NE(message_of(o).find("of another model"), std::string::npos);
}

TEST_F(QuantiseTest, SplitsAppearTogether) {
  QuantiseOptions o = options("q8_0");
  o.split_tensors = 10;
  const auto report = quantise(input(), output(), o);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_GT(report->files.size(), 1U);
  EXPECT_EQ(folder_.files(), report->files.size());
  const auto model = Model::load(report->files[0], 64);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  const auto file = gguf::File::open(report->files[0]);
  EXPECT_EQ(file->tensors().size(), report->tensors.size());
}

TEST_F(QuantiseTest, RefusesWhatCannotBeAndLeavesNothing) {
  QuantiseOptions o = options("q4_0");
  o.overrides = {{"no_such", q8_0}};
  EXPECT_NE(message_of(o).find("no_such"), std::string::npos);
  o.overrides = {{"(", q8_0}};
  EXPECT_NE(message_of(o).find("no regular expression"), std::string::npos);
  o = options("q4_0");
  o.cancelled = [] { return true; };
  EXPECT_NE(message_of(o).find("interrupted"), std::string::npos);
  EXPECT_NE(quantise(input(), input(), options("q4_0")).error().message.find("is read"), std::string::npos);
  EXPECT_NE(quantise(folder_.path(), output(), options("q4_0")).error().message.find("folder"), std::string::npos);
  EXPECT_EQ(folder_.files(), 0U);
}

TEST_F(QuantiseTest, VeryLowTypesAskForImportance) {
  {
    auto writer = gguf::Writer::create(folder_ / "wide.gguf");
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->add_tensor("blk.0.ffn_up.weight", f32, {256, 2}).has_value());
    ASSERT_TRUE(writer->begin_data().has_value());
    std::vector<float> values(512);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18;
    ASSERT_TRUE(writer->write(std::as_bytes(std::span(values))).has_value());
    ASSERT_TRUE(writer->commit().has_value());
  }
  QuantiseOptions o = options("iq2_xxs");
  const auto refused = quantise(folder_ / "wide.gguf", output(), o);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("--imatrix"), std::string::npos);
  o.allow_no_importance = true;
  EXPECT_TRUE(quantise(folder_ / "wide.gguf", output(), o).has_value());
}

TEST_F(QuantiseTest, QuantisingAgainIsSaid) {
  ASSERT_TRUE(quantise(input(), folder_ / "once.gguf", options("q8_0")).has_value());
  const auto report = quantise(folder_ / "once.gguf", output(), options("q4_0"));
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_NE(report->notes.back().find("quantised already"), std::string::npos);
}

}  // namespace
}  // namespace cohort
