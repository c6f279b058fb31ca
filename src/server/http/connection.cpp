#include "server/http/connection.h"

#include <fmt/format.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "server/http/request_head.h"
#include "server/openai/response.h"

namespace cohort::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

/// Bytes of further requests that are read ahead while one is answered.
constexpr size_t kReadAhead = size_t{64} << 10;
/// What is read and thrown away so that a client which still sends gets to see the refusal.
constexpr size_t kLingerBytes = size_t{64} << 20;
constexpr std::chrono::seconds kLingerTime{2};

using Code = boost::system::error_code;

std::string name_of_peer(const asio::ip::tcp::socket& socket) {
  Code code;
  const auto peer = socket.remote_endpoint(code);
  if (code) return {};  // gone already
  const std::string address = peer.address().to_string(code);
  return peer.address().is_v6() ? fmt::format("[{}]:{}", address, peer.port())
                                : fmt::format("{}:{}", address, peer.port());
}

template <class View>
std::string to_string(const View& view) {
  return std::string(view.data(), view.size());
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : context_(context),
      stream_(std::move(socket)),
      buffer_(kReadAhead + context.options.header_limit),
      client_(name_of_peer(stream_.socket())) {
  ++context_.open;
  Code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(asio::socket_base::keep_alive(true), ignored);
  stream_.socket().non_blocking(true, ignored);
}

Connection::~Connection() {
  no_longer_busy();
  --context_.open;
}

void Connection::start() {
  post([this] { read_header(); });
}

void Connection::post(std::function<void()> task) {
  asio::post(stream_.get_executor(), [self = self(), task = std::move(task)] { task(); });
}

void Connection::dispatch(std::function<void()> task) {
  asio::dispatch(stream_.get_executor(), [self = self(), task = std::move(task)] { task(); });
}

void Connection::read_header() {
  waiting_ = true;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(context_.options.header_limit));
  parser_->body_limit(context_.options.body_limit);
  stream_.expires_after(context_.options.idle_timeout);
  http::async_read_header(stream_, buffer_, *parser_, [self = self()](Code code, size_t) { self->header_read(code); });
}

/// What the head says, also of a request that is refused for it.
void Connection::take_head() {
  begin_ = std::chrono::steady_clock::now();
  request_ = {};
  notes_ = {};
  status_ = 0;
  const auto& head = parser_->get().base();
  request_.id = request_id(head);
  request_.client = client_;
  request_.method = to_string(head.method_string());
  read_target(head, request_);
}

void Connection::header_read(Code code) {
  if (closed_) return;
  if (!code || code == http::error::header_limit || code == http::error::buffer_overflow ||
      code == http::error::body_limit) {
    take_head();
  }
  if (code == http::error::header_limit || code == http::error::buffer_overflow) {
    return refuse(431, fmt::format("the header is larger than {} bytes", context_.options.header_limit));
  }
  if (code == http::error::body_limit) {
    return refuse(413, fmt::format("the body is larger than {} bytes", context_.options.body_limit));
  }
  if (code == http::error::end_of_stream || code == beast::error::timeout || code == asio::error::operation_aborted ||
      code == asio::error::eof || code == asio::error::connection_reset || code == http::error::partial_message) {
    return close();
  }
  if (code) {
    take_head();  // as far as it could be read
    return refuse(400, fmt::format("the request is not HTTP/1.1: {}", code.message()));
  }
  waiting_ = false;
  if (const auto refusal = refusal_of(parser_->get())) return refuse(refusal->status, refusal->message);
  if (parser_->get().count(http::field::expect) == 0) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.expires_after(context_.options.write_timeout);
  asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()), [self = self()](Code error, size_t) {
    if (error) return self->close();
    self->read_body();
  });
}

void Connection::read_body() {
  stream_.expires_after(context_.options.body_timeout);
  http::async_read(stream_, buffer_, *parser_, [self = self()](Code code, size_t) { self->body_read(code); });
}

void Connection::body_read(Code code) {
  if (closed_) return;
  if (code == http::error::body_limit) {
    return refuse(413, fmt::format("the body is larger than {} bytes", context_.options.body_limit));
  }
  if (code == asio::error::eof || code == http::error::partial_message || code == asio::error::connection_reset ||
      code == asio::error::operation_aborted || code == http::error::end_of_stream || code == beast::error::timeout) {
    record(true);
    return close();
  }
  if (code) return refuse(400, fmt::format("the request is not HTTP/1.1: {}", code.message()));
  dispatch();
}

/// An answer to something that is no request; the connection cannot go on after it.
void Connection::refuse(int status, std::string_view message) {
  waiting_ = false;
  answering_ = true;
  keep_alive_ = false;
  head_only_ = false;
  respond({.status = status, .content_type = "application/json", .body = error_body(status, message), .headers = {}});
}

void Connection::dispatch() {
  auto message = parser_->release();
  request_.content_type = to_string(message[http::field::content_type]);
  request_.authorization = to_string(message[http::field::authorization]);
  request_.body = std::move(message.body());
  keep_alive_ = message.keep_alive();
  chunked_ = message.version() >= 11;
  head_only_ = request_.method == "HEAD";
  if (head_only_) request_.method = "GET";
  answering_ = true;
  complete_ = streaming_ = false;
  // In this order: who sees no busy connection after it has set `closing` has seen all that count.
  busy_ = true;
  ++context_.busy;
  if (context_.closing) no_longer_busy();
  const std::shared_ptr<Exchange> exchange = shared_from_this();
  watch();
  context_.handler(exchange);
}

/// While a request is answered, a read shows whether the client is still there; what it sends early is kept for later.
void Connection::watch() {
  if (watching_ || !answering_ || closed_ || buffer_.size() >= kReadAhead) return;
  watching_ = true;
  stream_.socket().async_read_some(buffer_.prepare(4096), [self = self()](Code code, size_t bytes) {
    self->watching_ = false;
    self->buffer_.commit(bytes);
    if (self->closed_) return;
    if (code == asio::error::operation_aborted || !code) {
      if (self->complete_) return self->next_request();
      return self->watch();
    }
    const bool ended = code == asio::error::eof;
    self->ended_ |= ended;
    if (self->answering_) return ended ? self->half_closed() : self->gone();
    // The answer was complete and is still being written, or the next request is due: it may have been read already.
    if (self->complete_) return ended ? self->next_request() : self->close();
    if (!ended) self->keep_alive_ = false;
  });
}

/// The client sends no more: it has gone, or it only waits for the answer. What it gets now tells, because a client
/// that has gone answers it with a reset: a comment of the stream, or one of the interim answers that every client of
/// HTTP/1.1 has to skip. Clients of HTTP/1.0 know none and are answered on trust.
void Connection::half_closed() {
  static constexpr std::string_view kInterim = "HTTP/1.1 100 Continue\r\n\r\n";
  // Before anything is sent: the reset may come at once.
  watching_ = true;
  stream_.socket().async_wait(asio::socket_base::wait_error, [self = self()](Code) {
    self->watching_ = false;
    if (self->closed_) return;
    if (self->complete_) return self->next_request();
    if (self->answering_) self->gone();
  });
  if (streaming_) {
    write(":\n\n");
  } else if (chunked_ && !writing_) {
    Code code;
    stream_.socket().write_some(asio::buffer(kInterim.data(), kInterim.size()), code);
    if (code) gone();
  }
}

void Connection::no_longer_busy() {
  if (std::exchange(busy_, false)) --context_.busy;
}

void Connection::gone() {
  const auto callback = std::exchange(on_gone_, {});
  const bool answering = std::exchange(answering_, false);
  close();
  if (!answering) return;
  post([this, callback] {  // not from within what the callback's owner is doing
    if (callback) callback();
    record(true);
  });
}

/// Tells the log. Once for each request.
void Connection::record(bool gone) {
  if (!context_.options.on_answered) return;
  context_.options.on_answered({request_, notes_, status_, gone, begin_, std::chrono::steady_clock::now()});
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  waiting_ = false;
  no_longer_busy();
  Code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
}

void Connection::on_gone(std::function<void()> callback) {
  on_gone_ = std::move(callback);
  if (closed_ && on_gone_) post(std::exchange(on_gone_, {}));
}

/// The answer is complete; when it has been written, the next request is read.
void Connection::answered() {
  if (writing_ || closed_) return;
  if (!keep_alive_) {
    stream_.expires_after(kLingerTime);
    Code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    if (!watching_) return linger();
    // The outstanding read sees the client close; the timer below bounds that.
    complete_ = true;
    stream_.socket().cancel(ignored);
    return;
  }
  complete_ = true;
  if (watching_) {
    Code ignored;
    stream_.socket().cancel(ignored);
    return;
  }
  next_request();
}

void Connection::next_request() {
  complete_ = false;
  if (!keep_alive_) return linger();
  if (ended_ && buffer_.size() == 0) return close();            // another read would not be told of the end again
  if (context_.closing && buffer_.size() == 0) return close();  // the head of its answer is from before
  no_longer_busy();
  read_header();
}

void Connection::linger() {
  if (closed_) return;
  if (ended_ || lingered_ > kLingerBytes) return close();
  if (lingered_ == 0) stream_.expires_after(kLingerTime);
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(16384), [self = self()](Code code, size_t bytes) {
    self->lingered_ += bytes + 1;
    if (code || self->closed_) return self->close();
    self->linger();
  });
}

}  // namespace cohort::server
