#include "server/access.h"

#include <gtest/gtest.h>

namespace cohort::server {
namespace {

TEST(Access, OriginsAreAsBrowsersWriteThem) {
  for (const char* good : {"*", "https://example.org", "http://localhost:3000", "http://[::1]:80",
                           "chrome-extension://abc", "http://[::1]", "https://my_box.local"})
    EXPECT_TRUE(is_origin(good)) << good;
  for (const char* bad :
       {"foo", "", "https://", "https://example.org/", "https://Example.org", "://x", "https://a b", "https://a:port",
        "https://a:", "https://[::1", "https://[zz]", "null", "https://u@h", "https://a\r\nX: y", "1http://x", "**"})
    EXPECT_FALSE(is_origin(bad)) << bad;
}

TEST(Access, HostsAreAddressesOrNamesThatWereGiven) {
  ServiceOptions options;
  EXPECT_TRUE(host_allowed(options, "evil.example")) << "not checked";
  options.check_host = true;
  options.allowed_hosts = {"box.local"};
  for (const char* good : {"", "localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "::1", "192.168.1.7",
                           "Box.Local:80", "box.local."})
    EXPECT_TRUE(host_allowed(options, good)) << good;
  for (const char* bad :
       {"evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[::1", "box.locale", "x@localhost"})
    EXPECT_FALSE(host_allowed(options, bad)) << bad;
  options.allowed_hosts = {"*"};
  EXPECT_TRUE(host_allowed(options, "evil.example"));
  EXPECT_TRUE(is_loopback("127.3.2.1") && is_loopback("::1") && is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("::") || is_loopback("10.0.0.1"));
}

}  // namespace
}  // namespace cohort::server
