#include "measure/http_stream.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace cohort {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

namespace {

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

Expected<ServerAddress> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    return fail(ErrorCode::invalid_argument, "--url is '{}'; expected http://HOST:PORT", url);
  std::string rest = url.substr(kScheme.size());
  ServerAddress address;
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    address.base = rest.substr(slash);
    rest.resize(slash);
    while (address.base.ends_with('/')) address.base.pop_back();
    if (address.base.ends_with("/v1")) address.base.resize(address.base.size() - 3);
  }
  const size_t colon = rest.rfind(':');
  address.host = rest.substr(0, colon);
  address.port = colon == std::string::npos ? "80" : rest.substr(colon + 1);
  if (address.host.empty() || address.port.empty())
    return fail(ErrorCode::invalid_argument, "--url is '{}'; expected http://HOST:PORT", url);
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
  request.set(http::field::host, address.host);
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
