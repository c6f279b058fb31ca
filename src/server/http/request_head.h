// What the head of a request says about its body, its host and its target, and what of that is not served.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>

#include "server/http/exchange.h"

namespace cohort::server {

struct Refusal {
  int status = 400;
  std::string message;
};

/// Why a request with this head is not read any further; none when it is. Whatever is not understood of the body's
/// framing and coding is refused: a body that is taken for something else would be taken for the next request.
std::optional<Refusal> refusal_of(const boost::beast::http::request_header<>& head);

/// Fills path, query and host from the request's target and Host. A target in absolute form ("http://host/path") names
/// the host itself.
void read_target(const boost::beast::http::request_header<>& head, HttpRequest& request);

/// The request's X-Request-Id when it is 1 to 128 letters, digits, '-', '_', '.' or ':'; else 16 random digits.
std::string request_id(const boost::beast::http::request_header<>& head);

}  // namespace cohort::server
