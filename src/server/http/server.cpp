#include "server/http/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/thread_name.h"
#include "server/http/connection.h"

namespace cohort::server {

namespace asio = boost::asio;
using asio::ip::tcp;

struct HttpServer::Impl {
  ConnectionContext context;
  asio::io_context io;  // destroyed first: its pending operations hold the connections
  // A connection whose client has gone waits for the engine with no operation pending: when nothing is accepted any
  // more, the threads have to stay for it.
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::strand<asio::io_context::executor_type> strand{io.get_executor()};
  asio::strand<asio::io_context::executor_type> tasks{io.get_executor()};  // of post()
  tcp::acceptor acceptor{strand};
  asio::steady_timer retry{strand};
  std::vector<std::thread> threads;

  Expected<void> listen();
  void accept();
  void add(tcp::socket socket);
};

Expected<void> HttpServer::Impl::listen() {
  const HttpOptions& o = context.options;
  boost::system::error_code code;
  const auto address = asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host, code);
  if (code) {
    return fail(ErrorCode::invalid_argument, "--host is '{}'; expected an address such as 127.0.0.1, 0.0.0.0 or ::1",
                o.host);
  }
  const tcp::endpoint endpoint(address, o.port);
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) {
    return fail(ErrorCode::io, "cannot listen on {}:{}: {} (choose another address with --host and --port)", o.host,
                o.port, code.message());
  }
  return {};
}

void HttpServer::Impl::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](boost::system::error_code code, tcp::socket socket) {
    if (code == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (code) {  // out of file descriptors, mostly: others will be closed
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](boost::system::error_code cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    add(std::move(socket));
    accept();
  });
}

void HttpServer::Impl::add(tcp::socket socket) {
  if (context.open >= context.options.connections) {
    log::warning("a connection is refused: {} are open, the limit", context.open.load());
    return;  // the socket closes
  }
  std::make_shared<Connection>(std::move(socket), context)->start();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<std::unique_ptr<HttpServer>> HttpServer::create(const HttpOptions& options, HttpHandler handler) {
  auto impl = std::make_unique<Impl>();
  impl->context.options = options;
  impl->context.handler = std::move(handler);
  COHORT_TRY(impl->listen());
  impl->accept();
  const int threads = std::max(options.threads, 1) + 1;  // what post() is given may keep one of them
  for (int i = 0; i < threads; ++i) {
    impl->threads.emplace_back([io = &impl->io] {
      name_thread("http");
      io->run();
    });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::stop() {
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

HttpServer::~HttpServer() {
  stop();
}

uint16_t HttpServer::port() const {
  boost::system::error_code code;
  return impl_->acceptor.local_endpoint(code).port();
}

void HttpServer::post(std::function<void()> task) {
  asio::post(impl_->tasks, std::move(task));
}

size_t HttpServer::connections() const {
  return impl_->context.open;
}

void HttpServer::drain() {
  impl_->context.closing = true;
}

bool HttpServer::drained() const {
  return impl_->context.busy == 0;
}

}  // namespace cohort::server
