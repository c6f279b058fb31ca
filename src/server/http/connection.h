// One client's connection: reads requests one after another, watches whether the client is still there, writes answers.
#pragma once

#include <atomic>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http/exchange.h"
#include "server/http/server.h"

namespace cohort::server {

/// What connections share with their server. Outlives them.
struct ConnectionContext {
  HttpOptions options;
  HttpHandler handler;
  std::atomic<size_t> open{0};
  std::atomic<bool> closing{false};  // every answer is its connection's last one
  std::atomic<size_t> busy{0};       // connections with a request from before `closing` that is not answered and read
};

/// Everything runs on the strand of the socket. States: reading a request -> answering (the handler has it; the socket
/// is watched) -> writing the rest -> reading the next one, or closing.
class Connection final : public Exchange {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);
  ~Connection() override;
  void start();

  const HttpRequest& request() const override { return request_; }
  RequestNotes& notes() override { return notes_; }
  void respond(HttpResponse response) override;
  void begin_stream(std::string_view content_type) override;
  void write(std::string_view text) override;
  void end_stream() override;
  void hold() override { held_ = true; }
  void release() override;
  void on_gone(std::function<void()> callback) override;
  void post(std::function<void()> task) override;
  void dispatch(std::function<void()> task) override;

 private:
  using Code = boost::system::error_code;
  std::shared_ptr<Connection> self() { return std::static_pointer_cast<Connection>(shared_from_this()); }
  void read_header();
  void header_read(Code code);
  void read_body();
  void body_read(Code code);
  void take_head();
  void refuse(int status, std::string_view message);
  void dispatch();
  void watch();
  void half_closed();
  void no_longer_busy();
  void add_chunk(std::string_view text);
  void send();
  void flush();
  void answered();
  void next_request();
  void linger();
  void gone();
  void record(bool gone);
  void close();
  std::string head(int status, std::string_view content_type) const;

  ConnectionContext& context_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  HttpRequest request_;
  RequestNotes notes_;
  std::chrono::steady_clock::time_point begin_;
  int status_ = 0;  // of the answer, once its head has been written
  const std::string client_;
  bool keep_alive_ = true, chunked_ = true, head_only_ = false;
  bool waiting_ = true;     // for a request
  bool answering_ = false;  // the handler has a request and has not completed its answer
  bool watching_ = false;   // a read is outstanding while answering
  bool ended_ = false;      // the client sends no more
  bool streaming_ = false;  // the head of a streamed answer has been sent
  bool busy_ = false;       // counts in the context's `busy`
  bool writing_ = false, closed_ = false, complete_ = false;
  bool held_ = false;
  std::string held_text_;         // of a stream, not yet in a chunk
  std::string unsent_, sending_;  // bytes that wait, and those that an outstanding write is sending
  std::function<void()> on_gone_;
  size_t lingered_ = 0;
};

}  // namespace cohort::server
