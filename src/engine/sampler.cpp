#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/result.h"
#include "base/rng.h"
#include "engine/limits.h"
#include "engine/row_kernels.h"
#include "numerics/functions.h"

namespace cohort {
namespace {

constexpr int32_t kChunk = 256;  // rule 8: sums over the vocabulary go in chunks of this many ids

struct Candidate {
  int32_t token;
  float value;
};

/// Higher value first, ties to the lower id: the one order of everything that is ranked here.
bool before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}
bool by_token(const Candidate& a, const Candidate& b) {
  return a.token < b.token;
}

/// Which tokens may be chosen.
class Allowed {
 public:
  explicit Allowed(std::span<const uint64_t> mask) : mask_(mask) {}
  bool all() const { return mask_.empty(); }
  bool operator()(size_t token) const { return mask_.empty() || (mask_[token / 64] >> (token % 64) & 1) != 0; }

 private:
  std::span<const uint64_t> mask_;
};

/// The fastest that this machine has.
const RowKernels& kernels() {
  static const RowKernels& best = row_kernels(best_isa());
  return best;
}

/// The first NaN, or logits.size().
size_t find_nan(std::span<const float> logits) {
  return static_cast<size_t>(std::ranges::find_if(logits, [](float x) { return std::isnan(x); }) - logits.begin());
}

/// The first of the largest; no logit is NaN.
int32_t argmax(std::span<const float> logits) {
  const RowScan scan = kernels().scan(logits);
  if (scan.finite) return scan.token;
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

/// The allowed token with the largest logit; -1 when none is allowed.
int32_t argmax(std::span<const float> logits, Allowed allowed) {
  if (allowed.all()) return argmax(logits);
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed(i)) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

/// The `count` first candidates by before(), sorted. A heap of `count` keeps this one pass over the vocabulary.
std::vector<Candidate> largest(std::span<const float> logits, size_t count, Allowed allowed) {
  std::vector<Candidate> heap;
  heap.reserve(count);
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (!allowed(i)) continue;
    const Candidate candidate{static_cast<int32_t>(i), logits[i]};
    if (heap.size() < count) {
      heap.push_back(candidate);
      std::push_heap(heap.begin(), heap.end(), before);
    } else if (before(candidate, heap.front())) {
      std::pop_heap(heap.begin(), heap.end(), before);
      heap.back() = candidate;
      std::push_heap(heap.begin(), heap.end(), before);
    }
  }
  std::sort_heap(heap.begin(), heap.end(), before);
  return heap;
}

void apply_penalties(std::span<float> logits, const SamplingParams& p, std::span<const int32_t> tokens) {
  if (p.repeat_penalty == 1.0F && p.frequency_penalty == 0.0F && p.presence_penalty == 0.0F) return;
  const size_t window =
      p.penalty_window < 0 ? tokens.size() : std::min(tokens.size(), static_cast<size_t>(p.penalty_window));
  std::unordered_map<int32_t, int32_t> counts;
  for (const int32_t token : tokens.last(window)) ++counts[token];
  for (const auto& [token, count] : counts) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
    logit = logit - static_cast<float>(count) * p.frequency_penalty - p.presence_penalty;
  }
}

/// Rule 8's sum: in order inside chunks of 256 ids, then chunks in order. `candidates` ascend by token.
struct ChunkedSum {
  std::vector<std::pair<size_t, float>> chunks;  // first candidate of the chunk, its sum
  float total = 0;
  explicit ChunkedSum(std::span<const Candidate> candidates) {
    int32_t chunk = -1;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].token / kChunk != chunk) {
        chunk = candidates[i].token / kChunk;
        chunks.emplace_back(i, 0.0F);
      }
      chunks.back().second += candidates[i].value;
    }
    for (const auto& [first, sum] : chunks) total += sum;
  }
};

int32_t draw(std::span<const Candidate> candidates, float u) {
  const ChunkedSum sums(candidates);
  const float target = u * sums.total;
  float running = 0;
  for (size_t c = 0; c < sums.chunks.size(); ++c) {
    if (running + sums.chunks[c].second > target) {
      const size_t end = c + 1 < sums.chunks.size() ? sums.chunks[c + 1].first : candidates.size();
      for (size_t i = sums.chunks[c].first; i < end; ++i) {
        running += candidates[i].value;
        if (running > target) return candidates[i].token;
      }
      return candidates[end - 1].token;  // the chunk's sum may round above its running sum
    }
    running += sums.chunks[c].second;
  }
  return candidates.back().token;
}

void report_logprobs(std::span<const float> logits, int32_t wanted, Sample& sample) {
  const float maximum = logits[static_cast<size_t>(argmax(logits, Allowed({})))];
  double total = 0;
  for (const float logit : logits) total += static_cast<double>(numerics::exp(logit - maximum));
  const double log_total = std::log(total) + static_cast<double>(maximum);
  const auto logprob = [&](int32_t token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - log_total);
  };
  sample.logprob = logprob(sample.token);
  for (const Candidate& candidate : largest(logits, static_cast<size_t>(wanted), Allowed({}))) {
    sample.top.push_back({candidate.token, logprob(candidate.token)});
  }
}

/// The largest logit wins, as the model gave them.
bool plain_greedy(const SamplingParams& p) {
  return is_greedy(p) && p.logit_bias.empty() && p.repeat_penalty == 1.0F && p.frequency_penalty == 0.0F &&
         p.presence_penalty == 0.0F;
}

/// draw() when every token may be chosen; `values` [vocabulary] are logits and become weights.
int32_t draw_from_all(std::span<float> values, float u) {
  const float maximum = values[static_cast<size_t>(argmax(values))];
  // Every logit is -inf (a bias may do that): nothing is more likely than anything else.
  if (maximum == -numerics::ScalarOps::infinity()) return 0;
  kernels().exp_below(values, maximum);
  // Chunks side by side: each is a chain of additions that wait for each other.
  constexpr size_t kSide = 8, kSize = kChunk;
  std::vector<float> sums((values.size() + kSize - 1) / kSize);
  size_t chunk = 0;
  for (; (chunk + kSide) * kSize <= values.size(); chunk += kSide) {
    std::array<float, kSide> side{};
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t k = 0; k < kSide; ++k) side[k] += values[(chunk + k) * kSize + i];
    }
    std::ranges::copy(side, sums.begin() + static_cast<std::ptrdiff_t>(chunk));
  }
  for (; chunk < sums.size(); ++chunk) {
    for (const float value : values.subspan(chunk * kSize, std::min(kSize, values.size() - chunk * kSize)))
      sums[chunk] += value;
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  const float target = u * total;
  float running = 0;
  for (size_t c = 0; c < sums.size(); ++c) {
    if (running + sums[c] > target) {
      const size_t end = std::min((c + 1) * kSize, values.size());
      for (size_t i = c * kSize; i < end; ++i) {
        running += values[i];
        if (running > target) return static_cast<int32_t>(i);
      }
      return static_cast<int32_t>(end - 1);  // the chunk's sum may round above its running sum
    }
    running += sums[c];
  }
  return static_cast<int32_t>(values.size() - 1);
}

/// The most likely candidates, sorted by before(), up to the one with which their sum reaches `limit`. Sorts no more
/// than is wanted: few tokens have nearly all of the probability.
void keep_most_likely(std::vector<Candidate>& candidates, float limit) {
  constexpr size_t kFirst = 128, kGrowth = 4;
  float running = 0;
  size_t kept = 0, sorted = 0;
  for (size_t next = kFirst; kept < candidates.size() && (kept == 0 || running < limit); ++kept) {
    if (kept == sorted) {
      const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
      sorted = std::min(candidates.size(), sorted + next);
      next *= kGrowth;
      const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
      if (end != candidates.end()) std::nth_element(begin, end, candidates.end(), before);
      std::sort(begin, end, before);
    }
    running += candidates[kept].value;
  }
  candidates.resize(kept);
}

/// From the logits, divided by the temperature, that top_k left: ascending by token, at least one.
int32_t choose_from(std::vector<Candidate> candidates, const SamplingParams& p, uint32_t position) {
  const float maximum = std::min_element(candidates.begin(), candidates.end(), before)->value;
  if (maximum == -numerics::ScalarOps::infinity()) return candidates.front().token;
  std::vector<float> weights(candidates.size());
  std::ranges::transform(candidates, weights.begin(), &Candidate::value);
  kernels().exp_below(weights, maximum);
  for (size_t i = 0; i < weights.size(); ++i) candidates[i].value = weights[i];
  if (p.top_p < 1.0F) {
    keep_most_likely(candidates, p.top_p * ChunkedSum(candidates).total);
    std::sort(candidates.begin(), candidates.end(), by_token);
  }
  if (p.min_p > 0.0F) std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.value < p.min_p; });
  return draw(candidates, uniform(p.seed, position, 0, p.stream));
}

/// -1 when nothing is allowed.
int32_t choose(std::span<const float> given, const SamplingParams& p, std::span<const int32_t> tokens,
               uint32_t position, Allowed allowed) {
  if (plain_greedy(p)) return argmax(given, allowed);
  std::vector<float> copy(given.begin(), given.end());
  const std::span<float> logits(copy);
  for (const auto& [token, bias] : p.logit_bias) logits[static_cast<size_t>(token)] += bias;
  apply_penalties(logits, p, tokens);
  if (is_greedy(p)) return argmax(logits, allowed);
  if (p.temperature != 1.0F) {
    for (float& logit : logits) logit = logit / p.temperature;
  }
  const size_t keep = p.top_k > 0 ? std::min(logits.size(), static_cast<size_t>(p.top_k)) : logits.size();
  if (keep == logits.size() && p.top_p >= 1.0F && p.min_p <= 0.0F && allowed.all())
    return draw_from_all(logits, uniform(p.seed, position, 0, p.stream));

  std::vector<Candidate> candidates;
  if (keep < logits.size()) {
    candidates = largest(logits, keep, allowed);
    std::sort(candidates.begin(), candidates.end(), by_token);
  } else {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (allowed(i)) candidates.push_back({static_cast<int32_t>(i), logits[i]});
    }
  }
  return candidates.empty() ? -1 : choose_from(candidates, p, position);
}

}  // namespace

Expected<void> check(const SamplingParams& p, int32_t vocabulary) {
  const auto in_range = [](std::string_view field, double value, double low, double high) -> Expected<void> {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::invalid_argument, "{} is {}; expected {} to {}", field, value, low, high);
  };
  COHORT_TRY(in_range("temperature", p.temperature, 0, kMaxTemperature));
  COHORT_TRY(in_range("top_k", p.top_k, 0, kMaxTopK));
  COHORT_TRY(in_range("top_p", p.top_p, 0, 1));
  COHORT_TRY(in_range("min_p", p.min_p, 0, 1));
  COHORT_TRY(in_range("repeat_penalty", p.repeat_penalty, kMinRepeatPenalty, kMaxRepeatPenalty));
  COHORT_TRY(in_range("frequency_penalty", p.frequency_penalty, -kMaxPenalty, kMaxPenalty));
  COHORT_TRY(in_range("presence_penalty", p.presence_penalty, -kMaxPenalty, kMaxPenalty));
  COHORT_TRY(in_range("penalty_window", p.penalty_window, -1, kMaxPenaltyWindow));
  COHORT_TRY(in_range("logprobs", p.logprobs, -1, kMaxLogprobs));
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocabulary) {
      return fail(ErrorCode::invalid_argument, "logit_bias names token {}; the vocabulary has 0 to {}", token,
                  vocabulary - 1);
    }
    if (!(std::fabs(bias) <= 1e6F || bias == -numerics::ScalarOps::infinity())) {
      return fail(ErrorCode::invalid_argument, "logit_bias of token {} is {}; expected -1e6 to 1e6, or -inf", token,
                  bias);
    }
  }
  return {};
}

Expected<Sample> sample(std::span<const float> logits, const SamplingParams& params, std::span<const int32_t> tokens,
                        uint32_t position, std::span<const uint64_t> allowed) {
  const RowScan scan = kernels().scan(logits);
  if (const size_t nan = scan.finite ? logits.size() : find_nan(logits); nan < logits.size()) {
    return fail(ErrorCode::internal,
                "the logit of token {} at position {} is not a number: the weights hold NaN or Inf, or overflow", nan,
                position);
  }
  Sample out;
  out.token = scan.finite && plain_greedy(params) && allowed.empty()
                  ? scan.token
                  : choose(logits, params, tokens, position, Allowed(allowed));
  if (out.token < 0) {
    return fail(ErrorCode::internal, "no token is allowed at position {}: the constraint of this text has a dead end",
                position);
  }
  if (params.logprobs >= 0) report_logprobs(logits, params.logprobs, out);
  return out;
}

namespace {

/// Whether only temperature, top_k, top_p and min_p stand between the logits and the token.
bool only_filters(const SamplingParams& p) {
  return p.repeat_penalty == 1.0F && p.frequency_penalty == 0.0F && p.presence_penalty == 0.0F &&
         p.logit_bias.empty() && p.logprobs < 0;
}

bool takes_all(const SamplingParams& p, int32_t vocabulary) {
  return p.top_k <= 0 || p.top_k >= vocabulary;
}

/// top_p from the largest logits, where the sum of all weights is known; -1: it takes more than these.
int32_t choose_nucleus(std::span<const TopLogit> top, float total, const SamplingParams& p, uint32_t position) {
  std::vector<float> weights;
  for (const TopLogit& logit : top) {
    if (logit.token < 0) return -1;
    weights.push_back(logit.logit / p.temperature);
  }
  kernels().exp_below(weights, weights.front());
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < top.size(); ++i) candidates.push_back({top[i].token, weights[i]});
  // What was not seen weighs no more than the last of these, but for the rounding of exp.
  const float unseen = std::ranges::min(weights) * (1.0F + 0x1p-18F);
  std::sort(candidates.begin(), candidates.end(), before);
  float running = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || running < p.top_p * total)) running += candidates[kept++].value;
  if (running < p.top_p * total || !(candidates[kept - 1].value > unseen)) return -1;
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(), by_token);
  if (p.min_p > 0.0F) std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.value < p.min_p; });
  return draw(candidates, uniform(p.seed, position, 0, p.stream));
}

}  // namespace

DrawRule draw_rule(const SamplingParams& p, uint32_t position, int32_t vocabulary) {
  if (!only_filters(p) || is_greedy(p) || !takes_all(p, vocabulary)) return {};
  // top_p comes before min_p: then the sum of all weights is what the host needs.
  return {p.temperature, p.top_p < 1.0F ? 0.0F : p.min_p, uniform(p.seed, position, 0, p.stream)};
}

Draw draw_from(std::span<const float> logits, const DrawRule& rule) {
  if (rule.temperature <= 0.0F || find_nan(logits) < logits.size()) return {};
  std::vector<float> weights(logits.begin(), logits.end());
  for (float& weight : weights) weight = weight / rule.temperature;
  const float maximum = std::ranges::max(weights);
  if (!std::isfinite(maximum)) return {};
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float weight = numerics::exp(weights[i] - maximum);
    if (weight >= rule.min_p) candidates.push_back({static_cast<int32_t>(i), weight});
  }
  return {draw(candidates, rule.u), ChunkedSum(candidates).total};
}

std::optional<Sample> sample_top(std::span<const TopLogit> top, const Draw& drawn, const SamplingParams& p,
                                 uint32_t position) {
  if (!only_filters(p)) return std::nullopt;
  if (top.empty() || top[0].token < 0 || std::isnan(top[0].logit)) return std::nullopt;
  Sample out;
  out.token = top[0].token;
  if (is_greedy(p)) return out;
  if (drawn.token >= 0) {
    out.token = p.top_p < 1.0F ? choose_nucleus(top, drawn.total, p, position) : drawn.token;
    return out.token < 0 ? std::nullopt : std::optional(out);
  }
  const auto keep = static_cast<size_t>(p.top_k);
  if (keep == 0 || keep >= top.size() || top[keep].token < 0) return std::nullopt;
  std::vector<Candidate> candidates;
  for (const TopLogit& logit : top) candidates.push_back({logit.token, logit.logit / p.temperature});
  // Division may make equals of logits that differ: then the lower id counts, and one of those not seen may have it.
  if (!(candidates[keep - 1].value > candidates.back().value)) return std::nullopt;
  std::sort(candidates.begin(), candidates.end(), before);
  candidates.resize(keep);
  std::sort(candidates.begin(), candidates.end(), by_token);
  out.token = choose_from(std::move(candidates), p, position);
  return out;
}

}  // namespace cohort
