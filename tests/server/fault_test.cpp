// Clients that misbehave: the answer names the mistake, others are not disturbed, and no page is lost.
#include <array>
#include <atomic>
#include <fstream>
#include <random>

#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

class FaultTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ServerOptions options;
    options.http.body_limit = 200000;
    options.http.idle_timeout = 3s;
    options.http.body_timeout = 1s;
    options.http.write_timeout = 2s;
    options.engine.max_streams = 4;
    options.service.queue_limit = 4;
    server_ = new TestServer(options);
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void TearDown() override {
    EXPECT_TRUE(server_->no_page_leaked());
    const Answer after = server_->post("/v1/completions", completion("still there", 3));
    EXPECT_EQ(after.status, 200) << after.body;
  }
  static std::string error_of(const Answer& answer) { return answer.json()["error"]["message"]; }
  static void wait_running(size_t count) {
    for (int i = 0; i < 2000 && server_->view().running.size() < count; ++i) std::this_thread::sleep_for(2ms);
    ASSERT_GE(server_->view().running.size(), count);
  }
  static json long_stream() {
    json request = completion("a story that goes on", 450);
    request["stream"] = true;
    return request;
  }
  static TestServer* server_;
};
TestServer* FaultTest::server_ = nullptr;

TEST_F(FaultTest, MalformedJsonIsA400) {
  for (const char* body : {"", "{", "[1,2", "{\"prompt\": }", "nonsense", "{\"prompt\":\"a\"} trailing", "null", "[]",
                           "{\"prompt\":\"a\",\"prompt\":\"b\"}"}) {
    const Answer answer = server_->post_text("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body << ": " << answer.body;
  }
}

TEST_F(FaultTest, FieldsOfTheWrongTypeAreNamed) {
  const std::vector<std::pair<const char*, json>> wrong{
      {"prompt", 5},
      {"prompt", json::array()},
      {"prompt", {"a", 5}},
      {"prompt", {1, "a"}},
      {"prompt", {-1}},
      {"max_tokens", 0},
      {"max_tokens", "ten"},
      {"max_tokens", 1e300},
      {"max_tokens", 1.5},
      {"temperature", "hot"},
      {"temperature", -1},
      {"top_p", 2},
      {"n", 0},
      {"n", 100000},
      {"stop", 5},
      {"stop", {""}},
      {"stop", {1}},
      {"seed", -5},
      {"seed", "x"},
      {"logprobs", 1000},
      {"stream", "yes"},
      {"stream", 1},
      {"logit_bias", {{"x", 1}}},
      {"logit_bias", {{"1", "a"}}},
      {"logit_bias", 5},
      {"logit_bias", {{"100000", 1}}},
      {"model", 5},
      {"frequency_penalty", 5},
      {"stream_options", 5},
      {"user", 5},
      {"ignore_eos", "no"},
      {"best_of", 9},
      {"priority", "high"},
      {"priority", 1001},
  };
  for (const auto& [field, value] : wrong) {
    json request = completion("x", 2);
    request[field] = value;
    const Answer answer = server_->post("/v1/completions", request);
    EXPECT_EQ(answer.status, 400) << field << " " << value << answer.body;
    EXPECT_NE(error_of(answer).find(field), std::string::npos) << error_of(answer);
  }
}

TEST_F(FaultTest, UnknownAndUnsupportedFieldsAreNamed) {
  const std::vector<std::pair<const char*, json>> fields{
      {"frobnicate", 1}, {"tools", {{{"type", "function"}}}}, {"echo", true},
      {"suffix", "x"},   {"json_schema", json::object()},
  };
  for (const auto& [field, value] : fields) {
    json request = completion("x", 2);
    request[field] = value;
    const Answer answer = server_->post("/v1/completions", request);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json()["error"]["param"], field) << answer.body;
  }
  json neutral = completion("x", 2);
  neutral["response_format"] = {{"type", "text"}};
  neutral["tools"] = json::array();
  neutral["echo"] = false;
  neutral["user"] = "somebody";
  neutral["stop"] = nullptr;
  EXPECT_EQ(server_->post("/v1/completions", neutral).status, 200);
}

TEST_F(FaultTest, MessagesAreChecked) {
  const std::vector<json> wrong{json::array(),
                                5,
                                {5},
                                {{{"content", "a"}}},
                                {{{"role", "user"}, {"content", 5}}},
                                {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}},
                                {{{"role", "user"}, {"content", "a"}, {"bogus", 1}}}};
  for (const json& messages : wrong) {
    const Answer answer = server_->post("/v1/chat/completions", {{"messages", messages}});
    EXPECT_EQ(answer.status, 400) << messages;
    EXPECT_NE(error_of(answer).find("messages"), std::string::npos) << error_of(answer);
  }
}

TEST_F(FaultTest, InvalidUtf8IsA400) {
  EXPECT_EQ(server_->post_text("/v1/completions", "{\"prompt\":\"\xC3\x28\"}").status, 400);
  EXPECT_EQ(server_->post_text("/v1/completions", "{\"prompt\":\"\\ud800\"}").status, 400);
  EXPECT_EQ(server_->post_text("/tokenize", "{\"content\":\"\xff\xfe\"}").status, 400);
}

TEST_F(FaultTest, DeepNestingIsA400) {
  const std::string deep(50000, '[');
  EXPECT_EQ(server_->post_text("/v1/completions", deep).status, 400);
  EXPECT_EQ(server_->post_text("/v1/completions", "{\"prompt\":" + deep).status, 400);
  std::string objects;
  for (int i = 0; i < 5000; ++i) objects += "{\"a\":";
  EXPECT_EQ(server_->post_text("/v1/chat/completions", objects).status, 400);
}

TEST_F(FaultTest, HugeBodiesAndHeadersAreRefused) {
  Client client(server_->port());
  client.post("/v1/completions", std::string(300000, 'x'));
  EXPECT_EQ(client.read().status, 413);
  Client announced(server_->port());  // and sends nothing of it
  announced.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_EQ(announced.read().status, 413);
  Client chunked(server_->port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 8; ++i) chunked.send("10000\r\n" + std::string(0x10000, 'x') + "\r\n");
  EXPECT_EQ(chunked.read().status, 413);
  Client header(server_->port());
  header.get("/health", "X-Long: " + std::string(40000, 'x') + "\r\n");
  EXPECT_EQ(header.read().status, 431);
}

TEST_F(FaultTest, NonsenseIsNoRequest) {
  for (const char* bytes :
       {"\r\n\r\n\r\n\r\n", "HELLO\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "\x16\x03\x01\x02\x05\x01\x02\x03\r\n\r\n"}) {
    Client client(server_->port());
    client.send(bytes);
    const Answer answer = client.read();
    EXPECT_TRUE(answer.status == 400 || answer.status == 0) << bytes << " " << answer.status;
  }
}

TEST_F(FaultTest, ContextOverflowIsA400WithTheNumbers) {
  json request = completion("", 2);
  request["prompt"] = std::vector<int>(600, 5);
  Answer answer = server_->post("/v1/completions", request);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(error_of(answer).find("600"), std::string::npos);
  EXPECT_NE(error_of(answer).find("512"), std::string::npos);
  request["prompt"] = std::vector<int>(500, 5);
  request["max_tokens"] = 13;
  answer = server_->post("/v1/completions", request);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(error_of(answer).find("513"), std::string::npos);
  request["max_tokens"] = 12;
  EXPECT_EQ(server_->post("/v1/completions", request).status, 200);
}

TEST_F(FaultTest, TokensOutsideTheVocabularyAreA400) {
  json request = completion("", 2);
  request["prompt"] = {1, 2, 100000};
  EXPECT_EQ(server_->post("/v1/completions", request).status, 400);
}

TEST_F(FaultTest, AFullQueueIsA503AndPasses) {
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(server_->port());
    clients.back().post("/v1/completions", long_stream().dump());
    clients.back().read_until("\r\n\r\n");  // accepted
  }
  const Answer answer = server_->post("/v1/completions", completion("one more", 2));
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_TRUE(answer.headers.contains("retry-after"));
  json many = completion("so many", 2);
  many["n"] = 8;
  EXPECT_EQ(server_->post("/v1/completions", many).status, 503);
  for (Client& client : clients) client.close();
}

TEST_F(FaultTest, ClientsThatVanishFreeTheirPages) {
  for (const bool hard : {false, true}) {
    std::vector<Client> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back(server_->port());
      json request = long_stream();
      if (i % 2 == 1) request["stream"] = false;
      clients.back().post("/v1/completions", request.dump());
    }
    wait_running(4);
    const uint64_t steps = server_->view().steps;
    for (Client& client : clients) hard ? client.reset() : client.close();
    EXPECT_TRUE(server_->no_page_leaked());
    // 450 tokens each would take as many steps; nobody generated to the end for nobody.
    EXPECT_LT(server_->view().steps - steps, 400U);
  }
}

TEST_F(FaultTest, ClientsThatVanishBeforeTheirPromptIsRead) {
  json request = long_stream();
  request["prompt"] = std::vector<int>(400, 7);
  for (int i = 0; i < 8; ++i) {
    Client client(server_->port());
    client.post("/v1/completions", request.dump());
    i % 2 == 0 ? client.close() : client.reset();
  }
  Client half(server_->port());
  half.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "500\r\n\r\n{");
  half.close();
}

TEST_F(FaultTest, StalledBodiesAndIdleConnectionsEnd) {
  Client stalled(server_->port());
  stalled.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{\"prom");
  EXPECT_TRUE(stalled.closed_within(3000));
  Client idle(server_->port());
  idle.get("/health");
  EXPECT_EQ(idle.read().status, 200);
  Client slow_header(server_->port());
  slow_header.send("GET /health HT");
  EXPECT_TRUE(idle.closed_within(6000));
  EXPECT_TRUE(slow_header.closed_within(3000));
}

/// Within a fraction of the idle time-out: the end of what a client sends is told once, in the middle of its answer
/// here.
TEST_F(FaultTest, ClientsThatHaveEndedLeaveNoConnectionBehind) {
  for (const bool stream : {false, true}) {
    Client client(server_->port());
    json request = long_stream();
    request["stream"] = stream;
    client.post("/v1/completions", request.dump());
    wait_running(1);
    client.finish_sending();
    if (stream) {
      EXPECT_NE(client.read().status, 0);
    } else {
      client.read_until("100 Continue\r\n\r\n");
      EXPECT_EQ(client.read().status, 200);
    }
    EXPECT_TRUE(client.closed_within(1500));
    for (int i = 0; i < 20 && server_->server->connections() > 0; ++i) std::this_thread::sleep_for(25ms);
    EXPECT_EQ(server_->server->connections(), 0U);
  }
}

TEST_F(FaultTest, SlowReadersAreDroppedAndDoNotStopOthers) {
  std::vector<Client> slow;
  for (int i = 0; i < 3; ++i) {
    slow.emplace_back(server_->port(), 2048);
    json request = long_stream();
    request["logprobs"] = 20;  // many bytes a token
    slow.back().post("/v1/completions", request.dump());
  }
  wait_running(1);
  EXPECT_EQ(server_->post("/v1/completions", completion("quick", 20)).status, 200);
  // The engine finishes; the connections are closed when their clients have read nothing for the time-out.
  EXPECT_TRUE(server_->no_page_leaked());
  for (int i = 0; i < 400 && server_->server->connections() > 0; ++i) std::this_thread::sleep_for(25ms);
  EXPECT_EQ(server_->server->connections(), 0U);
}

TEST_F(FaultTest, PipelinedRequestsAreAnsweredInOrder) {
  Client client(server_->port());
  client.post("/v1/completions", completion("first", 20).dump());
  client.get("/health");
  client.post("/tokenize", R"({"content":"third"})");
  EXPECT_EQ(client.read().json()["object"], "text_completion");
  EXPECT_EQ(client.read().json()["status"], "ok");
  EXPECT_TRUE(client.read().json().contains("tokens"));
}

TEST_F(FaultTest, Http10AndExpectAreServed) {
  Client old(server_->port());
  json request = long_stream();
  request["max_tokens"] = 5;
  const std::string body = request.dump();
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string head = old.read_until("\r\n\r\n");
  EXPECT_EQ(head.find("Transfer-Encoding"), std::string::npos);
  std::string all = old.read_bytes(1 << 20);
  EXPECT_EQ(events_of(all).back(), "[DONE]");
  Client expecting(server_->port());
  expecting.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
      "Content-Length: 15\r\n\r\n");
  EXPECT_TRUE(expecting.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"));
  expecting.send(R"({"content":"a"})");
  EXPECT_EQ(expecting.read().status, 200);
}

TEST_F(FaultTest, CodingsThatAreNotServedAreRefusedAndNothingBehindThemIsRead) {
  const auto answers = [](const std::string& head) {
    Client client(server_->port());
    client.send(head + "\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const int first = client.read().status;
    return std::pair{first, client.read().status};
  };
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  // What would be the body is a request by itself; it must not be taken for one.
  EXPECT_EQ(answers(post + "Transfer-Encoding: gzip\r\n"), std::pair(501, 0));
  EXPECT_EQ(answers(post + "Transfer-Encoding: gzip, chunked\r\n"), std::pair(501, 0));
  EXPECT_EQ(answers(post + "Transfer-Encoding: identity\r\n"), std::pair(501, 0));
  EXPECT_EQ(answers(post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), std::pair(501, 0));
  EXPECT_EQ(answers(post + "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n").second, 0);
  EXPECT_EQ(answers(post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), std::pair(400, 0));
  EXPECT_EQ(answers("POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"), std::pair(400, 0));
  EXPECT_EQ(answers(post + "Content-Encoding: gzip\r\nContent-Length: 5\r\n"), std::pair(415, 0));
  EXPECT_EQ(answers(post + "Expect: foo\r\nContent-Length: 5\r\n"), std::pair(417, 0));
  Client chunked(server_->port());
  chunked.send(post +
               "Transfer-Encoding: Chunked\r\nContent-Encoding: identity\r\n\r\nf\r\n{\"content\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read().status, 200);
}

TEST_F(FaultTest, ClientsThatOnlyEndTheirSendingAreAnswered) {
  json request = long_stream();
  request["max_tokens"] = 200;
  Client streamed(server_->port()), whole(server_->port()), old(server_->port()), piped(server_->port());
  streamed.post("/v1/completions", request.dump());
  request["stream"] = false;
  whole.post("/v1/completions", request.dump());
  const std::string body = request.dump();
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  piped.post("/v1/completions", body);
  piped.post("/tokenize", R"({"content":"a"})");
  for (Client* client : {&streamed, &whole, &old, &piped}) client->finish_sending();
  std::string answer = whole.read_until("\r\n\r\n");
  if (answer.starts_with("HTTP/1.1 100")) answer = whole.read_until("\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(whole.read_bytes(1 << 20).find("\"finish_reason\":\"length\""), std::string::npos);
  const Answer stream = streamed.read();
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(old.read().status, 200);
  std::string both = piped.read_bytes(1 << 20);
  EXPECT_NE(both.find("text_completion"), std::string::npos);
  EXPECT_NE(both.find("{\"tokens\":"), std::string::npos) << both;
}

/// Bytes of memory that this process has resident.
size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

/// `count` random requests from 32 clients, a third of them given up at some moment. Returns how many were complete,
/// refused, given up, and anything else.
std::array<int, 4> random_requests(const TestServer& server, int count, unsigned seed) {
  std::vector<std::thread> threads;
  std::atomic<int> next{0}, complete{0}, refused{0}, cancelled{0}, wrong{0};
  for (unsigned t = 0; t < 32; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed * 100 + t);
      while (next++ < count) {
        Client client(server.port());
        json request = completion("", static_cast<int>(1 + random() % 60), random());
        request["prompt"] = std::vector<int>(1 + random() % 150, static_cast<int>(3 + random() % 200));
        request["stream"] = random() % 2 == 0;
        if (random() % 3 == 0) request["priority"] = static_cast<int>(random() % 5) - 2;
        if (random() % 5 == 0) request["grammar"] = "root ::= [a-z ]{1,50}";
        client.post("/v1/completions", request.dump());
        if (random() % 3 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
          if (random() % 2 == 0) client.reset();
          ++cancelled;
          continue;
        }
        const Answer answer = client.read();
        if (answer.status == 200 && (request["stream"] == false || events_of(answer.body).back() == "[DONE]")) {
          ++complete;
        } else if (answer.status == 503) {
          ++refused;
        } else {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {complete, refused, cancelled, wrong};
}

TEST_F(FaultTest, RandomRequestsBeyondTheQueueAreRefusedAndLeaveNothingBehind) {
  const auto [complete, refused, cancelled, wrong] = random_requests(*server_, 200, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(complete, 0);
  EXPECT_GT(refused, 0) << "32 clients on 4 streams and 4 waiting";
  EXPECT_GT(cancelled, 30);
}

TEST(Soak, AThousandRandomRequestsWithCancelsLeakNeitherPagesNorMemory) {
  ServerOptions options;
  options.engine.max_streams = 8;
  options.engine.kv_positions = 10 * 32;  // hardly more than one long request needs: streams must be preempted
  const TestServer server(options);
  auto counts = random_requests(server, 200, 2);
  EXPECT_TRUE(server.no_page_leaked());
  const size_t before = resident_bytes();
  counts = random_requests(server, 1000, 3);
  EXPECT_EQ(counts[3], 0);
  EXPECT_EQ(counts[1], 0) << "the queue is long enough for 32 clients";
  EXPECT_GT(counts[0], 500);
  EXPECT_GT(counts[2], 200);
  EXPECT_TRUE(server.no_page_leaked());
  EXPECT_GT(server.view().preemptions, 0U);
#ifdef __SANITIZE_THREAD__
  constexpr size_t kGrowth = size_t{96} << 20;  // the sanitizer remembers every address that was touched
#else
  constexpr size_t kGrowth = size_t{24} << 20;
#endif
  EXPECT_LT(resident_bytes(), before + kGrowth);
  EXPECT_EQ(server.post("/v1/completions", completion("still there", 3)).status, 200);
}

TEST(Faults, DrainingEndsWhenClientsHaveJustGone) {
  ServerOptions options;
  options.engine.model = std::filesystem::path(COHORT_SOURCE_DIR) / "models/libris-draft-q8_0.gguf";
  options.engine.backend = "reference";  // slow steps: the engine hears of the clients' going after the drain began
  options.engine.context = 512;
  for (int round = 0; round < 4; ++round) {
    TestServer server(options);
    std::vector<Client> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back(server.port());
      nlohmann::json body = completion("a", 400);
      body["stream"] = true;
      clients.back().post("/v1/completions", body.dump());
    }
    for (int i = 0; i < 400 && server.view().running.size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (Client& client : clients) client.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    server.server->drain();
    bool drained = false;
    for (int i = 0; i < 400 && !drained; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      drained = server.server->drained();
    }
    EXPECT_TRUE(drained) << "round " << round;
  }
}

}  // namespace
}  // namespace cohort::server
