// Windows: which sequences get guesses in the next step and how many (drafter.h, window_chooser.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/drafter.h"
#include "engine/sequence.h"
#include "engine/window_chooser.h"
#include "models/model.h"

namespace cohort {

class Speculator {
 public:
  /// Null when options.draft is "off". Errors: those of loading a draft model.
  static Expected<std::unique_ptr<Speculator>> create(const EngineOptions& options, const Model& target,
                                                      const ProgressCallback& progress);
  Speculator(std::unique_ptr<Drafter> drafter, int32_t most, bool always)
      : drafter_(std::move(drafter)), chooser_(most, always), most_(most) {}

  /// "at most 4 guessed tokens a step from libris-draft on cpu avx512, 2 threads"
  std::string description() const;
  /// Sets the guesses of the sequences that decode; `context`: positions that a sequence may have.
  Expected<void> guess(std::span<Sequence> running, int32_t context);
  /// A step without prompts took so long.
  void observe_step(int64_t rows, double seconds) { chooser_.observe(rows, seconds); }
  void forget(SequenceId id) { drafter_->forget(id); }

 private:
  std::unique_ptr<Drafter> drafter_;
  WindowChooser chooser_;
  int32_t most_;
};

}  // namespace cohort
