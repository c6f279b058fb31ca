// Bodies of requests: bytes -> JSON -> request, for both endpoints. Whatever comes in, the result is a request or an
// error with a message that is a valid body itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/openai/request.h"
#include "server/openai/response.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort::server;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Api api : {Api::completions, Api::chat}) {
    const auto request = parse_generation_request(api, body);
    if (request) {
      const bool something = api == Api::chat ? !request->messages.empty() : !request->prompts.empty();
      if (!something || request->choices < 1 || (request->max_tokens && *request->max_tokens < 1)) std::abort();
      continue;
    }
    const int status = status_of(request.error());
    if (status != 400 || request.error().message.empty()) std::abort();
    if (!nlohmann::json::accept(error_body(status, request.error().message))) std::abort();
  }
  return 0;
}
