#include "measure/http_stream.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/printable.h"
#include "base/result.h"

namespace cohort {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Endpoints = asio::ip::tcp::resolver::results_type;

namespace {

constexpr size_t kShownUrl = 200;

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

/// A chunk with a choice and neither usage nor error. Within a JSON string a quote follows a backslash, so that these
/// names with both of their quotes are keys. Parsing every chunk would take the processor from a server beside us.
bool is_plain_piece(std::string_view event) {
  const auto has = [&](std::string_view part) { return event.find(part) != std::string_view::npos; };
  return (has("\"choices\":[{") || has("\"choices\": [{")) && !has("\"usage\"") && !has("\"error\"");
}

/// Takes the complete events out of `text` from `at` on.
Expected<void> take_events(std::string_view text, size_t& at, StreamedAnswer& answer) {
  constexpr std::string_view kData = "data: ";
  for (size_t end; (end = text.find("\n\n", at)) != std::string_view::npos; at = end + 2) {
    const std::string_view event = text.substr(at, end - at);
    if (!event.starts_with(kData) || event.substr(kData.size()) == "[DONE]") continue;
    if (is_plain_piece(event)) {
      answer.pieces.push_back(Clock::now());
      continue;
    }
    COHORT_ASSIGN(const nlohmann::json chunk, parse_json(event.substr(kData.size()), "an event of the server"));
    const JsonObject root(chunk, "an event of the server");
    if (const auto* error = root.find("error")) return fail(ErrorCode::invalid_argument, "{}", error->dump());
    if (const auto* usage = root.find("usage")) {
      const JsonObject counts(*usage, "usage");
      COHORT_ASSIGN(answer.prompt_tokens, counts.get_int("prompt_tokens", 0));
      COHORT_ASSIGN(answer.completion_tokens, counts.get_int("completion_tokens", 0));
    }
    if (const auto* choices = root.find("choices"); choices != nullptr && choices->is_array() && !choices->empty())
      answer.pieces.push_back(Clock::now());
  }
  return {};
}

/// One request and its answer. Reads when it is told that there is something to read.
class StreamClient {
 public:
  StreamClient(asio::io_context& io, const ServerAddress& address, const std::string& api_key, const std::string& body)
      : address_(address), socket_(io), request_(http::verb::post, address.base + "/v1/completions", 11) {
    request_.set(http::field::host, address.authority());
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    if (!api_key.empty()) request_.set(http::field::authorization, "Bearer " + api_key);
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(std::numeric_limits<uint64_t>::max());
    parser_.eager(true);
  }

  void connect(const Endpoints& endpoints) {
    Code code;
    asio::connect(socket_, endpoints, code);
    if (code) return fail_with("cannot connect to", code);
    socket_.set_option(asio::ip::tcp::no_delay(true), code);
  }

  void send() {
    if (result_) return;
    answer_.sent = Clock::now();
    Code code;
    http::write(socket_, request_, code);
    if (code) return fail_with("cannot send to", code);
  }

  bool done() const { return result_.has_value(); }
  int descriptor() { return socket_.native_handle(); }

  /// Waits if there is nothing.
  void read() {
    constexpr size_t kPiece = 16384;
    Code code;
    const size_t bytes = socket_.read_some(buffer_.prepare(kPiece), code);
    const bool ended = code == asio::error::eof;
    if (code && !ended) return fail_with("no complete answer from", code);
    buffer_.commit(bytes);
    code = {};
    if (ended) {
      parser_.put_eof(code);
      if (!code && !parser_.is_done()) code = http::error::partial_message;
    }
    while (!code && buffer_.size() > 0 && !parser_.is_done()) {
      const size_t used = parser_.put(buffer_.data(), code);
      buffer_.consume(used);
      if (used == 0) break;
    }
    if (code == http::error::need_more) code = {};
    if (code) return fail_with("no complete answer from", code);
    take();
  }

  Expected<StreamedAnswer> result() { return std::move(*result_); }

 private:
  using Code = boost::system::error_code;

  void fail_with(std::string_view what, Code code) {
    result_ = fail(ErrorCode::io, "{} {}:{}: {}", what, address_.host, address_.port, code.message());
  }

  void take() {
    if (!parser_.is_header_done()) return;
    auto& message = parser_.get();
    const bool good = message.result_int() == 200;
    if (good) {
      size_t taken = 0;
      if (auto events = take_events(message.body(), taken, answer_); !events) {
        result_ = tl::unexpected<Error>(events.error());
        return;
      }
      message.body().erase(0, taken);
    }
    if (!parser_.is_done()) return;
    answer_.ended = Clock::now();
    if (!good) {
      result_ = fail(ErrorCode::invalid_argument, "the server answered {}: {}", message.result_int(),
                     message.body().substr(0, 500));
    } else if (answer_.pieces.empty()) {
      result_ = fail(ErrorCode::invalid_argument, "the server's answer is no stream of events");
    } else {
      result_ = std::move(answer_);
    }
  }

  const ServerAddress& address_;
  asio::ip::tcp::socket socket_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
  StreamedAnswer answer_;
  std::optional<Expected<StreamedAnswer>> result_;
};

/// Until all have their results. One look at all sockets for whatever has come to any of them.
void read_all(std::deque<StreamClient>& clients) {
  std::vector<StreamClient*> open;
  std::vector<pollfd> sockets;
  for (;;) {
    open.clear();
    sockets.clear();
    for (StreamClient& client : clients) {
      if (client.done()) continue;
      open.push_back(&client);
      sockets.push_back({client.descriptor(), POLLIN, 0});
    }
    if (open.empty()) return;
    for (bool changed = false; !changed;) {
      if (poll(sockets.data(), sockets.size(), -1) <= 0) continue;  // a signal
      for (size_t i = 0; i < open.size(); ++i) {
        if (sockets[i].revents == 0) continue;
        open[i]->read();
        changed |= open[i]->done();
      }
    }
  }
}

}  // namespace

std::string ServerAddress::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == "80" ? name : name + ":" + port;
}

Expected<ServerAddress> parse_url(const std::string& url) {
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, "the URL '{}' {}; expected http://HOST:PORT or http://HOST:PORT/v1",
                printable(url, kShownUrl), why);
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return wrong("does not begin with http://");
  std::string rest = url.substr(kScheme.size());
  ServerAddress address;
  if (const size_t end = rest.find_first_of("/?#"); end != std::string::npos) {
    address.base = rest.substr(end);
    rest.resize(end);
    if (address.base.find_first_of("?#") != std::string::npos) return wrong("has more than a path");
    while (address.base.ends_with('/')) address.base.pop_back();
    constexpr std::string_view kApi = "/v1";
    if (address.base.ends_with(kApi)) {
      address.base.resize(address.base.size() - kApi.size());
    } else if (!address.base.empty()) {
      return wrong("has a path that does not end in /v1");
    }
  }
  const bool bracketed = rest.starts_with('[');
  const size_t host_end = bracketed ? rest.find(']') : rest.find(':');
  if (bracketed && host_end == std::string::npos) return wrong("has no ] behind its address");
  address.host = bracketed ? rest.substr(1, host_end - 1) : rest.substr(0, host_end);
  rest = host_end == std::string::npos ? "" : rest.substr(host_end + (bracketed ? 1 : 0));
  boost::system::error_code code;
  if (bracketed) {
    asio::ip::make_address_v6(address.host, code);
    if (code) return wrong("has no address of IPv6 between its brackets");
  } else if (address.host.empty() || !std::ranges::all_of(address.host, is_host_character)) {
    return wrong("names no host");
  }
  if (rest.empty()) {
    address.port = "80";
    return address;
  }
  address.port = rest.substr(1);
  int number = 0;
  const char* end = address.port.data() + address.port.size();
  const auto [at, error] = std::from_chars(address.port.data(), end, number);
  constexpr int kMaxPort = 65535;
  if (rest[0] != ':' || error != std::errc() || at != end || number < 1 || number > kMaxPort)
    return wrong("has a port that is no number from 1 to 65535 (an address of IPv6 needs brackets)");
  return address;
}

std::vector<Expected<StreamedAnswer>> stream_completions(const ServerAddress& address, const std::string& api_key,
                                                         const std::vector<std::string>& bodies) {
  asio::io_context io;
  boost::system::error_code code;
  const auto endpoints = asio::ip::tcp::resolver(io).resolve(address.host, address.port, code);
  std::vector<Expected<StreamedAnswer>> answers;
  if (code) {
    answers.assign(bodies.size(),
                   fail(ErrorCode::io, "cannot resolve {}:{}: {}", address.host, address.port, code.message()));
    return answers;
  }
  std::deque<StreamClient> clients;
  for (const std::string& body : bodies) clients.emplace_back(io, address, api_key, body).connect(endpoints);
  for (StreamClient& client : clients) client.send();
  read_all(clients);
  for (StreamClient& client : clients) answers.push_back(client.result());
  return answers;
}

}  // namespace cohort
