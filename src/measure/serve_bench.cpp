#include "measure/serve_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/counted.h"
#include "base/result.h"
#include "base/rng.h"
#include "measure/http_stream.h"

namespace cohort {
namespace {

using Answers = std::vector<Expected<StreamedAnswer>>;

constexpr std::array kWords{"river",  "stone",  "light",   "winter", "garden", "letter", "morning",
                            "silver", "forest", "captain", "music",  "window", "paper",  "mountain",
                            "summer", "bridge", "candle",  "island", "market", "shadow"};

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// `count` words that follow from `seed`.
std::string words(uint64_t seed, int32_t count) {
  std::string out;
  for (int32_t i = 0; i < count; ++i) {
    const float u = uniform(seed, static_cast<uint32_t>(i), 0, 0);
    out += kWords[static_cast<size_t>(u * static_cast<float>(kWords.size()))];
    out += ' ';
  }
  return out;
}

std::string request_body(const ServeBenchOptions& o, const std::string& prompt, int32_t tokens) {
  nlohmann::ordered_json body{{"prompt", prompt},
                              {"max_tokens", tokens},
                              {"temperature", 0},
                              {"stream", true},
                              {"stream_options", {{"include_usage", true}}}};
  if (!o.model.empty()) body["model"] = o.model;
  if (o.ignore_eos) body["ignore_eos"] = true;
  return body.dump();
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Spread spread(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0), quantile(values, 1)};
}

/// What one repeat of a level says.
struct Round {
  double decode_rate = 0, whole_rate = 0;
};

/// Tokens of a request that came between two moments, when its pieces may hold several tokens each.
double tokens_between(const StreamedAnswer& a, StreamedAnswer::Time from, StreamedAnswer::Time to) {
  const auto count = std::ranges::count_if(a.pieces, [&](auto time) { return time > from && time <= to; });
  return static_cast<double>(count) * static_cast<double>(a.completion_tokens) / static_cast<double>(a.pieces.size());
}

std::optional<Round> rates(const Answers& answers) {
  std::vector<const StreamedAnswer*> good;
  for (const auto& answer : answers) {
    if (answer) good.push_back(&*answer);
  }
  if (good.empty()) return std::nullopt;
  auto sent = good[0]->sent, last = good[0]->ended, all_decode = good[0]->pieces.front(),
       first_end = good[0]->pieces.back();
  double tokens = 0;
  for (const StreamedAnswer* a : good) {
    sent = std::min(sent, a->sent);
    last = std::max(last, a->pieces.back());
    all_decode = std::max(all_decode, a->pieces.front());
    first_end = std::min(first_end, a->pieces.back());
    tokens += static_cast<double>(a->completion_tokens);
  }
  Round round;
  round.whole_rate = tokens / seconds(last - sent);
  if (first_end > all_decode) {
    double between = 0;
    for (const StreamedAnswer* a : good) between += tokens_between(*a, all_decode, first_end);
    round.decode_rate = between / seconds(first_end - all_decode);
  }
  return round;
}

/// Words that make about so many tokens, by what the server counts.
Expected<double> tokens_per_word(const ServeBenchOptions& o, const ServerAddress& address) {
  constexpr int32_t kProbe = 20;  // few enough for the smallest contexts
  COHORT_ASSIGN(const StreamedAnswer answer,
                std::move(stream_completions(address, o.api_key, {request_body(o, words(1, kProbe), 1)}).front()));
  if (answer.prompt_tokens <= 0)
    return fail(ErrorCode::unsupported,
                "the server does not report usage in its streams, so prompts cannot be measured");
  return static_cast<double>(answer.prompt_tokens) / kProbe;
}

ServeBenchLevel summarise(int32_t concurrency, const std::vector<Answers>& rounds) {
  ServeBenchLevel level;
  level.concurrency = concurrency;
  std::vector<double> first, gaps, request_rates, decode, whole, prompts, completions;
  for (const Answers& answers : rounds) {
    if (const auto round = rates(answers)) {
      if (round->decode_rate > 0) decode.push_back(round->decode_rate);
      whole.push_back(round->whole_rate);
    }
    for (const auto& answer : answers) {
      if (!answer) {
        ++level.failed;
        if (level.failure.empty()) level.failure = answer.error().message;
        continue;
      }
      ++level.ok;
      const auto& times = answer->pieces;
      first.push_back(seconds(times.front() - answer->sent));
      for (size_t i = 1; i < times.size(); ++i) gaps.push_back(seconds(times[i] - times[i - 1]));
      prompts.push_back(static_cast<double>(answer->prompt_tokens));
      completions.push_back(static_cast<double>(answer->completion_tokens));
      const double decoding = seconds(times.back() - times.front());
      if (decoding > 0) request_rates.push_back(tokens_between(*answer, times.front(), times.back()) / decoding);
    }
  }
  level.prompt_tokens = mean(prompts);
  level.completion_tokens = mean(completions);
  level.first_token_mean = mean(first);
  level.first_token_p95 = quantile(first, 0.95);
  level.gap_p50 = quantile(gaps, 0.5);
  level.gap_p99 = quantile(gaps, 0.99);
  level.request_rate = spread(request_rates);
  level.decode_rate = spread(decode);
  level.whole_rate = spread(whole);
  return level;
}

}  // namespace

Expected<std::vector<ServeBenchLevel>> bench_server(const ServeBenchOptions& o,
                                                    const std::function<void(std::string_view)>& progress) {
  COHORT_ASSIGN(const ServerAddress address, parse_url(o.url));
  if (o.shared_prefix_tokens >= o.prompt_tokens && o.shared_prefix_tokens > 0) {
    return fail(ErrorCode::invalid_argument, "--shared-prefix-tokens is {}; expected less than --prompt-tokens, {}",
                o.shared_prefix_tokens, o.prompt_tokens);
  }
  COHORT_ASSIGN(const double per_word, tokens_per_word(o, address));
  const auto words_for = [&](int32_t tokens) {
    return std::max(1, static_cast<int32_t>(std::lround(static_cast<double>(tokens) / per_word)));
  };
  const std::string shared = o.shared_prefix_tokens > 0 ? words(2, words_for(o.shared_prefix_tokens)) : "";
  // Every request of the run has words of its own, so that no prompt is in a cache by accident.
  uint64_t seed = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  std::vector<ServeBenchLevel> levels;
  for (const int32_t concurrency : o.concurrency) {
    std::vector<Answers> rounds;
    for (int32_t repeat = -1; repeat < o.repeats; ++repeat) {
      progress(repeat < 0 ? fmt::format("{}: warm-up", counted(concurrency, "client"))
                          : fmt::format("{}: {} of {}", counted(concurrency, "client"), repeat + 1, o.repeats));
      std::vector<std::string> bodies;
      for (int32_t i = 0; i < concurrency; ++i) {
        const std::string own = words(++seed, words_for(o.prompt_tokens - o.shared_prefix_tokens));
        bodies.push_back(request_body(o, shared + own, o.max_tokens));
      }
      Answers answers = stream_completions(address, o.api_key, bodies);
      if (repeat >= 0) rounds.push_back(std::move(answers));
    }
    levels.push_back(summarise(concurrency, rounds));
  }
  return levels;
}

}  // namespace cohort
