#include "measure/http_stream.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "base/printable.h"
#include "base/result.h"

namespace cohort {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

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

Expected<StreamedAnswer> stream_completion(const ServerAddress& address, const std::string& api_key,
                                           const std::string& body) {
  boost::system::error_code code;
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  const auto broken = [&](std::string_view what) {
    return fail(ErrorCode::io, "{} {}:{}: {}", what, address.host, address.port, code.message());
  };
  const auto found = asio::ip::tcp::resolver(io).resolve(address.host, address.port, code);
  if (!code) asio::connect(socket, found, code);
  if (code) return broken("cannot connect to");
  socket.set_option(asio::ip::tcp::no_delay(true), code);

  http::request<http::string_body> request(http::verb::post, address.base + "/v1/completions", 11);
  request.set(http::field::host, address.authority());
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  request.body() = body;
  request.prepare_payload();

  StreamedAnswer answer;
  answer.sent = Clock::now();
  http::write(socket, request, code);
  if (code) return broken("cannot send to");
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  size_t at = 0;
  while (!parser.is_done()) {
    http::read_some(socket, buffer, parser, code);
    if (code) return broken("no complete answer from");
    if (parser.is_header_done() && parser.get().result_int() == 200)
      COHORT_TRY(take_events(parser.get().body(), at, answer));
  }
  answer.ended = Clock::now();
  if (parser.get().result_int() != 200) {
    return fail(ErrorCode::invalid_argument, "the server answered {}: {}", parser.get().result_int(),
                parser.get().body().substr(0, 500));
  }
  if (answer.pieces.empty()) return fail(ErrorCode::invalid_argument, "the server's answer is no stream of events");
  return answer;
}

}  // namespace cohort
