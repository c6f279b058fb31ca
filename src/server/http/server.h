// HTTP/1.1 over TCP: connections, limits and time-outs. What requests mean is the handler's business.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cohort/error.h"
#include "server/http/exchange.h"

namespace cohort::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any that is free
  int threads = 2;
  size_t header_limit = size_t{16} << 10;
  size_t body_limit = size_t{16} << 20;
  size_t connections = 4096;
  size_t unsent_limit = size_t{4} << 20;          // bytes that a slow reader may leave unread before it is dropped
  std::string extra_headers;                      // lines with their CR LF, sent with every answer
  std::chrono::milliseconds idle_timeout{75000};  // between requests, and for the header of one
  std::chrono::milliseconds body_timeout{60000};
  std::chrono::milliseconds write_timeout{30000};         // for a client to read what was sent
  std::function<void(const RequestRecord&)> on_answered;  // may be empty; on the threads of connections
};

class HttpServer {
 public:
  /// Listens. io: the address cannot be bound (it names host and port); invalid_argument: the host is no address.
  static Expected<std::unique_ptr<HttpServer>> create(const HttpOptions& options, HttpHandler handler);
  /// As stop(), and closes every connection.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  size_t connections() const;
  /// Runs `task` on a thread of the server, after those given before it. It may take its time: there is a thread more
  /// than `threads` says.
  void post(std::function<void()> task);
  /// From now on every answer is its connection's last one. New connections are still accepted: the handler tells them.
  void drain();
  /// After drain(): the requests that came before it are answered, and their clients have read that or gone.
  bool drained() const;
  /// Ends the threads; Exchange::post may still be called, but nothing it is given runs any more.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::server
