// Priorities through the API: who is served first, what is shown of it, and that nobody loses a byte.
#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

json with_priority(json request, int priority) {
  request["priority"] = priority;
  return request;
}

/// Waits until `done()`, at most 20 s.
template <class Done>
bool comes_true(const Done& done) {
  for (int i = 0; i < 10000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

ServerOptions one_stream() {
  ServerOptions options;
  options.engine.max_streams = 1;
  return options;
}

TEST(Priority, AnUrgentRequestGoesFirstAndTheOthersAreCompleteAllTheSame) {
  const TestServer server(one_stream());
  json slow = completion("a story that goes on", 480);
  const json alone = server.post("/v1/completions", slow).json()["choices"];
  slow["stream"] = true;
  Client running(server.port());
  running.post("/v1/completions", with_priority(slow, 5).dump());
  ASSERT_TRUE(comes_true([&] { return server.view().running.size() == 1; }));
  std::vector<Client> waiting;
  for (const int priority : {7, 5, 5}) {
    waiting.emplace_back(server.port());
    waiting.back().post("/v1/completions", with_priority(completion("wait", 30), priority).dump());
  }
  ASSERT_TRUE(comes_true([&] { return server.view().waiting == 3; }));
  const json slots = server.get("/slots").json();
  ASSERT_EQ(slots.size(), 1U);
  EXPECT_EQ(slots[0]["priority"], 5);
  EXPECT_EQ(server.get("/stats").json()["waiting_by_priority"], json({{"5", 2}, {"7", 1}}));
  const std::string metrics = server.get("/metrics").body;
  EXPECT_NE(metrics.find("priority=\"background\"} 3\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("priority=\"urgent\"} 0\n"), std::string::npos) << metrics;

  const Answer urgent = server.post("/v1/completions", with_priority(completion("now", 5), -1));
  EXPECT_EQ(urgent.status, 200) << urgent.body;
  EXPECT_GE(server.view().preemptions, 1U) << "the running stream gave way";
  EXPECT_GE(server.view().waiting + server.view().running.size(), 3U) << "the others still wait";

  const Answer preempted = running.read();
  std::string text;
  for (const std::string& event : events_of(preempted.body)) {
    if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, alone[0]["text"]);
  for (Client& client : waiting) EXPECT_EQ(client.read().json()["usage"]["completion_tokens"], 30);
  EXPECT_TRUE(server.no_page_leaked());
}

TEST(Priority, EveryAnswerOfARequestHasItsPriority) {
  const TestServer server;
  json request = completion("", 400);
  request["prompt"] = {"one", "two"};
  request["n"] = 2;
  Client client(server.port());
  client.post("/v1/completions", with_priority(request, 9).dump());
  ASSERT_TRUE(comes_true([&] { return server.view().running.size() == 4; }));
  for (const json& slot : server.get("/slots").json()) EXPECT_EQ(slot["priority"], 9);
  EXPECT_EQ(client.read().status, 200);
}

TEST(Priority, ValuesAreChecked) {
  const TestServer server(one_stream());
  for (const json& value : {json(1001), json(-1001), json(0.5), json("high"), json(true), json(1e30)}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      json request{{"max_tokens", 2}, {"priority", value}};
      if (std::string_view(path) == "/v1/completions") {
        request["prompt"] = "x";
      } else {
        request["messages"] = {{{"role", "user"}, {"content", "x"}}};
      }
      const Answer answer = server.post(path, request);
      EXPECT_EQ(answer.status, 400) << value;
      EXPECT_EQ(answer.json()["error"]["param"], "priority") << answer.body;
      EXPECT_NE(answer.body.find("-1000 to 1000"), std::string::npos) << answer.body;
    }
  }
  for (const json& value : {json(1000), json(-1000), json(3.0), json(nullptr)}) {
    json request = completion("x", 2);
    request["priority"] = value;
    EXPECT_EQ(server.post("/v1/completions", request).status, 200) << value;
  }
  ServerOptions options;
  options.engine.priority_aging_s = -1;
  EXPECT_THROW(TestServer{options}, std::runtime_error);
}

}  // namespace
}  // namespace cohort::server
