// A server on a free port with a tiny random model, for tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "client.h"
#include "server/server.h"

namespace cohort::server {

inline const std::filesystem::path kTiny =
    std::filesystem::path(COHORT_SOURCE_DIR) / "tests/golden/gguf/qwen3_moe-bf16.gguf";

struct TestServer {
  explicit TestServer(ServerOptions options = {}) {
    if (options.engine.model.empty()) options.engine.model = kTiny;
    if (options.engine.threads == 0) options.engine.threads = 1;
    options.http.port = 0;
    auto started = Server::start(options);
    if (!started) throw std::runtime_error(started.error().message);
    server = std::move(*started);
    auto ready = server->wait_ready(std::chrono::minutes(2));
    if (!ready) throw std::runtime_error(ready.error().message);
  }
  uint16_t port() const { return server->port(); }
  LoopView view() const { return server->ready()->loop->view(); }

  Answer post(std::string_view path, const nlohmann::json& body) const { return post_text(path, body.dump()); }
  Answer post_text(std::string_view path, std::string_view body) const {
    Client client(port());
    client.post(path, body);
    return client.read();
  }
  Answer get(std::string_view path, std::string_view headers = "") const {
    Client client(port());
    client.get(path, headers);
    return client.read();
  }
  /// Waits until nothing is in flight, then says whether every page is free.
  ::testing::AssertionResult no_page_leaked() const {
    for (int i = 0; i < 400 && !server->ready()->loop->idle(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const LoopView v = view();
    if (!v.running.empty() || v.waiting > 0 || v.capacity.free_pages != v.capacity.pages) {
      return ::testing::AssertionFailure() << v.running.size() << " running, " << v.waiting << " waiting, "
                                           << v.capacity.free_pages << " of " << v.capacity.pages << " pages free";
    }
    return ::testing::AssertionSuccess();
  }

  std::unique_ptr<Server> server;
};

inline nlohmann::json completion(std::string_view prompt, int tokens, uint64_t seed = 1) {
  return {{"prompt", prompt}, {"max_tokens", tokens}, {"seed", seed}, {"ignore_eos", true}};
}

}  // namespace cohort::server
