#include "measure/parity.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "measure/synth.h"

namespace cohort {
namespace {

TEST(parity, every_way_of_running_gives_the_same_bits) {
  const TestFolder folder;
  ParityOptions o;
  o.engine.model = folder.path() / "mini.gguf";
  SynthOptions synth;
  synth.config = "qwen3-moe-mini";
  synth.type = "q4_k_m";
  synth.output = o.engine.model;
  synth.layers = 1;
  ASSERT_TRUE(synthesise(synth));
  o.engine.threads = 2;
  o.streams = 2;
  o.tokens = 66;  // a page and more in each half
  o.reference_tokens = 2;
  const auto report = check_parity(o);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->equal()) << to_text(*report);
  EXPECT_GE(report->variants.size(), 15U);
  int64_t most = 0;
  for (const ParityVariant& v : report->variants) {
    EXPECT_GT(v.rows, 0) << v.name;
    most = std::max(most, v.rows);
  }
  EXPECT_EQ(most, 2 * 66);
  EXPECT_TRUE(nlohmann::json::parse(to_json(*report))["equal"].get<bool>());
}

TEST(parity, differences_are_named) {
  ParityReport report;
  report.variants.push_back({"alone", 10, 0, ""});
  EXPECT_TRUE(report.equal());
  report.variants.push_back({"in company", 10, 3, "stream 1, position 2"});
  EXPECT_FALSE(report.equal());
  const std::string text = to_text(report);
  EXPECT_NE(text.find("3 DIFFER"), std::string::npos);
  EXPECT_NE(text.find("stream 1, position 2"), std::string::npos);
  EXPECT_NE(text.find("NOT EQUAL"), std::string::npos);

  EXPECT_EQ(to_text(report).find("canvases"), std::string::npos);
  report.canvas = 12;
  EXPECT_NE(to_text(report).find("canvases (12 tokens"), std::string::npos) << to_text(report);
  EXPECT_FALSE(nlohmann::json::parse(to_json(report))["canvases_compared"].get<bool>());
}

TEST(parity, experts_of_unlike_types_equal_the_reference) {
  ExpertParityOptions o;
  o.gate_up = {"q4_k", "f16"};
  o.down = {"q6_k", "iq4_xs"};
  o.experts = 8;
  o.tokens = {1, 3, 18};
  o.threads = {1, 3};
  o.shares = {-1, 0.9};
  const auto report = check_expert_parity(o);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->equal()) << to_text(*report);
  ASSERT_EQ(report->pairs.size(), 4U);
  const auto each = static_cast<int64_t>(available_isas().size() * o.threads.size() * o.shares.size());
  for (const ExpertParityPair& pair : report->pairs) {
    EXPECT_EQ(pair.values, (1 + 3 + 18) * o.hidden * each);
    EXPECT_GT(pair.error, 0);
  }
}

TEST(parity, refuses_what_makes_no_sense) {
  ParityOptions o;
  o.engine.model = "nowhere.gguf";
  o.streams = 0;
  EXPECT_NE(check_parity(o).error().message.find("-np"), std::string::npos);
  o.streams = 1;
  EXPECT_FALSE(check_parity(o));
  ExpertParityOptions e;
  e.tokens = {0};
  EXPECT_NE(check_expert_parity(e).error().message.find("--tokens"), std::string::npos);
  e.tokens = {1};
  e.down = {"q4_k"};
  e.inner = 64;
  EXPECT_NE(check_expert_parity(e).error().message.find("256"), std::string::npos);
}

}  // namespace
}  // namespace cohort
