// The promise: a stream's logits are the same bits alone, in any company, however its prompt is cut, on any number of
// threads.
#include <gtest/gtest.h>

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
  std::vector<float> logits;  // of every generated token
};

std::vector<int32_t> prompt_of(int32_t index, int32_t vocabulary) {
  std::vector<int32_t> prompt;
  const int32_t length = 3 + index * 5 % 40;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((7 + index * 131 + i * 17) % vocabulary);
  return prompt;
}

/// Runs prompts [first, first + count) together; the result by prompt index.
std::map<int32_t, Stream> run(EngineOptions options, int32_t first, int32_t count, float temperature, int32_t tokens) {
  options.context = 128;
  options.max_streams = std::max(count, 1);
  auto engine = Engine::create(options);
  if (!engine) throw std::runtime_error(engine.error().message);
  const int32_t vocabulary = (*engine)->model().program().vocabulary;
  std::map<SequenceId, int32_t> index;
  for (int32_t i = first; i < first + count; ++i) {
    SequenceRequest request;
    request.prompt = prompt_of(i, vocabulary);
    request.max_tokens = tokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = 1000U + static_cast<uint64_t>(i);
    auto id = (*engine)->submit(std::move(request));
    if (!id) throw std::runtime_error(id.error().message);
    index[*id] = i;
  }
  std::map<int32_t, Stream> streams;
  while (!(*engine)->idle()) {
    auto report = (*engine)->step();
    if (!report) throw std::runtime_error(report.error().message);
    for (size_t e = 0; e < report->events.size(); ++e) {
      Stream& stream = streams[index.at(report->events[e].sequence)];
      stream.tokens.push_back(report->events[e].sample.token);
      const auto row = (*engine)->logits_of(e);
      stream.logits.insert(stream.logits.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ((*engine)->capacity().free_pages, (*engine)->capacity().pages) << "a page leaked";
  return streams;
}

void expect_same(const Stream& a, const Stream& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a.logits[i], &b.logits[i], sizeof(float)), 0)
        << what << ": logit " << i << " is " << a.logits[i] << " and " << b.logits[i];
  }
}

struct Case {
  std::string name, file, backend;
  int32_t tokens;
};

class Company : public ::testing::TestWithParam<Case> {};

TEST_P(Company, NeverChangesABit) {
  EngineOptions base;
  base.model = fs::path(COHORT_SOURCE_DIR) / GetParam().file;
  base.backend = GetParam().backend;
  base.threads = 2;
  if (!fs::exists(base.model)) GTEST_SKIP() << base.model << " is not there";
  for (const float temperature : {0.0F, 0.9F}) {
    SCOPED_TRACE(temperature);
    const int32_t tokens = GetParam().tokens;
    constexpr int32_t kStreams = 8;
    const auto together = run(base, 0, kStreams, temperature, tokens);
    for (const int32_t i : {0, 3, 7})
      expect_same(run(base, i, 1, temperature, tokens).at(i), together.at(i), "alone, stream " + std::to_string(i));
    for (const int32_t chunk : {1, 7}) {
      EngineOptions chunked = base;
      chunked.prefill_rows = chunk;
      const auto result = run(chunked, 0, kStreams, temperature, tokens);
      for (const auto& [i, stream] : result) expect_same(stream, together.at(i), "chunks of " + std::to_string(chunk));
    }
    EngineOptions one_thread = base;
    one_thread.threads = 1;
    for (const auto& [i, stream] : run(one_thread, 0, kStreams, temperature, tokens))
      expect_same(stream, together.at(i), "one thread");
    EngineOptions serial = base;
    serial.batching = false;
    for (const auto& [i, stream] : run(serial, 0, kStreams, temperature, tokens))
      expect_same(stream, together.at(i), "off-switch");
  }
}

TEST_P(Company, FastEqualsReference) {
  if (GetParam().backend == "reference") GTEST_SKIP() << "this is the reference";
  EngineOptions fast;
  fast.model = fs::path(COHORT_SOURCE_DIR) / GetParam().file;
  fast.threads = 2;
  if (!fs::exists(fast.model)) GTEST_SKIP() << fast.model << " is not there";
  EngineOptions reference = fast;
  reference.backend = "reference";
  const auto expected = run(reference, 0, 3, 0, 4);
  for (const char* isa : {"scalar", "avx2", "avx512", "amx", "neon"}) {
    fast.isa = isa;
    if (auto engine = Engine::create(fast); !engine && engine.error().code == ErrorCode::unsupported) continue;
    for (const auto& [i, stream] : run(fast, 0, 3, 0, 4)) expect_same(stream, expected.at(i), isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Determinism, Company,
                         ::testing::Values(Case{"TinyReference", "tests/golden/gguf/qwen3_moe-bf16.gguf", "reference",
                                                6},
                                           Case{"TinyMoe", "tests/golden/gguf/qwen3_moe-bf16.gguf", "fast", 6},
                                           Case{"TinyMixtral", "tests/golden/gguf/mixtral-bf16.gguf", "fast", 6},
                                           Case{"TinyQwen2", "tests/golden/gguf/qwen2-f32.gguf", "fast", 6},
                                           Case{"TinyLlama", "tests/golden/gguf/llama-f32.gguf", "fast", 6},
                                           Case{"TinyGemma", "tests/golden/gguf/gemma4-bf16.gguf", "fast", 12},
                                           Case{"TinyGptOss", "tests/golden/gguf/gpt_oss-bf16.gguf", "fast", 12},
                                           Case{"Libris", "models/libris-q8_0.gguf", "fast", 16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort
