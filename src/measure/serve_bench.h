// The speed of an OpenAI-compatible server, this one or another, as its clients see it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort {

struct ServeBenchOptions {
  std::string url = "http://127.0.0.1:8080";
  std::string model, api_key;  // empty: not sent
  std::vector<int32_t> concurrency{1, 2, 4, 8};
  int32_t prompt_tokens = 512;       // of each request, about: words are counted by the server's own tokenizer
  int32_t shared_prefix_tokens = 0;  // of those, the same for all requests
  int32_t max_tokens = 128;
  int32_t repeats = 3;     // of each level; one more before them is not counted
  bool ignore_eos = true;  // ask for exactly max_tokens (servers that know the field)
};

/// Middle, smallest and largest of the repeats.
struct Spread {
  double median = 0, low = 0, high = 0;
};

/// One level of concurrency: so many clients send one request each at the same moment.
struct ServeBenchLevel {
  int32_t concurrency = 0;
  int32_t ok = 0, failed = 0;                        // requests of all repeats
  std::string failure;                               // what the first failed one heard
  double prompt_tokens = 0, completion_tokens = 0;   // mean of a request, as the server counts
  double first_token_mean = 0, first_token_p95 = 0;  // seconds, over all requests
  double gap_p50 = 0, gap_p99 = 0;                   // seconds between two pieces of text
  Spread request_rate;                               // tokens a second of one request after its first token
  Spread decode_rate;                                // of all together, while all were decoding
  Spread whole_rate;  // of all together, from sending to the last token, prompts included
};

/// Runs all levels in order; `progress` hears what is being done. Errors: the URL, a server that cannot be reached or
/// refuses the first request.
Expected<std::vector<ServeBenchLevel>> bench_server(const ServeBenchOptions& options,
                                                    const std::function<void(std::string_view)>& progress);

std::string serve_bench_markdown(const std::vector<ServeBenchLevel>& levels);
std::string serve_bench_csv(const std::vector<ServeBenchLevel>& levels);
std::string serve_bench_json(const std::vector<ServeBenchLevel>& levels);
/// Aggregate decode rate over concurrency, with the spread of the repeats.
std::string serve_bench_svg(const std::vector<ServeBenchLevel>& levels, std::string_view title);

}  // namespace cohort
