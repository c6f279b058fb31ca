// A blocking client for streamed completions, with the time of every piece.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cohort/error.h"

namespace cohort {

struct ServerAddress {
  std::string host, port, base;  // host: IPv6 without brackets; base: path before /v1, without a slash at its end

  /// As the Host header has it: "[::1]:8080".
  std::string authority() const;
};

/// "http://host[:port]", with or without a path that ends in /v1 ("http://host/prefix/v1"). An address of IPv6 stands
/// in brackets. Errors: invalid_argument.
Expected<ServerAddress> parse_url(const std::string& url);

struct StreamedAnswer {
  using Time = std::chrono::steady_clock::time_point;
  Time sent, ended;
  std::vector<Time> pieces;                          // when text came
  int64_t prompt_tokens = 0, completion_tokens = 0;  // the server's count
};

/// Posts `body` to /v1/completions and reads the stream to its end. Errors: io (the connection), invalid_argument (the
/// server's answer is an error or no event stream; the message has its words).
Expected<StreamedAnswer> stream_completion(const ServerAddress& address, const std::string& api_key,
                                           const std::string& body);

}  // namespace cohort
