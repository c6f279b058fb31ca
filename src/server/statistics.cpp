#include "server/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace cohort::server {
namespace {

void head(std::string& out, std::string_view name, std::string_view help, std::string_view type) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Number>
void single(std::string& out, std::string_view name, std::string_view help, std::string_view type,
            std::string_view labels, Number value) {
  head(out, name, help, type);
  fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", name, labels, value);
}

/// A label's value: backslash, quote and line feed escaped.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<size_t>(bucket)];
  ++total_;
  sum_ += value;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const {
  head(out, name, help, "histogram");
  auto to = std::back_inserter(out);
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], below);
  }
  fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, total_);
  fmt::format_to(to, "{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, total_);
}

std::string Statistics::prometheus(const Now& now, std::string_view model) const {
  std::string out;
  const std::string labels = fmt::format("model_name=\"{}\"", escaped(model));
  const Capacity& c = now.capacity;
  const double used = c.pages > 0 ? 1.0 - static_cast<double>(c.free_pages) / c.pages : 0;
  single(out, "vllm:num_requests_running", "Sequences that take part in steps.", "gauge", labels, now.running);
  std::array<size_t, 3> waiting{};  // more urgent than normal, normal, less urgent
  for (const auto& [priority, count] : now.waiting) waiting[priority < 0 ? 0 : priority == 0 ? 1 : 2] += count;
  single(out, "vllm:num_requests_waiting", "Sequences that wait for their first step, or to be read again.", "gauge",
         labels, waiting[0] + waiting[1] + waiting[2]);
  head(out, "cohort_requests_waiting", "Sequences that wait, by their priority: below 0, 0, above 0.", "gauge");
  fmt::format_to(std::back_inserter(out),
                 "cohort_requests_waiting{{{0},priority=\"urgent\"}} {1}\n"
                 "cohort_requests_waiting{{{0},priority=\"normal\"}} {2}\n"
                 "cohort_requests_waiting{{{0},priority=\"background\"}} {3}\n",
                 labels, waiting[0], waiting[1], waiting[2]);
  single(out, "vllm:kv_cache_usage_perc", "Share of KV pages that sequences hold, 0 to 1.", "gauge", labels, used);
  single(out, "vllm:num_preemptions_total", "Sequences whose pages were taken and computed again.", "counter", labels,
         preemptions);
  single(out, "vllm:prompt_tokens_total", "Prompt tokens read, those from the prefix cache too.", "counter", labels,
         prompt_tokens);
  single(out, "vllm:generation_tokens_total", "Tokens generated.", "counter", labels, generation_tokens);
  single(out, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", "counter", labels,
         prompt_tokens);
  single(out, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", "counter", labels,
         reused_tokens);
  single(out, "vllm:spec_decode_num_draft_tokens_total", "Guessed tokens that were checked.", "counter", labels,
         guesses);
  single(out, "vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were the next ones.", "counter",
         labels, right_guesses);
  first_token.write(out, "vllm:time_to_first_token_seconds", "From submission to the first token.", labels);
  inter_token.write(out, "vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", labels);
  request.write(out, "vllm:e2e_request_latency_seconds", "From submission to the last token.", labels);
  head(out, "vllm:request_success_total", "Sequences that ended, by reason.", "counter");
  fmt::format_to(std::back_inserter(out),
                 "vllm:request_success_total{{{0},finished_reason=\"stop\"}} {1}\n"
                 "vllm:request_success_total{{{0},finished_reason=\"length\"}} {2}\n"
                 "vllm:request_success_total{{{0},finished_reason=\"abort\"}} {3}\n"
                 "vllm:request_success_total{{{0},finished_reason=\"error\"}} {4}\n",
                 labels, finished_stop, finished_length, finished_cancelled, finished_failed);
  single(out, "cohort_requests_refused_total", "Requests refused because the queue was full.", "counter", labels,
         refused);
  step.write(out, "cohort_step_seconds", "Time of a step.", labels);
  rows.write(out, "cohort_rows_per_step", "Rows of a step: tokens read and decoded.", labels);
  distinct_experts.write(out, "cohort_distinct_experts", "Experts touched by a step, mean over its MoE layers.",
                         labels);
  single(out, "cohort_bytes_per_step", "Bytes of weights that the last step had to read.", "gauge", labels,
         now.last.bytes);
  if (now.bandwidth > 0 && now.last.seconds > 0) {
    single(out, "cohort_roofline_ratio",
           "Bytes of the last step by what memory can deliver in its time. Above 1: the weights stayed in the "
           "processor's cache, or the memory was busier while its bandwidth was measured.",
           "gauge", labels, now.last.bytes / now.last.seconds / (now.bandwidth * 1e9));
  }
  single(out, "cohort_weight_bytes_total", "Bytes of weights that all steps had to read.", "counter", labels,
         weight_bytes);
  single(out, "cohort_kv_pages", "KV pages.", "gauge", labels, c.pages);
  single(out, "cohort_kv_pages_free", "KV pages that no sequence holds.", "gauge", labels, c.free_pages);
  single(out, "cohort_kv_pages_reusable", "Free KV pages that the prefix cache has filled.", "gauge", labels,
         c.reusable_pages);
  return out;
}

}  // namespace cohort::server
