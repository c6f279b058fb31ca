// The promise, through the API: an answer has the same bytes alone and in company, with a warm and a cold prefix cache,
// and with sequences preempted, for
// want of pages or because others are more urgent, and read again.
#include <atomic>
#include <random>

#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;

/// Seeded and greedy requests of mixed lengths; groups share beginnings of several pages.
std::vector<json> make_requests(int count) {
  std::vector<json> requests;
  for (int i = 0; i < count; ++i) {
    std::vector<int> prompt;
    const int shared = i % 3 == 0 ? 96 : i % 3 == 1 ? 40 : 0;
    for (int k = 0; k < shared; ++k) prompt.push_back(3 + (k * 7 + i % 3) % 250);
    for (int k = 0; k < 1 + i * 13 % 60; ++k) prompt.push_back(3 + (k * 11 + i * 29) % 250);
    json request{{"prompt", prompt}, {"max_tokens", 5 + i * 37 % 120}, {"seed", i}, {"logprobs", 2}};
    if (i % 2 == 0) request["temperature"] = 0;
    if (i % 5 == 0) request["frequency_penalty"] = 0.5;
    if (i % 7 == 0) request["n"] = 2;
    if (i % 11 == 0) request["grammar"] = "root ::= ([a-z]{1,7} [ ,])*";
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<json> run(const TestServer& server, const std::vector<json>& requests, size_t concurrency) {
  std::vector<json> answers(requests.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < concurrency; ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < requests.size(); i = next++) {
        const Answer answer = server.post("/v1/completions", requests[i]);
        answers[i] = answer.status == 200 ? answer.json()["choices"] : json(answer.body);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(server.no_page_leaked());
  return answers;
}

void expect_same(const std::vector<json>& a, const std::vector<json>& b, const char* what) {
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]) << what << ", request " << i;
}

TEST(Determinism, CompanyCachePreemptionAndPrioritiesNeverChangeAByte) {
  const std::vector<json> requests = make_requests(200);
  ServerOptions options;
  options.engine.max_streams = 1;
  options.engine.prefix_cache = false;
  const std::vector<json> alone = run(TestServer(options), requests, 1);
  for (const json& answer : alone) ASSERT_TRUE(answer.is_array()) << answer;

  options.engine.max_streams = 32;
  {
    const TestServer server(options);
    expect_same(run(server, requests, 32), alone, "32 clients, no prefix cache");
  }
  options.engine.prefix_cache = true;
  {
    const TestServer server(options);
    expect_same(run(server, requests, 32), alone, "32 clients, cold prefix cache");
    expect_same(run(server, requests, 32), alone, "32 clients, warm prefix cache");
    expect_same(run(server, requests, 1), alone, "1 client, warm prefix cache");
    EXPECT_GT(server.view().reused_tokens, 0U);
  }
  for (const bool cache : {false, true}) {
    options.engine.prefix_cache = cache;
    options.engine.kv_positions = 11 * 32;  // the longest request needs 9 pages
    options.engine.prefill_rows = 24;
    const TestServer server(options);
    expect_same(run(server, requests, 32), alone, "preempted");
    EXPECT_GT(server.view().preemptions, 0U) << "the test forces none; make the pages fewer";
  }
  // Any order of urgency, so that streams give way to newcomers again and again, for their places and for their pages.
  std::mt19937 random(17);
  for (const bool cache : {false, true}) {
    for (const double aging : {0.0, 0.05}) {
      options.engine.prefix_cache = cache;
      options.engine.max_streams = 6;
      options.engine.priority_aging_s = aging;
      std::vector<json> urgent = requests;
      for (json& request : urgent) request["priority"] = static_cast<int>(random() % 7) - 3;
      const TestServer server(options);
      expect_same(run(server, urgent, 32), alone, "random priorities");
      // How many depends on when the clients come: 18 where the thread sanitizer slows everything, more otherwise.
      EXPECT_GT(server.view().preemptions, 0U) << "no stream gave way";
    }
  }
}

TEST(Determinism, StreamsEqualWholes) {
  const TestServer server;
  for (json request : make_requests(12)) {
    const json whole = server.post("/v1/completions", request).json();
    request["stream"] = true;
    std::map<int, std::string> texts;
    const Answer answer = server.post("/v1/completions", request);
    for (const std::string& event : events_of(answer.body)) {
      if (event == "[DONE]") continue;
      const json chunk = json::parse(event);
      for (const json& choice : chunk["choices"])
        texts[choice["index"].get<int>()] += choice["text"].get<std::string>();
    }
    for (const json& choice : whole["choices"]) EXPECT_EQ(texts[choice["index"].get<int>()], choice["text"]);
  }
}

}  // namespace
}  // namespace cohort::server
