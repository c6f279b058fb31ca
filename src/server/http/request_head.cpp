#include "server/http/request_head.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <iterator>
#include <random>
#include <string_view>

#include "base/printable.h"
#include "base/result.h"

namespace cohort::server {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr size_t kShown = 100;
constexpr unsigned kHttp11 = 11;

template <class View>
std::string_view view_of(const View& text) {
  return {text.data(), text.size()};
}

template <class View>
std::string shown(const View& text) {
  return printable(view_of(text), kShown);
}

/// Bytes of "http://" or "https://" that `target` begins with.
size_t scheme_size(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (beast::iequals({target.data(), std::min(target.size(), scheme.size())}, {scheme.data(), scheme.size()}))
      return scheme.size();
  }
  return 0;
}

}  // namespace

std::optional<Refusal> refusal_of(const http::request_header<>& head) {
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() >= kHttp11))
    return Refusal{400, fmt::format("the request has {} 'Host' headers; HTTP/1.1 needs one", hosts)};
  const auto [begin, end] = head.equal_range(http::field::transfer_encoding);
  if (begin != end) {
    if (head.version() < kHttp11)
      return Refusal{400, "HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1"};
    if (std::next(begin) != end || !beast::iequals(begin->value(), "chunked"))
      return Refusal{501, fmt::format("the request's Transfer-Encoding is '{}'; only chunked is served",
                                      shown(std::prev(end)->value()))};
  }
  for (auto [at, last] = head.equal_range(http::field::content_encoding); at != last; ++at) {
    if (!beast::iequals(at->value(), "identity"))
      return Refusal{415,
                     fmt::format("the body's Content-Encoding is '{}'; send the body as it is", shown(at->value()))};
  }
  for (auto [at, last] = head.equal_range(http::field::expect); at != last; ++at) {
    if (!beast::iequals(at->value(), "100-continue"))
      return Refusal{417, fmt::format("the request expects '{}'; only 100-continue is known", shown(at->value()))};
  }
  return std::nullopt;
}

void read_target(const http::request_header<>& head, HttpRequest& request) {
  std::string_view target = view_of(head.target());
  std::string_view host = view_of(head[http::field::host]);
  if (const size_t scheme = scheme_size(target); scheme > 0) {
    target.remove_prefix(scheme);
    const size_t size = std::min(target.find_first_of("/?"), target.size());
    host = target.substr(0, size);
    target.remove_prefix(size);
  }
  request.host = host;
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  request.path = path.empty() ? std::string_view("/") : path;
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
}

std::string request_id(const http::request_header<>& head) {
  constexpr size_t kLongest = 128;
  const std::string_view given = view_of(head["X-Request-Id"]);
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:").find(c) != std::string_view::npos;
  };
  if (!given.empty() && given.size() <= kLongest && std::ranges::all_of(given, plain)) return std::string(given);
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{:016x}", generator());
}

}  // namespace cohort::server
