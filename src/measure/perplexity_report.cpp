#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/perplexity.h"

namespace cohort {
namespace {

std::string with_error(const Estimate& e, int digits) {
  return fmt::format("{:.{}f} ± {:.{}f}", e.mean, digits, e.error, digits);
}

nlohmann::ordered_json json_of(const Estimate& e) {
  return {{"mean", e.mean}, {"standard_error", e.error}};
}

}  // namespace

std::string to_text(const PerplexityReport& r) {
  std::string out = fmt::format("{} on {}: {} windows of {} tokens", r.model, r.device, r.windows, r.context);
  out += r.stride > 0 ? fmt::format(" every {}", r.stride) : ", the second half of each scored";
  out += fmt::format(" ({} tokens); {:.0f} tok/s\n", r.scored_tokens, static_cast<double>(r.rows) / r.seconds);
  out += fmt::format("perplexity    {:.4f} ± {:.4f}\n", r.perplexity, r.perplexity_error);
  out += fmt::format("nats a token  {}\n", with_error(r.nll, 5));
  if (!r.divergence) return out;
  const DivergenceReport& d = *r.divergence;
  out += fmt::format("than the base {} nats more ({} unlikely tokens left out)\n", with_error(d.nll_difference, 5),
                     d.unresolved);
  out += fmt::format("KL divergence {} nats; median {:.5f}, 90% {:.5f}, 99% {:.5f}, max {:.5f}\n", with_error(d.kl, 5),
                     d.median, d.percentile_90, d.percentile_99, d.max);
  out += fmt::format("same top      {:.2f}% ± {:.2f}%\n", 100 * d.same_top.mean, 100 * d.same_top.error);
  out += fmt::format("p(token)      {:+.3f}% ± {:.3f}%, RMS {:.3f}%\n", 100 * d.probability_change.mean,
                     100 * d.probability_change.error, 100 * d.probability_change_rms);
  return out;
}

std::string to_json(const PerplexityReport& r) {
  nlohmann::ordered_json out{{"model", r.model},
                             {"device", r.device},
                             {"context", r.context},
                             {"stride", r.stride},
                             {"windows", r.windows},
                             {"text_tokens", r.text_tokens},
                             {"scored_tokens", r.scored_tokens},
                             {"perplexity", r.perplexity},
                             {"perplexity_error", r.perplexity_error},
                             {"nll", json_of(r.nll)},
                             {"seconds", r.seconds},
                             {"tokens_per_second", static_cast<double>(r.rows) / r.seconds}};
  if (r.divergence) {
    const DivergenceReport& d = *r.divergence;
    auto kl = json_of(d.kl);
    kl["median"] = d.median;
    kl["p90"] = d.percentile_90;
    kl["p99"] = d.percentile_99;
    kl["max"] = d.max;
    out["divergence"] = {{"kl", kl},
                         {"same_top", json_of(d.same_top)},
                         {"nll_difference", json_of(d.nll_difference)},
                         {"unresolved_tokens", d.unresolved},
                         {"probability_change", json_of(d.probability_change)},
                         {"probability_change_rms", d.probability_change_rms}};
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace cohort
