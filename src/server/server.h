// The server as a whole: listens at once, loads the model behind /health, serves, drains.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/engine.h"
#include "server/http/server.h"
#include "server/service.h"

namespace cohort::server {

struct ServerOptions {
  EngineOptions engine;
  HttpOptions http;
  ServiceOptions service;
};

class Server {
 public:
  /// Listens, then loads in the background. Errors: those of HttpServer::create.
  static Expected<std::unique_ptr<Server>> start(const ServerOptions& options, const ProgressCallback& progress = {});
  /// Stops at once; clients of unfinished answers lose their connection.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  /// Waits for the model; the error of loading it, or `false` after `timeout`.
  Expected<bool> wait_ready(std::chrono::milliseconds timeout);
  /// Null before that.
  std::shared_ptr<const Ready> ready() const;
  size_t connections() const;

  /// New requests are refused (503); those in flight go on.
  void drain();
  /// After drain(): all requests that came before it are answered, and their clients have read that or gone.
  bool drained() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::server
