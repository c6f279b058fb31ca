// How long the windows of a step are, by what guesses were right and what rows have cost. In a mixture of experts a row
// more reads experts more, so a guess that is probably wrong makes a step slower for nobody's good; this is where that
// is weighed. A function of measured times, so it can be tested without a model; what it decides changes when a token
// comes, never which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

/// How often guesses of one sequence were right, given that those before them in the window were.
class HitRate {
 public:
  double value() const { return value_; }
  /// `right` of `guesses` were; the first wrong one ends a window, what comes after it says nothing.
  void observe(int32_t guesses, int32_t right);

 private:
  static constexpr double kMemory = 0.1;  // share of a new guess in the running mean
  double value_ = 0.7;                    // of who has not guessed yet
};

class WindowChooser {
 public:
  /// `most`: guesses of a sequence in one step. `always`: take them all, whatever they cost.
  WindowChooser(int32_t most, bool always) : most_(most), always_(always) {}

  struct Stream {
    double hit = 0;    // HitRate
    int32_t room = 0;  // guesses that it could use
  };
  /// Guesses of each stream in the next step: those that raise the tokens that a second is expected to give.
  std::vector<int32_t> choose(std::span<const Stream> streams);
  /// A step of `rows` rows without prompts took so long, drafting aside.
  void observe(int64_t rows, double seconds);
  void observe_drafting(int64_t guesses, double seconds);

  /// Seconds of one more row, as measured; below 0: not known yet.
  double row_seconds() const;

 private:
  /// Old steps are forgotten, because contexts grow and machines slow down.
  static constexpr double kKeep = 0.97;
  /// When no guess was worth it for so many steps, some are tried: rates and prices change. Each time in vain doubles
  /// the wait, because a draft model has to read what came meanwhile.
  static constexpr int32_t kProbe = 48, kRarestProbe = 1024, kProbeGuesses = 2;

  int32_t most_;
  bool always_;
  int32_t plain_steps_ = 0;  // in a row
  int32_t probe_after_ = kProbe;
  // Weighted sums for the line seconds = a + b * rows.
  double n_ = 0, rows_ = 0, rows2_ = 0, seconds_ = 0, product_ = 0;
  double draft_seconds_ = 0;  // of one guess
};

}  // namespace cohort
