// Block diffusion through the engine: a stream's tokens are the same alone, in any company, however its prompt is cut,
// on any number of threads, with pages taken away from it; and how streams end.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/test_folder.h"
#include "cohort/engine.h"
#include "models/model.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kCanvas = 12;  // of the model below
constexpr int32_t kContext = 128;

struct Stream {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
};

struct Result {
  std::map<int32_t, Stream> streams;  // by prompt
  int64_t preemptions = 0, canvases = 0, canvas_steps = 0, reused = 0, most_rows = 0;
};

EngineOptions base_options() {
  EngineOptions o;
  o.model = fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/diffusion_gemma-bf16.gguf";
  o.threads = 2;
  o.context = kContext;
  o.max_streams = 5;
  o.diffusion.max_steps = 5;
  return o;
}

SequenceRequest request_of(int32_t index, int32_t tokens) {
  SequenceRequest request;
  const int32_t length = 3 + index * 17 % 40;
  // Some prompts begin alike, so that they share pages.
  for (int32_t i = 0; i < length; ++i) request.prompt.push_back((7 + index / 2 * 131 + i * 17) % 320);
  request.max_tokens = tokens;
  request.sampling.seed = 1000U + static_cast<uint64_t>(index);
  return request;
}

void step(Engine& engine, const std::map<SequenceId, int32_t>& index, Result& result) {
  const auto report = engine.step();
  if (!report) throw std::runtime_error(report.error().message);
  result.preemptions += report->preemptions;
  result.canvases += report->canvases;
  result.canvas_steps += report->canvas_steps;
  result.reused += report->reused_tokens;
  result.most_rows = std::max(result.most_rows, report->rows);
  for (const TokenEvent& event : report->events) {
    Stream& stream = result.streams[index.at(event.sequence)];
    EXPECT_EQ(event.finish == FinishReason::failed, false) << event.error.message;
    EXPECT_EQ(event.index, static_cast<int32_t>(stream.tokens.size()));
    stream.tokens.push_back(event.sample.token);
    stream.finish = event.finish;
  }
}

Result run_requests(const EngineOptions& options, const std::map<int32_t, SequenceRequest>& requests) {
  auto engine = Engine::create(options);
  if (!engine) throw std::runtime_error(engine.error().message);
  std::map<SequenceId, int32_t> index;
  for (const auto& [i, request] : requests) {
    auto id = (*engine)->submit(request);
    if (!id) throw std::runtime_error(id.error().message);
    index[*id] = i;
  }
  Result result;
  while (!(*engine)->idle()) step(**engine, index, result);
  EXPECT_EQ((*engine)->capacity().free_pages, (*engine)->capacity().pages) << "a page leaked";
  return result;
}

Result run(const EngineOptions& options, int32_t first, int32_t count, int32_t tokens) {
  std::map<int32_t, SequenceRequest> requests;
  for (int32_t i = first; i < first + count; ++i) requests[i] = request_of(i, tokens);
  return run_requests(options, requests);
}

void expect_same(const Result& got, const Result& expected, const std::string& what) {
  for (const auto& [i, stream] : got.streams) {
    EXPECT_EQ(stream.tokens, expected.streams.at(i).tokens) << what << ", stream " << i;
    EXPECT_EQ(stream.finish, expected.streams.at(i).finish) << what << ", stream " << i;
  }
}

constexpr int32_t kStreams = 5, kTokens = 30;

TEST(diffusion, company_never_changes_a_token) {
  const Result together = run(base_options(), 0, kStreams, kTokens);
  ASSERT_EQ(together.streams.size(), static_cast<size_t>(kStreams));
  for (const auto& [i, stream] : together.streams) {
    EXPECT_EQ(stream.tokens.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(stream.finish, FinishReason::length);
  }
  EXPECT_EQ(together.canvases, kStreams * 3);
  EXPECT_EQ(together.canvas_steps, kStreams * 3 * 5);  // random logits are never sure
  EXPECT_GT(together.most_rows, 3 * kCanvas);          // canvases run beside each other
  for (int32_t i = 0; i < kStreams; ++i) expect_same(run(base_options(), i, 1, kTokens), together, "alone");
  for (const int32_t chunk : {1, 7, 13}) {
    EngineOptions chunked = base_options();
    chunked.prefill_rows = chunk;
    expect_same(run(chunked, 0, kStreams, kTokens), together, "chunks of " + std::to_string(chunk));
  }
  for (const int32_t threads : {1, 3}) {
    EngineOptions other = base_options();
    other.threads = threads;
    expect_same(run(other, 0, kStreams, kTokens), together, "threads " + std::to_string(threads));
  }
  EngineOptions serial = base_options();
  serial.batching = false;
  expect_same(run(serial, 0, kStreams, kTokens), together, "off-switch");
  EngineOptions few = base_options();
  few.max_streams = 2;
  expect_same(run(few, 0, kStreams, kTokens), together, "two at a time");
  EngineOptions cold = base_options();
  cold.prefix_cache = false;
  expect_same(run(cold, 0, kStreams, kTokens), together, "no prefix cache");
}

TEST(diffusion, every_backend_and_instruction_set_gives_the_same_tokens) {
  EngineOptions reference = base_options();
  reference.backend = "reference";
  const Result expected = run(reference, 0, 3, kTokens);
  for (const char* isa : {"scalar", "avx2", "avx512", "amx", "neon"}) {
    EngineOptions fast = base_options();
    fast.isa = isa;
    if (auto engine = Engine::create(fast); !engine && engine.error().code == ErrorCode::unsupported) continue;
    expect_same(run(fast, 0, 3, kTokens), expected, isa);
  }
}

TEST(diffusion, a_canvas_outlives_the_loss_of_its_pages) {
  constexpr int32_t kMany = 60;
  const Result plenty = run(base_options(), 0, kStreams, kMany);
  EngineOptions tight = base_options();
  tight.kv_positions = 128;  // a stream alone takes up to 97 of them
  const Result result = run(tight, 0, kStreams, kMany);
  EXPECT_GT(result.preemptions, 0);
  expect_same(result, plenty, "few pages");
}

TEST(diffusion, seeds_and_choices_differ) {
  SequenceRequest one = request_of(3, kCanvas), other = one, choice = one;
  other.sampling.seed += 1;
  choice.sampling.stream = 1;
  const Result result = run_requests(base_options(), {{0, one}, {1, one}, {2, other}, {3, choice}});
  EXPECT_EQ(result.streams.at(0).tokens, result.streams.at(1).tokens);
  EXPECT_NE(result.streams.at(0).tokens, result.streams.at(2).tokens);
  EXPECT_NE(result.streams.at(0).tokens, result.streams.at(3).tokens);
}

TEST(diffusion, ends_inside_of_a_canvas) {
  const Result whole = run(base_options(), 4, 1, kTokens);
  const std::vector<int32_t>& tokens = whole.streams.at(4).tokens;
  for (const int32_t wanted : {1, 11, 12, 13, 25}) {
    const Result cut = run(base_options(), 4, 1, wanted);
    EXPECT_EQ(cut.streams.at(4).tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + wanted));
    EXPECT_EQ(cut.streams.at(4).finish, FinishReason::length);
  }
  SequenceRequest ending = request_of(4, kTokens);
  ending.end_tokens = {tokens[17]};
  const Result ended = run_requests(base_options(), {{4, ending}});
  const auto first = std::ranges::find(tokens, tokens[17]) - tokens.begin();
  EXPECT_EQ(ended.streams.at(4).tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + first + 1));
  EXPECT_EQ(ended.streams.at(4).finish, FinishReason::end_token);
}

TEST(diffusion, ends_where_no_canvas_fits_any_more) {
  EngineOptions options = base_options();
  SequenceRequest request = request_of(0, 1000);
  request.prompt.resize(100, 5);
  const Result result = run_requests(options, {{0, request}});
  EXPECT_EQ(result.streams.at(0).tokens.size(), 24U);  // 100 + 2 * 12 of 128 positions
  EXPECT_EQ(result.streams.at(0).finish, FinishReason::context);
}

TEST(diffusion, a_cancelled_stream_leaves_nothing_behind) {
  auto engine = Engine::create(base_options());
  ASSERT_TRUE(engine) << engine.error().message;
  std::map<SequenceId, int32_t> index;
  for (int32_t i = 0; i < 3; ++i) {
    const auto id = (*engine)->submit(request_of(i, kTokens));
    ASSERT_TRUE(id);
    index[*id] = i;
  }
  Result result;
  for (int i = 0; i < 4; ++i) step(**engine, index, result);
  const auto running = (*engine)->sequences();
  ASSERT_EQ(running.size(), 3U);
  EXPECT_TRUE(running[1].decoding);
  (*engine)->cancel(running[1].id);
  while (!(*engine)->idle()) step(**engine, index, result);
  EXPECT_EQ(result.streams.count(1), 0U);
  EXPECT_EQ((*engine)->capacity().free_pages, (*engine)->capacity().pages);
  expect_same(result, run(base_options(), 0, kStreams, kTokens), "beside a cancelled one");
}

TEST(diffusion, refuses_what_makes_no_sense) {
  const auto engine = Engine::create(base_options());
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->diffusion().canvas_length, kCanvas);
  EXPECT_EQ((*engine)->diffusion().max_steps, 5);
  const auto message = [&](const std::function<void(SequenceRequest&)>& change) {
    SequenceRequest request = request_of(0, 10);
    change(request);
    const auto checked = (*engine)->check(request);
    return checked ? std::string("accepted") : checked.error().message;
  };
  EXPECT_EQ(message([](SequenceRequest&) {}), "accepted");
  EXPECT_NE(message([](auto& r) { r.sampling.logprobs = 0; }).find("logprobs"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.sampling.repeat_penalty = 1.1F; }).find("repeat_penalty"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.sampling.presence_penalty = 1; }).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.sampling.logit_bias = {{3, 1.0F}}; }).find("logit_bias"), std::string::npos);
  EXPECT_NE(
      message([](auto& r) { r.prompt.resize(kContext - kCanvas + 1, 1); }).find("at most 116 beside a canvas of 12"),
      std::string::npos);
  EXPECT_EQ(message([](auto& r) { r.prompt.resize(kContext - kCanvas, 1); }), "accepted");

  EngineOptions draft = base_options();
  draft.draft = "lookup";
  const auto guessing = Engine::create(draft);
  ASSERT_FALSE(guessing);
  EXPECT_NE(guessing.error().message.find("--draft"), std::string::npos) << guessing.error().message;
  EngineOptions drafted = base_options();
  drafted.model = fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/gemma4-bf16.gguf";
  drafted.diffusion = {};
  drafted.draft = base_options().model.string();
  const auto by_canvas = Engine::create(drafted);
  ASSERT_FALSE(by_canvas);
  EXPECT_NE(by_canvas.error().message.find("--draft"), std::string::npos) << by_canvas.error().message;
  EngineOptions other = base_options();
  other.model = fs::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";
  const auto plain = Engine::create(other);
  ASSERT_FALSE(plain);
  EXPECT_NE(plain.error().message.find("--diffusion-*"), std::string::npos) << plain.error().message;
}

/// The model of the other tests, whose canvases have one token.
TEST(diffusion, a_canvas_of_one_token_is_a_canvas) {
  std::ifstream file(base_options().model, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string key = "diffusion.canvas_length";
  const size_t value = bytes.find(key) + key.size() + 4;  // behind the key is the value's type
  ASSERT_EQ(bytes.at(value), kCanvas);
  bytes[value] = 1;
  const TestFolder folder;
  EngineOptions options = base_options();
  options.model = folder.write("one.gguf", bytes);
  const Result together = run(options, 0, kStreams, 9);
  EXPECT_EQ(together.canvases, kStreams * 9);
  EXPECT_EQ(together.canvas_steps, kStreams * 9 * 5);
  for (int32_t i = 0; i < kStreams; ++i) expect_same(run(options, i, 1, 9), together, "alone");

  const auto engine = Engine::create(options);
  ASSERT_TRUE(engine) << engine.error().message;
  SequenceRequest request = request_of(0, 9);
  request.sampling.repeat_penalty = 1.1F;
  const auto checked = (*engine)->check(request);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("repeat_penalty"), std::string::npos) << checked.error().message;
}

}  // namespace
}  // namespace cohort
