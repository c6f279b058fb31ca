// How well a model predicts a text: the mean negative log-likelihood of its tokens and, against the log-probabilities
// that another model left in a file, how far its predictions are from that model's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cohort/engine.h"

namespace cohort {

struct PerplexityOptions {
  EngineOptions engine;        // context: tokens of a window (0: 512); max_streams: windows of one batch
  std::filesystem::path text;  // may be empty with kl_base, which holds the tokens
  /// 0: windows lie side by side, and the second half of each is scored. Otherwise they begin every `stride` tokens,
  /// and the last `stride` tokens of each are scored, so that every token has at least context - stride before it.
  int32_t stride = 0;
  int32_t windows = 0;  // at most so many; 0: all
  std::filesystem::path save_base, kl_base;
  /// After every batch of windows: what is known so far.
  std::function<void(int32_t done, int32_t total, double perplexity)> progress;
  std::function<bool()> cancelled;
};

/// A mean over tokens with the standard error of that mean (as if tokens were independent).
struct Estimate {
  double mean = 0, error = 0;
};

/// Against a base, over the scored positions. KL in nats: sum over the vocabulary of p_base * log(p_base / p).
struct DivergenceReport {
  Estimate kl;
  double median = 0, max = 0, percentile_90 = 0, percentile_99 = 0;
  Estimate same_top;            // share of positions at which both models have the same most likely token
  Estimate nll_difference;      // this model's less the base's, paired token by token
  int64_t unresolved = 0;       // tokens left out of that: the base's file says only that they were unlikely
  Estimate probability_change;  // of the text's own tokens: p - p_base
  double probability_change_rms = 0;
};

struct PerplexityReport {
  std::string model, device;
  int32_t context = 0, stride = 0, windows = 0;
  int64_t text_tokens = 0, scored_tokens = 0;
  Estimate nll;  // nats a token
  double perplexity = 0, perplexity_error = 0;
  double seconds = 0;  // of the forward passes and the scoring
  int64_t rows = 0;    // tokens that were run
  std::optional<DivergenceReport> divergence;
};

/// Errors: those of loading; invalid_argument for options that contradict each other, a text shorter than two windows'
/// worth of context, a base of another vocabulary or another text; cancelled.
Expected<PerplexityReport> measure_perplexity(const PerplexityOptions& options, const ProgressCallback& loading = {});

std::string to_text(const PerplexityReport& report);
std::string to_json(const PerplexityReport& report);

}  // namespace cohort
