// Who may use the server: keys, the names that it answers to, and what pages of other sites cannot send.
#pragma once

#include <string_view>

#include "server/http/exchange.h"
#include "server/service.h"

namespace cohort::server {

/// True for 127.x.y.z, ::1 and localhost.
bool is_loopback(std::string_view host);

/// An IP address, or localhost: what a server can listen on.
bool is_listen_address(std::string_view host);

/// The request has the server's key, or the server asks for none.
bool authorised(const ServiceOptions& options, const HttpRequest& request);

/// The request's Host is one that this server goes by. A page of another site can have its own name resolved to
/// 127.0.0.1, so that the browser takes the server for a part of that site; the name stays in Host. Addresses,
/// localhost and the names of `allowed_hosts` are fine, and everything when the server does not check (it listens on
/// more than loopback and has no such names), or without a Host (HTTP/1.0, which browsers do not speak).
bool host_allowed(const ServiceOptions& options, std::string_view host);

/// "*", or an origin as browsers write it: scheme://host[:port], in lower case.
bool is_origin(std::string_view text);

/// application/json, with or without parameters.
bool is_json(std::string_view content_type);

}  // namespace cohort::server
