// What is written of each request when it has ended (--log-requests): who, what, how much, how long; never the text.
#pragma once

#include <chrono>
#include <string>

#include "server/http/exchange.h"

namespace cohort::server {

/// One JSON object and a line feed. `now` is the time of writing. Fields, in this order: time (UTC), id (X-Request-Id),
/// client, method, path (without its query), status (null: the client had gone before one was sent), duration_s;
/// client_gone (only when true); and of completions answer, model, prompt_tokens, cached_tokens, generated_tokens,
/// ttft_s (null without a token), finish_reason.
std::string request_line(const RequestRecord& record, std::chrono::system_clock::time_point now);

}  // namespace cohort::server
