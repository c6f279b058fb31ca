// The answers of a connection: their heads, their chunks, and how they get to the socket.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <ctime>
#include <iterator>

#include "base/log.h"
#include "server/http/connection.h"

namespace cohort::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

/// Memory of this size and less is kept for the connection's next answer.
constexpr size_t kKept = size_t{64} << 10;

std::string_view reason_of(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

/// Large answers do not leave their memory to the connection.
void empty(std::string& buffer) {
  if (buffer.capacity() > kKept) {
    buffer = {};
  } else {
    buffer.clear();
  }
}

}  // namespace

std::string Connection::head(int status, std::string_view content_type) const {
  return fmt::format(
             "HTTP/1.1 {} {}\r\nServer: cohort\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: "
             "{}\r\nX-Content-Type-Options: "
             "nosniff\r\nX-Request-Id: {}\r\nConnection: {}\r\n",
             status, reason_of(status), fmt::gmtime(std::time(nullptr)), content_type, request_.id,
             keep_alive_ ? "keep-alive" : "close") +
         context_.options.extra_headers;
}

void Connection::respond(HttpResponse response) {
  if (!answering_) return;
  answering_ = false;
  on_gone_ = {};
  if (context_.closing) keep_alive_ = false;
  std::string out = head(response.status, response.content_type);
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  if (response.status != 204) out += fmt::format("Content-Length: {}\r\n", response.body.size());
  out += "\r\n";
  if (!head_only_) out += response.body;
  status_ = response.status;
  record(false);
  unsent_ += out;
  send();
  answered();
}

void Connection::begin_stream(std::string_view content_type) {
  if (!answering_) return;
  if (!chunked_ || context_.closing) keep_alive_ = false;
  streaming_ = true;
  status_ = 200;
  unsent_ += head(200, content_type);
  unsent_ += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (chunked_) unsent_ += "Transfer-Encoding: chunked\r\n";
  unsent_ += "\r\n";
  send();
}

void Connection::add_chunk(std::string_view text) {
  if (text.empty()) return;
  if (!chunked_) {
    unsent_ += text;
    return;
  }
  fmt::format_to(std::back_inserter(unsent_), "{:x}\r\n", text.size());
  unsent_ += text;
  unsent_ += "\r\n";
}

void Connection::write(std::string_view text) {
  if (!answering_) return;
  if (held_) {
    held_text_ += text;
    return;
  }
  add_chunk(text);
  send();
}

void Connection::release() {
  held_ = false;
  if (!answering_ || held_text_.empty()) return;
  add_chunk(held_text_);
  held_text_.clear();
  send();
}

void Connection::end_stream() {
  if (!answering_) return;
  answering_ = false;
  on_gone_ = {};
  add_chunk(held_text_);
  held_text_.clear();
  if (chunked_) unsent_ += "0\r\n\r\n";
  record(false);
  send();
  answered();
}

void Connection::send() {
  if (closed_) return;
  if (const size_t unread = unsent_.size() + sending_.size(); answering_ && unread > context_.options.unsent_limit) {
    log::warning("a client reads too slowly ({} bytes unread); its connection is closed", unread);
    return gone();
  }
  if (!writing_ && !unsent_.empty()) flush();
}

/// Writes all that waits in one go: at once as far as the socket takes it, which is nearly always all, the rest when it
/// takes more.
void Connection::flush() {
  Code code;
  const size_t sent = stream_.socket().write_some(asio::buffer(unsent_), code);
  if (!code && sent == unsent_.size()) {
    empty(unsent_);
    return;
  }
  // Errors show again below, where they are dealt with.
  unsent_.erase(0, sent);
  writing_ = true;
  sending_.swap(unsent_);
  stream_.expires_after(context_.options.write_timeout);
  asio::async_write(stream_, asio::buffer(sending_), [self = self()](Code error, size_t) {
    self->writing_ = false;
    empty(self->sending_);
    if (self->closed_) return;
    if (error) return self->answering_ ? self->gone() : self->close();
    if (!self->unsent_.empty()) self->flush();
    if (!self->writing_ && !self->answering_) self->answered();
  });
}

}  // namespace cohort::server
