#include "server/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace cohort::server {
namespace {

/// Seconds with six digits, which JSON's own way of writing a double would not keep short.
std::string seconds(std::chrono::steady_clock::duration time) {
  return fmt::format("{:.6f}", std::chrono::duration<double>(time).count());
}

std::string json_text(std::string_view text) {
  constexpr size_t kShown = 200;
  return nlohmann::json(printable(text, kShown)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string request_line(const RequestRecord& r, std::chrono::system_clock::time_point now) {
  const auto second = std::chrono::floor<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - second).count();
  std::string out =
      fmt::format(R"({{"time":"{:%FT%T}.{:03}Z","id":{},"client":{},"method":{},"path":{},"status":{},"duration_s":{})",
                  fmt::gmtime(std::chrono::system_clock::to_time_t(second)), milliseconds, json_text(r.request.id),
                  json_text(r.request.client), json_text(r.request.method), json_text(r.request.path),
                  r.status == 0 ? "null" : std::to_string(r.status), seconds(r.end - r.begin));
  if (r.gone) out += R"(,"client_gone":true)";
  if (!r.notes.answer.empty()) {
    out += fmt::format(
        R"(,"answer":{},"model":{},"prompt_tokens":{},"cached_tokens":{},"generated_tokens":{},"ttft_s":{},"finish_reason":{})",
        json_text(r.notes.answer), json_text(r.notes.model), r.notes.prompt_tokens, r.notes.cached_tokens,
        r.notes.generated_tokens, r.notes.first_token ? seconds(*r.notes.first_token - r.begin) : "null",
        json_text(r.notes.finish_reason));
  }
  return out + "}\n";
}

}  // namespace cohort::server
