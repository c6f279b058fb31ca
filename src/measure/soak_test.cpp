#include "measure/soak.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/test_sanitizer.h"
#include "measure/synth.h"

namespace cohort {
namespace {

SoakOptions small_soak(const TestFolder& folder) {
  SynthOptions synth;
  synth.config = "qwen3-moe-mini";
  synth.type = "q4_0";
  synth.output = folder.path() / "mini.gguf";
  synth.layers = 1;
  if (const auto made = synthesise(synth); !made) throw std::runtime_error(made.error().message);
  SoakOptions o;
  o.engine.model = synth.output;
  o.engine.threads = 2;
  o.engine.max_streams = 6;
  o.seconds = 2;
  o.requests = 8;
  o.positions = 256;
  o.alone = alone_options(o.engine);
  return o;
}

TEST(soak, random_company_changes_nothing) {
  const TestFolder folder;
  const auto report = soak(small_soak(folder));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->differing, 0) << to_text(*report);
  EXPECT_EQ(report->lost_pages, 0) << to_text(*report);
  EXPECT_TRUE(kSanitizersMemory || !report->grew()) << to_text(*report);
  EXPECT_GT(report->finished, 0);
  EXPECT_EQ(report->compared_logits, report->tokens);
  EXPECT_GT(report->reused_tokens, 0);
  EXPECT_GT(report->preemptions, 0);
}

TEST(soak, another_arithmetic_is_found) {
  const TestFolder folder;
  SoakOptions o = small_soak(folder);
  o.alone.backend = "reference";
  o.alone.activations = "float";
  o.requests = 1;
  o.positions = 16;
  o.seconds = 0.2;
  const auto report = soak(o);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->passed());
  EXPECT_GT(report->differing, 0);
  EXPECT_NE(report->first.find("request 0"), std::string::npos) << report->first;
}

TEST(soak, absurd_options_are_refused) {
  SoakOptions o;
  o.seconds = 0;
  EXPECT_NE(soak(o).error().message.find("--soak"), std::string::npos);
}

}  // namespace
}  // namespace cohort
