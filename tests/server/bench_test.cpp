// bench serve against a real server.
#include "fixture.h"
#include "measure/http_stream.h"
#include "measure/serve_bench.h"

namespace cohort::server {
namespace {

TEST(ServeBench, MeasuresEveryLevel) {
  const TestServer server;
  ServeBenchOptions options;
  options.url = "http://127.0.0.1:" + std::to_string(server.port());
  options.concurrency = {1, 3};
  options.prompt_tokens = 60;
  options.shared_prefix_tokens = 20;
  options.max_tokens = 30;
  options.repeats = 2;
  const auto levels = bench_server(options, [](std::string_view) {});
  ASSERT_TRUE(levels) << levels.error().message;
  ASSERT_EQ(levels->size(), 2U);
  for (const ServeBenchLevel& level : *levels) {
    EXPECT_EQ(level.ok, level.concurrency * 2);
    EXPECT_EQ(level.failed, 0) << level.failure;
    EXPECT_EQ(level.completion_tokens, 30);
    EXPECT_NEAR(level.prompt_tokens, 60, 25) << "words differ in their tokens";
    EXPECT_GT(level.first_token_mean, 0);
    EXPECT_LE(level.gap_p50, level.gap_p99);
    EXPECT_GT(level.whole_rate.median, 0);
    EXPECT_GE(level.decode_rate.high, level.decode_rate.low);
  }
  // A tiny model may answer within one read of the socket: then there is no gap to take a rate from.
  EXPECT_GE(levels->front().decode_rate.median, 0);
  EXPECT_EQ(std::ranges::count(serve_bench_csv(*levels), '\n'), 3);
  EXPECT_EQ(nlohmann::json::parse(serve_bench_json(*levels)).size(), 2U);
  EXPECT_NE(serve_bench_svg(*levels, "a < b").find("a &lt; b"), std::string::npos);
}

TEST(ServeBench, SaysWhatTheServerRefused) {
  const TestServer server;
  ServeBenchOptions options;
  options.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/v1/";
  options.model = "another";
  const auto levels = bench_server(options, [](std::string_view) {});
  ASSERT_FALSE(levels);
  EXPECT_NE(levels.error().message.find("another"), std::string::npos) << levels.error().message;
  options.url = "ftp://x";
  EXPECT_FALSE(bench_server(options, [](std::string_view) {}));
  EXPECT_EQ(parse_url("http://host/prefix/v1/")->base, "/prefix");
  EXPECT_EQ(parse_url("http://host:81")->port, "81");
}

TEST(ServeBench, ReadsUrls) {
  const auto six = parse_url("http://[::1]:8080/v1");
  ASSERT_TRUE(six) << six.error().message;
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, "8080");
  EXPECT_EQ(six->base, "");
  EXPECT_EQ(six->authority(), "[::1]:8080");
  EXPECT_EQ(parse_url("http://host/")->authority(), "host");
  for (const char* bad :
       {"http://", "http://host:99999", "http://host:0", "http://host:", "http://host:8x", "http://::1:80",
        "http://[::1", "http://[host]:80", "http://[::1]80", "http://host/v2", "http://host/v1/chat",
        "http://host?x=/v1x", "http://user@host", "http://a b", "https://host"}) {
    const auto address = parse_url(bad);
    EXPECT_FALSE(address) << bad;
  }
}

TEST(ServeBench, MeasuresOverIpv6) {
  ServerOptions address;
  address.http.host = "::1";
  std::unique_ptr<TestServer> server;
  try {
    server = std::make_unique<TestServer>(address);
  } catch (const std::exception& error) {
    GTEST_SKIP() << "this machine has no IPv6: " << error.what();
  }
  ServeBenchOptions options;
  options.url = "http://[::1]:" + std::to_string(server->port()) + "/v1";
  options.concurrency = {1};
  options.prompt_tokens = 10;
  options.max_tokens = 5;
  options.repeats = 1;
  const auto levels = bench_server(options, [](std::string_view) {});
  ASSERT_TRUE(levels) << levels.error().message;
  EXPECT_EQ(levels->front().failed, 0) << levels->front().failure;
}

}  // namespace
}  // namespace cohort::server
