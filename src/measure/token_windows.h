// Windows of tokens through a model, several at a time as streams of one batch: what perplexity and the collection of
// importance have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "cohort/engine.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace cohort {

class WindowRunner {
 public:
  /// Called for every scored position, from several threads at once but never twice for one position. `logits`
  /// [vocabulary] may be overwritten.
  using Sink = std::function<void(size_t window, int32_t position, std::span<float> logits)>;

  /// Loads the model for windows of options.context positions (0: 512, or what the model was made for if that is less),
  /// options.max_streams of them at a time. Errors as Engine::create.
  static Expected<std::unique_ptr<WindowRunner>> create(EngineOptions options, const ProgressCallback& progress);

  const Model& model() const { return *model_; }
  Backend& backend() { return *backend_; }
  int32_t context() const { return model_->context(); }
  size_t streams() const { return pages_.size(); }

  /// Runs up to streams() windows of at most context() tokens together, from position 0 and with empty caches.
  /// Positions from `first_scored` on are scored, but the last `unscored_tail` ones of a window (what follows them is
  /// unknown).
  Expected<void> run(std::span<const std::vector<int32_t>> windows, int32_t first_scored, int32_t unscored_tail,
                     const Sink& sink);

 private:
  explicit WindowRunner(int threads) : team_(threads) {}

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::vector<int32_t>> pages_;  // of each stream
  int32_t rows_per_step_ = 1;
  ThreadTeam team_;
  std::vector<float> logits_;
};

/// -log of the probability that a softmax over `logits` gives to `token`.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

/// log(sum(exp(logits))) with the largest taken out first.
double log_sum_exp(std::span<const float> logits);

}  // namespace cohort
