#include "cli/run_streams.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"

namespace cohort::cli {
namespace {

TEST(RunStreams, CtrlCEndsWhatIsUnfinished) {
  EngineOptions options;
  options.model = std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";
  options.threads = 1;
  auto engine = Engine::create(options);
  ASSERT_TRUE(engine) << engine.error().message;
  auto text = load_text_model((*engine)->model());
  ASSERT_TRUE(text) << text.error().message;

  RunOptions run;
  run.sampling.temperature = 0;
  run.ignore_eos = true;
  run.tokens = 500;
  // The first stream ends at its context; the second one has tokens left then.
  std::vector<Stream> streams{{.prompt = std::string(400, 'a')}, {.prompt = "b"}};
  const InterruptGuard guard;
  const auto totals = run_streams(**engine, *text, run, false, streams, [&](size_t, const std::string&) {
    if (!streams[0].finish_reason.empty() && !InterruptGuard::interrupted()) std::raise(SIGINT);
  });
  ASSERT_TRUE(totals) << totals.error().message;
  EXPECT_TRUE(InterruptGuard::interrupted());
  EXPECT_EQ(streams[0].finish_reason, "context");
  EXPECT_EQ(streams[1].finish_reason, "interrupted");
  EXPECT_GT(streams[1].tokens.size(), 0U);
  EXPECT_LT(streams[1].tokens.size(), 500U);
  EXPECT_EQ(to_json(streams[1])["finish_reason"], "interrupted");
  EXPECT_TRUE((*engine)->idle());
  InterruptGuard::set(InterruptGuard::Mode::ask);
  EXPECT_FALSE(InterruptGuard::interrupted());
}

}  // namespace
}  // namespace cohort::cli
