#include "server/server.h"

#include <condition_variable>
#include <thread>

#include "base/result.h"
#include "models/model.h"
#include "server/access.h"
#include "server/api.h"
#include "server/request_log.h"

namespace cohort::server {

struct Server::Impl {
  ServerOptions options;
  std::unique_ptr<Service> service;
  std::unique_ptr<HttpServer> http;
  std::thread loader;
  std::mutex mutex;
  std::condition_variable loaded;

  Expected<std::shared_ptr<const Ready>> load(const ProgressCallback& progress);
};

Expected<std::shared_ptr<const Ready>> Server::Impl::load(const ProgressCallback& progress) {
  COHORT_ASSIGN(std::unique_ptr<Engine> engine, Engine::create(options.engine, [&](std::string_view what, double part) {
                  service->set_loading({std::string(what), part, {}});
                  if (progress) progress(what, part);
                }));
  COHORT_ASSIGN(TextModel text, load_text_model(engine->model()));
  double bandwidth = engine->device_bandwidth() / 1e9;
  if (bandwidth <= 0 && options.service.measure_bandwidth) {
    service->set_loading({"measuring memory", 1, {}});
    bandwidth = options.service.measure_bandwidth();
  }
  std::string name = options.service.alias.empty() ? engine->model().config().name : options.service.alias;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  auto constraints = std::make_unique<Constraints>(text.tokenizer);
  auto loop = std::make_unique<EngineLoop>(
      std::move(engine), options.service.queue_limit,
      [http = http.get()](std::function<void()> events) { http->post(std::move(events)); });
  return std::make_shared<const Ready>(Ready{std::move(text), std::move(name),
                                             std::chrono::duration_cast<std::chrono::seconds>(now).count(), bandwidth,
                                             std::move(loop), std::move(constraints)});
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<Server>> Server::start(const ServerOptions& options, const ProgressCallback& progress) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  ServiceOptions service_options = options.service;
  service_options.check_host = is_loopback(options.http.host) || !service_options.allowed_hosts.empty();
  impl->service = std::make_unique<Service>(std::move(service_options));
  HttpOptions http = options.http;
  if (!options.service.cors_origin.empty()) {
    http.extra_headers = "Access-Control-Allow-Origin: " + options.service.cors_origin +
                         "\r\nAccess-Control-Expose-Headers: X-Request-Id\r\nVary: Origin\r\n";
  }
  if (const auto& log = options.service.log_request) {
    http.on_answered = [log](const RequestRecord& record) {
      log(request_line(record, std::chrono::system_clock::now()));
    };
  }
  COHORT_ASSIGN(impl->http, HttpServer::create(http, [service = impl->service.get()](const auto& exchange) {
                  handle(*service, exchange);
                }));
  impl->loader = std::thread([impl = impl.get(), progress] {
    auto ready = impl->load(progress);
    const std::scoped_lock lock(impl->mutex);
    if (ready) {
      impl->service->set_ready(std::move(*ready));
    } else {
      impl->service->set_loading({"failed", 0, ready.error()});
    }
    impl->loaded.notify_all();
  });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  impl_->loader.join();
  impl_->http->stop();
  // The engine's thread may still hand events to connections, which outlive it.
  if (const auto ready = impl_->service->ready()) ready->loop->stop();
  impl_->service->set_ready(nullptr);
}

uint16_t Server::port() const {
  return impl_->http->port();
}

size_t Server::connections() const {
  return impl_->http->connections();
}

std::shared_ptr<const Ready> Server::ready() const {
  return impl_->service->ready();
}

Expected<bool> Server::wait_ready(std::chrono::milliseconds timeout) {
  std::unique_lock lock(impl_->mutex);
  const auto done = [this] { return impl_->service->ready() != nullptr || impl_->service->loading().error; };
  if (!impl_->loaded.wait_for(lock, timeout, done)) return false;
  if (const auto loading = impl_->service->loading(); loading.error) return tl::unexpected<Error>(*loading.error);
  return true;
}

void Server::drain() {
  impl_->service->draining = true;
  if (const auto ready = impl_->service->ready()) ready->loop->drain();
  impl_->http->drain();
}

bool Server::drained() const {
  const auto ready = impl_->service->ready();
  return (ready == nullptr || ready->loop->idle()) && impl_->http->drained();
}

}  // namespace cohort::server
