// Every endpoint, with a real socket and a tiny random model.
#include <fmt/format.h>

#include <algorithm>

#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;

class ApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void TearDown() override { EXPECT_TRUE(server_->no_page_leaked()); }
  static TestServer* server_;
};
TestServer* ApiTest::server_ = nullptr;

TEST_F(ApiTest, CompletionHasTextReasonAndUsage) {
  const Answer answer = server_->post("/v1/completions", completion("the quick brown", 12));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = answer.json();
  EXPECT_EQ(body["object"], "text_completion");
  ASSERT_EQ(body["choices"].size(), 1U);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(body["choices"][0]["text"].get<std::string>().empty());
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  const json tokens = server_->post("/tokenize", {{"content", "the quick brown"}}).json()["tokens"];
  EXPECT_EQ(body["usage"]["prompt_tokens"], tokens.size());
  EXPECT_EQ(body["usage"]["total_tokens"], tokens.size() + 12);
}

TEST_F(ApiTest, StreamHasTheBytesOfTheWholeAnswer) {
  json request = completion("streams and wholes", 40);
  const json whole = server_->post("/v1/completions", request).json();
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const Answer answer = server_->post("/v1/completions", request);
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = events_of(answer.body);
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text, reason;
  json usage;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json chunk = json::parse(events[i]);
    if (chunk.contains("usage")) usage = chunk["usage"];
    for (const json& choice : chunk["choices"]) {
      text += choice["text"].get<std::string>();
      if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    }
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(reason, "length");
  EXPECT_EQ(usage["completion_tokens"], 40);
}

TEST_F(ApiTest, SeveralChoicesDifferAndRepeat) {
  json request = completion("many worlds", 16, 7);
  request["n"] = 3;
  const json first = server_->post("/v1/completions", request).json();
  const json second = server_->post("/v1/completions", request).json();
  ASSERT_EQ(first["choices"].size(), 3U);
  EXPECT_EQ(first["choices"], second["choices"]);
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
  request["n"] = 1;
  EXPECT_EQ(server_->post("/v1/completions", request).json()["choices"][0], first["choices"][0]);
}

TEST_F(ApiTest, PromptsInOneRequestAnswerAsAlone) {
  json request = completion("", 10);
  request["prompt"] = {"one", "two"};
  const json both = server_->post("/v1/completions", request).json();
  ASSERT_EQ(both["choices"].size(), 2U);
  EXPECT_EQ(both["choices"][1]["text"],
            server_->post("/v1/completions", completion("two", 10)).json()["choices"][0]["text"]);
}

TEST_F(ApiTest, TokenIdsAreAPrompt) {
  const json tokens = server_->post("/tokenize", {{"content", "same thing"}, {"add_special", true}}).json()["tokens"];
  json request = completion("same thing", 10);
  const json text = server_->post("/v1/completions", request).json();
  request["prompt"] = tokens;
  EXPECT_EQ(server_->post("/v1/completions", request).json()["choices"], text["choices"]);
}

TEST_F(ApiTest, StopStringsEndTheTextWhereverTokensEnd) {
  const std::string text = server_->post("/v1/completions", completion("find an end", 60)).json()["choices"][0]["text"];
  ASSERT_GT(text.size(), 20U);
  // Ends of several lengths from the middle of what would be written; cut at characters.
  for (size_t length : {1U, 3U, 7U}) {
    size_t begin = text.size() / 2;
    while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
    size_t end = std::min(begin + length, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const std::string stop = text.substr(begin, end - begin);
    json request = completion("find an end", 60);
    request["stop"] = {stop, "never to be seen"};
    const json body = server_->post("/v1/completions", request).json();
    EXPECT_EQ(body["choices"][0]["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
    request["stream"] = true;
    std::string streamed;
    const Answer answer = server_->post("/v1/completions", request);
    for (const std::string& event : events_of(answer.body)) {
      if (event != "[DONE]") streamed += json::parse(event)["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(streamed, text.substr(0, text.find(stop)));
  }
}

TEST_F(ApiTest, LogprobsDescribeTheChosenTokens) {
  json request = completion("how likely", 6);
  request["temperature"] = 0;
  request["logprobs"] = 3;
  const json body = server_->post("/v1/completions", request).json();
  const json logprobs = body["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 3U);
    // Greedy: the chosen token is the most likely one.
    double best = -1e9;
    for (const auto& [token, value] : logprobs["top_logprobs"][i].items()) best = std::max(best, value.get<double>());
    EXPECT_EQ(best, logprobs["token_logprobs"][i].get<double>());
  }
}

TEST_F(ApiTest, LogitBiasForcesAndBans) {
  json request = completion("bias", 4);
  request["prompt"] = json::array({10, 11, 12});
  request["logit_bias"] = {{"65", 100}};
  request["logprobs"] = 0;
  const json forced = server_->post("/v1/completions", request).json();
  const json tokens = forced["choices"][0]["logprobs"]["tokens"];
  ASSERT_EQ(tokens.size(), 4U);
  for (const json& token : tokens) EXPECT_EQ(token, tokens[0]);
}

TEST_F(ApiTest, ChatUsesTheTemplateOrSaysThereIsNone) {
  const json props = server_->get("/props").json();
  const json messages = {{{"role", "user"}, {"content", "hello"}}};
  const Answer answer = server_->post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 5}, {"seed", 1}});
  const Answer rendered = server_->post("/apply-template", {{"messages", messages}});
  if (props["has_chat_template"] == true) {
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["choices"][0]["message"]["role"], "assistant");
    EXPECT_NE(rendered.json()["prompt"].get<std::string>().find("hello"), std::string::npos);
  } else {
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(rendered.status, 400);
    EXPECT_NE(answer.body.find("/v1/completions"), std::string::npos);
  }
}

TEST_F(ApiTest, TokensGoAndComeBack) {
  const std::string text = "Grüße, 世界! 🙂 tokens";
  const json tokens = server_->post("/tokenize", {{"content", text}}).json()["tokens"];
  EXPECT_EQ(server_->post("/detokenize", {{"tokens", tokens}}).json()["content"], text);
  const json pieces = server_->post("/tokenize", {{"content", text}, {"with_pieces", true}}).json()["tokens"];
  EXPECT_EQ(pieces.size(), tokens.size());
  EXPECT_EQ(server_->post("/detokenize", {{"tokens", {1, 1 << 30}}}).status, 400);
}

TEST_F(ApiTest, OneModelIsFoundByItsName) {
  const json listed = server_->get("/v1/models").json()["data"][0];
  const std::string name = listed["id"];
  EXPECT_EQ(server_->get("/v1/models/" + name).json(), listed);
  EXPECT_EQ(
      server_->get(fmt::format("/v1/models/%{:02X}{}", static_cast<unsigned char>(name[0]), name.substr(1))).json(),
      listed);
  for (const char* other : {"gpt-4o", "", "%", "a%2Fb"}) {
    const Answer answer = server_->get(fmt::format("/v1/models/{}", other));
    EXPECT_EQ(answer.status, 404) << other;
    EXPECT_EQ(answer.json()["error"]["type"], "not_found_error");
    EXPECT_EQ(answer.json()["error"]["param"], "model");
  }
  EXPECT_NE(server_->get("/v1/models/a%2Fb").body.find("'a/b'"), std::string::npos);
  EXPECT_EQ(server_->post("/v1/models/" + name, json::object()).status, 405);
}

TEST(Models, NoRequestHasMorePositionsThanThereArePages) {
  ServerOptions options;
  options.engine.context = 64;
  options.engine.kv_positions = 20;
  const TestServer server(options);
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["max_model_len"], 32);
}

TEST_F(ApiTest, ReportsDescribeTheServer) {
  EXPECT_EQ(server_->get("/health").json()["status"], "ok");
  const json models = server_->get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 1U);
  const json props = server_->get("/props").json();
  EXPECT_EQ(props["model"], models["data"][0]["id"]);
  EXPECT_EQ(props["experts"], 5);
  EXPECT_GT(props["capacity"]["pages"], 0);
  EXPECT_TRUE(server_->get("/slots").json().is_array());
  const Answer metrics = server_->get("/metrics");
  EXPECT_EQ(metrics.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* name : {"vllm:num_requests_running", "vllm:generation_tokens_total",
                           "cohort_distinct_experts_bucket", "cohort_rows_per_step_count", "cohort_bytes_per_step"}) {
    EXPECT_NE(metrics.body.find(name), std::string::npos) << name;
  }
  const Answer page = server_->get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
}

TEST_F(ApiTest, ModelNamesAreChecked) {
  json request = completion("x", 2);
  request["model"] = server_->get("/props").json()["model"];
  EXPECT_EQ(server_->post("/v1/completions", request).status, 200);
  request["model"] = "gpt-4o";
  EXPECT_EQ(server_->post("/v1/completions", request).status, 404);
}

TEST_F(ApiTest, PathsMethodsAndTypesAreChecked) {
  EXPECT_EQ(server_->get("/nowhere").status, 404);
  EXPECT_EQ(server_->get("/v1/completions").status, 405);
  Client client(server_->port());
  client.post("/v1/completions", completion("x", 2).dump(), "text/plain");
  EXPECT_EQ(client.read().status, 415);
  client.post("/tokenize", R"({"content":"a"})", "Application/JSON; charset=utf-8");
  EXPECT_EQ(client.read().status, 200) << "the connection is kept";
  for (const char* path : {"/health", "/", "/v1/models"}) {
    for (const char* method : {"POST", "DELETE", "BREW"}) {
      client.send(std::string(method) + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
      const Answer answer = client.read();
      EXPECT_EQ(answer.status, 405) << method << " " << path;
      EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD");
    }
  }
  client.send("GET http://localhost/health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read().json()["status"], "ok") << "a target in absolute form";
  client.send("GET HTTP://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read().headers.at("content-type"), "text/html; charset=utf-8");
}

TEST_F(ApiTest, NamesOfOtherSitesAreRefusedOnLoopback) {
  const auto status = [&](const std::string& head) {
    Client client(server_->port());
    client.send(head + "\r\n");
    return client.read().status;
  };
  for (const char* host :
       {"localhost", "LocalHost:8080", "localhost.:80", "127.0.0.1", "127.0.0.1:99", "[::1]:8080", "10.0.0.7"})
    EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: " + std::string(host) + "\r\n"), 200) << host;
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]"})
    EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: " + std::string(host) + "\r\n"), 403) << host;
  EXPECT_EQ(status("GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n"), 403);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n"), 400) << "HTTP/1.1 needs a Host";
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n"), 400);
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n"), 200);
  ServerOptions options;
  options.service.allowed_hosts = {"Box.local"};
  const TestServer named(options);
  for (const auto& [host, expected] : {std::pair{"box.local:80", 200}, {"other.local", 403}}) {
    Client client(named.port());
    client.send("GET /health HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n");
    EXPECT_EQ(client.read().status, expected) << host;
  }
}

TEST(ApiKey, IsAskedForAndCompared) {
  ServerOptions options;
  options.service.api_key = "secret";
  const TestServer server(options);
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer secreT\r\n").status, 401);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "Authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Basic secret\r\n").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Cors, IsOffUnlessAnOriginIsNamed) {
  {
    const TestServer server;
    EXPECT_FALSE(server.get("/health").headers.contains("access-control-allow-origin"));
  }
  ServerOptions options;
  options.service.cors_origin = "https://example.org";
  const TestServer server(options);
  EXPECT_EQ(server.get("/health").headers.at("access-control-allow-origin"), "https://example.org");
  Client client(server.port());
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://example.org\r\n\r\n");
  const Answer preflight = client.read();
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "Authorization, *");
}

TEST(Drain, FinishesWhatRunsAndRefusesTheRest) {
  const TestServer server;
  Client client(server.port()), idle(server.port());
  idle.get("/health");
  EXPECT_EQ(idle.read().status, 200);
  json request = completion("a long story", 400);
  request["stream"] = true;
  client.post("/v1/completions", request.dump());
  while (server.view().running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.server->drain();
  // New connections and kept ones hear of it, and end.
  Client fresh(server.port());
  for (Client* other : {&idle, &fresh}) {
    other->post("/v1/completions", completion("too late", 3).dump());
    const Answer refused = other->read();
    EXPECT_EQ(refused.status, 503) << refused.body;
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    EXPECT_EQ(refused.headers.at("connection"), "close");
    EXPECT_TRUE(other->closed_within(5000));
  }
  const Answer health = server.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "draining");
  const Answer answer = client.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(events_of(answer.body).back(), "[DONE]");
  EXPECT_TRUE(client.closed_within(5000));
  const Client unused(server.port());  // connections without a request keep nobody waiting
  for (int i = 0; i < 100 && !server.server->drained(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(server.server->drained());
}

TEST(Loading, FailsWithTheReason) {
  ServerOptions options;
  options.engine.model = "/no/such/model.gguf";
  options.http.port = 0;
  auto server = Server::start(options);
  ASSERT_TRUE(server);
  auto ready = (*server)->wait_ready(std::chrono::seconds(20));
  ASSERT_FALSE(ready);
  EXPECT_NE(ready.error().message.find("/no/such/model.gguf"), std::string::npos);
  Client client((*server)->port());
  client.get("/health");
  EXPECT_EQ(client.read().status, 503);
}

}  // namespace
}  // namespace cohort::server
