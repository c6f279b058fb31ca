// Guesses decide when a token comes, never which: whoever guesses, however long the windows are and whoever is in the
// batch, a stream's tokens and the logits that they come from are those without guesses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "cohort/engine.h"
#include "models/model.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

struct Stream {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  FinishReason finish = FinishReason::none;
  bool operator==(const Stream& other) const {
    return tokens == other.tokens && finish == other.finish && logits.size() == other.logits.size() &&
           std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

struct Outcome {
  std::map<size_t, Stream> streams;
  int64_t steps = 0, guesses = 0, right = 0, guessed_events = 0;
};

fs::path model(const char* name) {
  return fs::path(COHORT_SOURCE_DIR) / "models" / name;
}

EngineOptions options() {
  EngineOptions o;
  o.model = model("libris-q8_0.gguf");
  o.threads = 2;
  o.context = 256;
  o.device = "cpu";
  o.draft_always = true;
  return o;
}

/// Prompts that repeat themselves and prompts that do not.
std::vector<SequenceRequest> requests(float temperature) {
  std::vector<SequenceRequest> out;
  for (int32_t i = 0; i < 5; ++i) {
    SequenceRequest r;
    for (int32_t k = 0; k < 10 + 9 * i; ++k)
      r.prompt.push_back(i % 2 == 0 ? 300 + k % (3 + i) : (i * 977 + k * 131) % 8000);
    r.max_tokens = 40 + i;
    r.sampling.temperature = temperature;
    r.sampling.seed = 77 + static_cast<uint64_t>(i);
    if (i == 3) r.sampling.repeat_penalty = 1.2F;
    if (i == 4) r.sampling.top_k = 0;
    out.push_back(std::move(r));
  }
  return out;
}

Outcome run(const EngineOptions& o, const std::vector<SequenceRequest>& requests) {
  auto engine = Engine::create(o);
  if (!engine) throw std::runtime_error(engine.error().message);
  std::map<SequenceId, size_t> index;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto id = (*engine)->submit(requests[i]);
    if (!id) throw std::runtime_error(id.error().message);
    index[*id] = i;
  }
  Outcome out;
  while (!(*engine)->idle()) {
    auto report = (*engine)->step();
    if (!report) throw std::runtime_error(report.error().message);
    ++out.steps;
    out.guesses += report->guesses;
    out.right += report->right_guesses;
    for (size_t e = 0; e < report->events.size(); ++e) {
      const TokenEvent& event = report->events[e];
      Stream& stream = out.streams[index.at(event.sequence)];
      EXPECT_EQ(event.index, static_cast<int32_t>(stream.tokens.size()));
      out.guessed_events += event.guessed ? 1 : 0;
      stream.tokens.push_back(event.sample.token);
      stream.finish = event.finish;
      const auto row = (*engine)->logits_of(e);
      stream.logits.insert(stream.logits.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ(out.guessed_events, out.right);
  EXPECT_EQ((*engine)->capacity().free_pages, (*engine)->capacity().pages) << "a page leaked";
  return out;
}

class Speculation : public ::testing::TestWithParam<std::string> {
 protected:
  static EngineOptions drafting(int32_t tokens) {
    EngineOptions o = options();
    o.draft = GetParam() == "lookup" ? "lookup" : model(GetParam().c_str()).string();
    o.draft_tokens = tokens;
    return o;
  }
  /// What Libris writes at a temperature does not repeat itself, so that nothing can be looked up.
  static bool guesses_right_at(float temperature) { return temperature == 0 || GetParam() != "lookup"; }
};

TEST_P(Speculation, NeverChangesABit) {
  for (const float temperature : {0.0F, 0.9F}) {
    SCOPED_TRACE(temperature);
    const auto asked = requests(temperature);
    const Outcome plain = run(options(), asked);
    EXPECT_EQ(plain.guesses, 0);
    for (const int32_t tokens : {1, 3, 7}) {
      SCOPED_TRACE(tokens);
      const Outcome guessed = run(drafting(tokens), asked);
      EXPECT_TRUE(guessed.streams == plain.streams);
      EXPECT_GT(guessed.guesses, 0);
      if (!guesses_right_at(temperature)) continue;
      EXPECT_GT(guessed.right, 0);
      EXPECT_LT(guessed.steps, plain.steps);
    }
  }
}

TEST_P(Speculation, NeverChangesABitInOtherWays) {
  const auto asked = requests(guesses_right_at(0.7F) ? 0.7F : 0.0F);
  const Outcome plain = run(options(), asked);
  const auto same = [&](const EngineOptions& o, const char* what) {
    const Outcome guessed = run(o, asked);
    EXPECT_TRUE(guessed.streams == plain.streams) << what;
    EXPECT_GT(guessed.right, 0) << what;
  };
  EngineOptions o = drafting(4);
  o.draft_always = false;
  EXPECT_TRUE(run(o, asked).streams == plain.streams) << "as many as are worth it";
  o = drafting(4);
  o.batching = false;
  same(o, "one by one");
  o = drafting(5);
  o.kv_positions = 8 * 32;  // less than the streams need: they give way to each other
  o.context = 128;
  same(o, "few pages");
  o.prefix_cache = false;
  same(o, "few pages, no prefix cache");
  o = drafting(4);
  o.prefill_rows = 5;
  same(o, "prompts in pieces");
}

TEST_P(Speculation, EndsWhereItWouldEnd) {
  auto asked = requests(0);
  const Outcome free = run(options(), asked);
  // A token that comes in the middle of a window is made an end token.
  for (size_t i = 0; i < asked.size(); ++i) asked[i].end_tokens = {free.streams.at(i).tokens[11 + i]};
  const Outcome plain = run(options(), asked);
  EXPECT_TRUE(run(drafting(7), asked).streams == plain.streams);
  for (const auto& [i, stream] : plain.streams) EXPECT_EQ(stream.finish, FinishReason::end_token) << i;
  // A context that ends before max_tokens.
  EngineOptions small = options(), drafted = drafting(7);
  small.context = drafted.context = 64;
  const auto cut = run(small, requests(0));
  EXPECT_TRUE(run(drafted, requests(0)).streams == cut.streams);
  EXPECT_EQ(cut.streams.at(4).finish, FinishReason::context);
}

INSTANTIATE_TEST_SUITE_P(drafts, Speculation, ::testing::Values("lookup", "libris-draft-q8_0.gguf", "libris-q8_0.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(SpeculationOptions, TheModelItselfGuessesRight) {
  EngineOptions o = options();
  o.draft = o.model.string();
  o.draft_tokens = 3;
  for (const float temperature : {0.0F, 1.0F}) {
    auto asked = requests(temperature);
    asked.resize(1);
    asked[0].max_tokens = 41;
    const Outcome guessed = run(o, asked);
    EXPECT_EQ(guessed.right, guessed.guesses);
    EXPECT_EQ(guessed.steps, 1 + 10);
  }
}

TEST(SpeculationOptions, RefusesWhatCannotBeADraft) {
  EngineOptions o = options();
  o.draft = "no-such-model.gguf";
  auto engine = Engine::create(o);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("no-such-model.gguf"), std::string::npos) << engine.error().message;
  o.draft = "";
  engine = Engine::create(o);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("--draft"), std::string::npos);
  o.draft = "lookup";
  for (const int32_t tokens : {0, 8}) {
    o.draft_tokens = tokens;
    engine = Engine::create(o);
    ASSERT_FALSE(engine);
    EXPECT_NE(engine.error().message.find("expected 1 to 7"), std::string::npos) << engine.error().message;
  }
}

class SpeculationSliding : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, SpeculationSliding, ::testing::Values("gemma4", "gpt_oss"));

/// Layers that see 8 positions beside layers that see all: guesses of the model itself, which are right, and windows
/// that reach over the edge of what a layer sees.
TEST_P(SpeculationSliding, WindowsNeverChangeABit) {
  EngineOptions o = options();
  o.model = fs::path(COHORT_SOURCE_DIR) / ("tests/golden/gguf/" + std::string(GetParam()) + "-bf16.gguf");
  std::vector<SequenceRequest> asked;
  for (int32_t i = 0; i < 4; ++i) {
    SequenceRequest r;
    for (int32_t k = 0; k < 3 + 11 * i; ++k) r.prompt.push_back(5 + (i * 97 + k * 31) % 270);
    r.max_tokens = 30 + i;
    r.sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    r.sampling.seed = 5 + static_cast<uint64_t>(i);
    asked.push_back(std::move(r));
  }
  for (const char* kv_type : {"f16", "q8_0"}) {
    SCOPED_TRACE(kv_type);
    o.draft = "off";
    o.kv_type = kv_type;
    const Outcome plain = run(o, asked);
    o.draft = o.model.string();
    for (const int32_t tokens : {1, 4, 7}) {
      SCOPED_TRACE(tokens);
      o.draft_tokens = tokens;
      const Outcome guessed = run(o, asked);
      EXPECT_TRUE(guessed.streams == plain.streams);
      EXPECT_GT(guessed.right, 0);
      EXPECT_LT(guessed.steps, plain.steps);
    }
  }
}

}  // namespace
}  // namespace cohort
