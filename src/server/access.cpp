#include "server/access.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <string>

namespace cohort::server {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// Compares in a time that depends only on the lengths.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

bool is_address(std::string_view host) {
  boost::system::error_code code;
  boost::asio::ip::make_address(std::string(host), code);
  return !code;
}

/// Without the port, the brackets of IPv6 and the dot that ends a full name.
std::string_view name_of(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? host : host.substr(1, end - 1);
  }
  // More than one colon: an address of IPv6 without its brackets.
  if (const size_t colon = host.find(':'); colon == host.rfind(':')) host = host.substr(0, colon);
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  boost::system::error_code code;
  const auto address = boost::asio::ip::make_address(std::string(host), code);
  return !code && address.is_loopback();
}

bool is_listen_address(std::string_view host) {
  return host == "localhost" || is_address(host);
}

bool authorised(const ServiceOptions& options, const HttpRequest& request) {
  if (options.api_key.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  return given.size() >= kBearer.size() && same_name(given.substr(0, kBearer.size()), kBearer) &&
         same_secret(given.substr(kBearer.size()), options.api_key);
}

bool host_allowed(const ServiceOptions& options, std::string_view host) {
  if (!options.check_host || host.empty()) return true;
  const std::string_view name = name_of(host);
  if (same_name(name, "localhost") || is_address(name)) return true;
  return std::ranges::any_of(options.allowed_hosts,
                             [&](const std::string& allowed) { return allowed == "*" || same_name(name, allowed); });
}

bool is_origin(std::string_view text) {
  if (text == "*") return true;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz", kMore = "0123456789.-";
  const auto made_of = [](std::string_view part, std::initializer_list<std::string_view> sets) {
    return std::ranges::all_of(part, [&](char c) {
      return std::ranges::any_of(sets, [&](std::string_view set) { return set.find(c) != std::string_view::npos; });
    });
  };
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0 || !made_of(text.substr(0, 1), {kLetters})) return false;
  if (!made_of(text.substr(0, scheme), {kLetters, kMore, "+"})) return false;
  std::string_view host = text.substr(scheme + 3), port;
  const size_t end = host.starts_with('[') ? std::min(host.find(']'), host.size() - 1) + 1 : host.find(':');
  if (end < host.size()) {
    port = host.substr(end);
    host = host.substr(0, end);
    if (port.size() < 2 || port[0] != ':' || !made_of(port.substr(1), {"0123456789"})) return false;
  }
  if (host.starts_with('[')) return host.ends_with(']') && is_address(host.substr(1, host.size() - 2));
  return !host.empty() && made_of(host, {kLetters, kMore, "_"});
}

bool is_json(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return same_name(type, "application/json");
}

}  // namespace cohort::server
