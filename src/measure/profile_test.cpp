#include "measure/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_folder.h"
#include "measure/synth.h"

namespace cohort {
namespace {

TEST(profile, times_and_bytes_add_up) {
  const TestFolder folder;
  ProfileOptions o;
  o.engine.model = folder.path() / "mini.gguf";
  SynthOptions synth;
  synth.config = "qwen3-moe-mini";
  synth.type = "q4_0";
  synth.output = o.engine.model;
  synth.layers = 1;
  ASSERT_TRUE(synthesise(synth));
  o.engine.threads = 2;
  o.prompt_tokens = 8;
  o.steps = 2;
  o.streams = {1, 3};
  o.repeats = 1;
  o.bandwidth = 10e9;
  o.int8_peak = 1e12;
  o.float_peak = 1e11;
  const auto report = profile_steps(o);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->points.size(), 3U);
  EXPECT_TRUE(report->points[2].prefill);
  EXPECT_EQ(report->points[2].rows, 8);
  for (const ProfilePoint& p : report->points) {
    double operations = 0, layers = 0, bytes = 0, arithmetic = 0;
    for (const ProfileEntry& e : p.operations) operations += e.seconds, bytes += e.bytes, arithmetic += e.operations;
    for (const ProfileEntry& e : p.layers) layers += e.seconds;
    EXPECT_NEAR(operations, layers, 1e-9);
    EXPECT_LE(operations + p.wait_seconds, p.seconds * 1.001);
    EXPECT_GT(operations, 0);
    // One expert: three matrices of 1024 * 384 in Q4_0.
    EXPECT_GT(bytes, p.distinct_experts * 3 * 1024 * 384 * 18 / 32.0);
    EXPECT_GT(arithmetic, p.rows * 2 * 8 * 3 * 1024 * 384);
    EXPECT_GT(p.core_use, 0);
    EXPECT_LE(p.core_use, 1.001);
    EXPECT_NE(p.explanation.find("roofline"), std::string::npos);
  }
  EXPECT_EQ(report->points[0].distinct_experts, 8);
  EXPECT_GT(report->points[1].distinct_experts, 8);
  EXPECT_EQ(report->points[0].operations.front().name.find("blk"), std::string::npos);
  EXPECT_NE(to_markdown(*report).find("| ffn_experts "), std::string::npos);
  const auto json = nlohmann::json::parse(to_json(*report));
  EXPECT_EQ(json["points"].size(), 3U);
  EXPECT_EQ(json["points"][0]["operations"].size(), report->points[0].operations.size());
}

TEST(profile, a_page_shows_each_point_and_escapes_names) {
  ProfileReport r;
  r.model = "a<b>";
  r.threads = 2;
  r.points.resize(2);
  r.points[0].streams = 4;
  r.points[0].seconds = 0.002;
  r.points[0].rows = 4;
  r.points[0].operations = {{"ffn_experts", "experts", 0.0015, 3e6, 0, 0.0012, 7}};
  r.points[0].layers = {{"0", "", 0.0015, 3e6, 0, 0.0012, 7}};
  r.points[0].explanation = "reads & waits";
  r.points[1] = r.points[0];
  r.points[1].prefill = true;
  const std::string page = to_html(r);
  EXPECT_EQ(page.find("a<b>"), std::string::npos);
  EXPECT_NE(page.find("<h1>a&lt;b&gt;"), std::string::npos);
  EXPECT_NE(page.find("reads &amp; waits"), std::string::npos);
  EXPECT_NE(page.find("4 streams: 2.000 ms a step, 2000.0 tok/s"), std::string::npos);
  EXPECT_NE(page.find("width:75.00%;background:#1f7a5c\" title=\"ffn_experts: 1.500 ms, 75.0%"), std::string::npos);
  EXPECT_NE(page.find("<td>80%</td><td>7</td>"), std::string::npos);
  EXPECT_NE(page.find("1.500 (80%)"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // nothing is loaded from elsewhere
  r.threads = 0;                                    // a device: kernels that were timed alone
  const std::string device = to_html(r);
  EXPECT_NE(device.find("<td>1.500</td><td>7</td><td>214.3</td>"), std::string::npos);
  EXPECT_EQ(device.find("waiting"), std::string::npos);
  EXPECT_EQ(device.find("Layers"), std::string::npos);
}

TEST(profile, of_a_device_lists_kernels_without_what_is_not_known) {
  ProfileReport r;
  r.model = "m";
  r.device = "cuda:0";
  r.bandwidth = 4.5e12;
  r.points.resize(1);
  ProfilePoint& p = r.points[0];
  p.streams = 4;
  p.seconds = 0.002;
  p.rows = 4;
  p.roofline_seconds = 0.0005;
  ProfileEntry e;
  e.name = "gate_up";
  e.seconds = 0.00096;
  e.jobs = 48;
  p.operations.push_back(e);
  const std::string text = to_markdown(r);
  EXPECT_NE(text.find("the device reads 4500.0 GB/s"), std::string::npos);
  EXPECT_NE(text.find("4 streams: 2.000 ms a step, 2000.0 tok/s, 25% of roofline\n"), std::string::npos);
  EXPECT_NE(text.find("|    0.960 |       48 |    20.0 |"), std::string::npos);
  EXPECT_EQ(text.find("Layers"), std::string::npos);
  EXPECT_EQ(text.find("cores"), std::string::npos);
}

TEST(profile, refuses_what_it_cannot_do) {
  ProfileOptions o;
  o.engine.model = "nowhere.gguf";
  o.streams = {0};
  EXPECT_NE(profile_steps(o).error().message.find("-B"), std::string::npos);
  o.streams = {1};
  EXPECT_FALSE(profile_steps(o));
}

}  // namespace
}  // namespace cohort
