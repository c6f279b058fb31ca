// The overlapped loop against the plain one: the same events, whoever steps and however they are handed over.
#include <condition_variable>
#include <deque>

#include "fixture.h"
#include "server/engine_loop.h"

namespace cohort::server {
namespace {

using Events = std::vector<TokenEvent>;

std::vector<SequenceRequest> make_requests(int count) {
  std::vector<SequenceRequest> requests(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    SequenceRequest& request = requests[static_cast<size_t>(i)];
    const int shared = i % 3 == 0 ? 64 : 0;
    for (int k = 0; k < shared; ++k) request.prompt.push_back(3 + k * 7 % 250);
    for (int k = 0; k < 1 + i * 13 % 60; ++k) request.prompt.push_back(3 + (k * 11 + i * 29) % 250);
    request.max_tokens = 1 + i * 37 % 90;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.logprobs = i % 4 == 0 ? 2 : -1;
    request.end_tokens = {7, 8, 9};
  }
  return requests;
}

std::unique_ptr<Engine> make_engine() {
  EngineOptions options;
  options.model = kTiny;
  options.threads = 2;
  options.max_streams = 8;
  options.kv_positions = 24 * 32;  // some are preempted
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

/// schedule -> run -> sample -> take the events, one after another on one thread.
std::vector<Events> run_plain(const std::vector<SequenceRequest>& requests) {
  const auto engine = make_engine();
  std::vector<Events> events(requests.size());
  std::map<SequenceId, size_t> of;
  for (size_t i = 0; i < requests.size(); ++i) of[*engine->submit(requests[i])] = i;
  while (!engine->idle()) {
    auto report = engine->step();
    EXPECT_TRUE(report);
    for (TokenEvent& event : report->events) events[of.at(event.sequence)].push_back(std::move(event));
  }
  return events;
}

/// The server's: steps on one thread, events taken on another meanwhile, requests from a third at any time.
std::vector<Events> run_overlapped(const std::vector<SequenceRequest>& requests) {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  bool stop = false;
  size_t ended = 0;
  std::vector<Events> events(requests.size());
  std::thread taker([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stop || !tasks.empty(); });
      if (tasks.empty()) return;
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  });
  {
    EngineLoop loop(make_engine(), requests.size(), [&](std::function<void()> task) {
      const std::scoped_lock lock(mutex);
      tasks.push_back(std::move(task));
      wake.notify_all();
    });
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto handler = [&, i](Events came) {
        const std::scoped_lock lock(mutex);
        for (TokenEvent& event : came) events[i].push_back(std::move(event));
        ended += events[i].back().finish != FinishReason::none ? 1 : 0;
        wake.notify_all();
      };
      EXPECT_TRUE(loop.submit({requests[i]}, {handler}));
      if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    std::unique_lock lock(mutex);
    EXPECT_TRUE(wake.wait_for(lock, std::chrono::minutes(2), [&] { return ended == requests.size(); }));
  }
  {
    const std::scoped_lock lock(mutex);
    stop = true;
  }
  wake.notify_all();
  taker.join();
  return events;
}

TEST(EngineLoop, OverlappedEqualsPlain) {
  const std::vector<SequenceRequest> requests = make_requests(60);
  const std::vector<Events> plain = run_plain(requests), overlapped = run_overlapped(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(plain[i].size(), overlapped[i].size()) << "request " << i;
    for (size_t k = 0; k < plain[i].size(); ++k) {
      const TokenEvent &a = plain[i][k], &b = overlapped[i][k];
      EXPECT_EQ(a.index, b.index);
      EXPECT_EQ(b.index, static_cast<int32_t>(k));
      EXPECT_EQ(a.finish, b.finish);
      EXPECT_EQ(a.sample.token, b.sample.token) << "request " << i << ", token " << k;
      EXPECT_EQ(a.sample.logprob, b.sample.logprob);
      ASSERT_EQ(a.sample.top.size(), b.sample.top.size());
      for (size_t t = 0; t < a.sample.top.size(); ++t) {
        EXPECT_EQ(a.sample.top[t].token, b.sample.top[t].token);
        EXPECT_EQ(a.sample.top[t].logprob, b.sample.top[t].logprob);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::server
