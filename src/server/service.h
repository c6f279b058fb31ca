// What handlers work with: the options, the model once it is loaded, and where loading has got to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/engine.h"
#include "server/constraints.h"
#include "server/engine_loop.h"
#include "text/text_model.h"

namespace cohort::server {

struct ServiceOptions {
  std::string api_key;      // empty: none is asked for
  std::string cors_origin;  // empty: browsers may use the server only from its own page
  std::string alias;        // the model's name in the API; empty: its own
  /// Requests must name the server by an address, as localhost, or by one of `allowed_hosts` (* is any name). start()
  /// sets it when the server listens on loopback only, or when there are such names.
  bool check_host = false;
  std::vector<std::string> allowed_hosts;
  size_t queue_limit = 256;
  /// Gets a line for each request that has ended (request_log.h); empty: none are written. Called on the threads of
  /// connections, several at once.
  std::function<void(std::string_view line)> log_request;
  /// GB/s that the host reads from memory, for the share of the roofline (0: not known). Called once, when the model is
  /// loaded, unless its device knows its own; may be empty.
  std::function<double()> measure_bandwidth;
};

/// A loaded model. Immutable but for the loop, which is thread-safe.
struct Ready {
  TextModel text;
  std::string name;
  int64_t created = 0;   // Unix seconds
  double bandwidth = 0;  // GB/s; 0: not known
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<Constraints> constraints;  // thread-safe
};

class Service {
 public:
  explicit Service(ServiceOptions options) : options_(std::move(options)) {}

  const ServiceOptions& options() const { return options_; }

  /// Null while loading and after stop().
  std::shared_ptr<const Ready> ready() const {
    const std::scoped_lock lock(mutex_);
    return ready_;
  }
  void set_ready(std::shared_ptr<const Ready> ready) {
    const std::scoped_lock lock(mutex_);
    ready_ = std::move(ready);
  }

  struct Loading {
    std::string what;
    double fraction = 0;
    std::optional<Error> error;
  };
  Loading loading() const {
    const std::scoped_lock lock(mutex_);
    return loading_;
  }
  void set_loading(Loading loading) {
    const std::scoped_lock lock(mutex_);
    loading_ = std::move(loading);
  }

  std::atomic<bool> draining{false};

 private:
  const ServiceOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Ready> ready_;
  Loading loading_;
};

}  // namespace cohort::server
