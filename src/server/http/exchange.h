// One HTTP request and the answer to it, as handlers see them; nothing here knows sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::server {

struct HttpRequest {
  std::string id;      // the client's X-Request-Id, or a random one; sent back with the answer
  std::string client;  // address and port
  std::string method;  // "GET"
  std::string path;    // without the query
  std::string query;
  std::string host;  // as the request names it, with its port; empty when it does not (HTTP/1.0)
  std::string content_type, authorization;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside the usual ones
};

/// What a handler says of a request for the log: numbers, never texts.
struct RequestNotes {
  std::string answer;  // id of the completion; empty: the request was none
  std::string model;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::optional<std::chrono::steady_clock::time_point> first_token;
  std::string finish_reason;  // of the choices, with commas between
};

/// A request that has been answered, or whose client has gone.
struct RequestRecord {
  const HttpRequest& request;
  const RequestNotes& notes;
  int status = 0;  // 0: nothing had been sent
  bool gone = false;
  std::chrono::steady_clock::time_point begin;  // its head had been read
  std::chrono::steady_clock::time_point end;
};

/// All members are called on the exchange's own strand, that is, from the handler itself or from what post() runs.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  /// Filled by the handler before it ends its answer, or when it hears that the client has gone.
  virtual RequestNotes& notes() = 0;

  /// The whole answer; once, and not after begin_stream.
  virtual void respond(HttpResponse response) = 0;
  /// An answer in pieces: begin_stream, write as often as needed, end_stream.
  virtual void begin_stream(std::string_view content_type) = 0;
  virtual void write(std::string_view text) = 0;
  virtual void end_stream() = 0;
  /// What is written between these two leaves together, in one chunk. An end of the stream does not wait for release().
  virtual void hold() = 0;
  virtual void release() = 0;

  /// Called at most once, when the client goes away before the answer is complete; nothing may be sent then.
  virtual void on_gone(std::function<void()> callback) = 0;
  /// Runs `task` on the strand; callable from any thread.
  virtual void post(std::function<void()> task) = 0;
  /// The same, but at once where the caller is a thread of the server and nobody else is on the strand. Tasks of one
  /// thread keep their order.
  virtual void dispatch(std::function<void()> task) = 0;
};

using HttpHandler = std::function<void(const std::shared_ptr<Exchange>&)>;

}  // namespace cohort::server
