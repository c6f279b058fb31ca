// Clients of streamed completions, with the time of every piece. All of them run on the calling thread, so that they
// take little from a server beside them.
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

/// Connects one client for each body; when all are connected, posts the bodies to /v1/completions and reads the streams
/// to their ends. Answers in the order of `bodies`. Errors: io (the connection), invalid_argument (the server's answer
/// is an error or no event stream; the message has its words).
std::vector<Expected<StreamedAnswer>> stream_completions(const ServerAddress& address, const std::string& api_key,
                                                         const std::vector<std::string>& bodies);

}  // namespace cohort
