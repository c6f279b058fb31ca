#include "server/request_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cohort::server {
namespace {

using std::chrono::milliseconds;

TEST(RequestLog, OneLineOfJsonWithoutTheText) {
  HttpRequest request;
  request.id = "abc";
  request.client = "[::1]:5000";
  request.method = "POST";
  request.path = "/v1/\"x\"\n\xff";
  request.query = "secret";
  request.body = "secret";
  request.authorization = "Bearer secret";
  RequestNotes notes;
  notes.answer = "cmpl-1";
  notes.model = "m\"";
  notes.prompt_tokens = 7;
  notes.cached_tokens = 3;
  notes.generated_tokens = 9;
  notes.finish_reason = "stop,length";
  const std::chrono::steady_clock::time_point begin{milliseconds(1000)};
  notes.first_token = begin + milliseconds(250);
  const std::chrono::system_clock::time_point now{std::chrono::milliseconds(1'700'000'000'045)};
  std::string line = request_line({request, notes, 200, false, begin, begin + milliseconds(1500)}, now);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find("secret"), std::string::npos) << line;
  nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20.045Z");
  EXPECT_EQ(json["id"], "abc");
  EXPECT_EQ(json["client"], "[::1]:5000");
  EXPECT_EQ(json["status"], 200);
  EXPECT_EQ(json["duration_s"], 1.5);
  EXPECT_EQ(json["ttft_s"], 0.25);
  EXPECT_EQ(json["prompt_tokens"], 7);
  EXPECT_EQ(json["cached_tokens"], 3);
  EXPECT_EQ(json["generated_tokens"], 9);
  EXPECT_EQ(json["model"], "m\"");
  EXPECT_EQ(json["finish_reason"], "stop,length");
  EXPECT_FALSE(json.contains("client_gone"));

  // A client that went before anything was sent, and a request that was no completion.
  notes = {};
  json = nlohmann::json::parse(request_line({request, notes, 0, true, begin, begin}, now));
  EXPECT_TRUE(json["status"].is_null());
  EXPECT_EQ(json["client_gone"], true);
  EXPECT_FALSE(json.contains("model"));
}

}  // namespace
}  // namespace cohort::server
