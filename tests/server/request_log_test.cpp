// What --log-requests writes: one line for each request that came, whatever became of it.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "fixture.h"

namespace cohort::server {
namespace {

using nlohmann::json;

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest() {
    ServerOptions options;
    options.service.log_request = [this](std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
      came_.notify_all();
    };
    server_ = std::make_unique<TestServer>(options);
  }
  /// The next line, in the order of their coming.
  json next() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds(60), [this] { return seen_ < lines_.size(); })) return {};
    return json::parse(lines_[seen_++]);
  }
  bool nothing_more() {
    const std::scoped_lock lock(mutex_);
    return seen_ == lines_.size();
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
  size_t seen_ = 0;
  std::unique_ptr<TestServer> server_;  // ends first: its threads write lines
};

TEST_F(RequestLogTest, CompletionsAreCountedWholeAndStreamed) {
  json request = completion("a prompt that nobody else should read", 5);
  request["n"] = 2;
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const Answer answer = server_->post("/v1/completions", request);
    ASSERT_EQ(answer.status, 200);
    const json line = next();
    EXPECT_EQ(line["id"], answer.headers.at("x-request-id"));
    EXPECT_EQ(line["method"], "POST");
    EXPECT_EQ(line["path"], "/v1/completions");
    EXPECT_EQ(line["status"], 200);
    EXPECT_TRUE(line["client"].get<std::string>().starts_with("127.0.0.1:")) << line;
    EXPECT_EQ(line["generated_tokens"], 10);
    EXPECT_EQ(line["finish_reason"], "length,length");
    EXPECT_GT(line["prompt_tokens"], 0);
    EXPECT_GT(line["ttft_s"], 0);
    EXPECT_GE(line["duration_s"], line["ttft_s"]);
    EXPECT_EQ(line["model"], server_->server->ready()->name);
    if (!stream) {
      EXPECT_EQ(line["answer"], answer.json()["id"]);
      EXPECT_EQ(line["prompt_tokens"], answer.json()["usage"]["prompt_tokens"]);
    }
    EXPECT_EQ(line.dump().find("nobody"), std::string::npos) << line;
  }
  EXPECT_TRUE(nothing_more());
}

TEST_F(RequestLogTest, SoIsEverythingElse) {
  server_->get("/health?key=secret", "X-Request-Id: trace-1.a:b\r\n");
  json line = next();
  EXPECT_EQ(line["id"], "trace-1.a:b");
  EXPECT_EQ(line["path"], "/health");
  EXPECT_EQ(line["status"], 200);
  EXPECT_FALSE(line.contains("prompt_tokens"));

  const Answer odd = server_->get("/nowhere", "X-Request-Id: a b\"\r\n");
  line = next();
  EXPECT_EQ(line["status"], 404);
  EXPECT_EQ(line["id"], odd.headers.at("x-request-id"));
  EXPECT_EQ(line["id"].get<std::string>().size(), 16U);  // what is no name of a request is not sent back

  server_->post("/v1/completions", {{"prompt", "x"}, {"frobnicate", 1}});
  line = next();
  EXPECT_EQ(line["status"], 400);
  EXPECT_FALSE(line.contains("answer"));

  Client broken(server_->port());
  broken.send("nonsense\r\n\r\n");
  EXPECT_EQ(broken.read().status, 400);
  EXPECT_EQ(next()["status"], 400);

  Client impatient(server_->port());
  impatient.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  impatient.reset();
  line = next();
  EXPECT_TRUE(line["status"].is_null());
  EXPECT_EQ(line["client_gone"], true);
  EXPECT_TRUE(nothing_more());
}

TEST_F(RequestLogTest, AClientThatGoesIsToldOf) {
  for (const bool stream : {false, true}) {
    Client client(server_->port());
    json request = completion("x", 450);
    request["n"] = 2;
    request["stream"] = stream;
    client.post("/v1/completions", request.dump());
    if (stream) {
      client.read_until("data: ");
    } else {
      while (server_->view().running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client.reset();
    const json line = next();
    EXPECT_EQ(line["client_gone"], true) << line;
    EXPECT_EQ(line["finish_reason"], "cancelled,cancelled") << line;
    EXPECT_EQ(line["status"], stream ? json(200) : json()) << line;
    EXPECT_TRUE(server_->no_page_leaked());
  }
  EXPECT_TRUE(nothing_more());
}

}  // namespace
}  // namespace cohort::server
