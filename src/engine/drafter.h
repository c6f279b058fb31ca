// Who guesses the next tokens of a sequence, so that one step can check several of them (a window). A guess decides
// when a token comes, never which: the step samples every position as if there had been no guess, and what differs from
// the guess ends the window. (Leviathan, Kalman, Matias: "Fast inference from transformers via speculative decoding",
// ICML 2023; here without their second draw, because sampling is a function of seed and position.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/engine.h"

namespace cohort {

/// What follows a sequence's tokens?
struct Wish {
  SequenceId id = 0;
  std::span<const int32_t> tokens;           // so far, prompt included; at least one
  const SamplingParams* sampling = nullptr;  // how the sequence chooses
  int32_t count = 0;                         // guesses that are wanted, at least 1
  std::vector<int32_t> guesses;              // the answer: at most so many
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string description() const = 0;
  /// Answers all wishes. An error means that the drafter's device failed.
  virtual Expected<void> guess(std::span<Wish> wishes) = 0;
  /// The sequence has ended.
  virtual void forget(SequenceId id) = 0;
};

}  // namespace cohort
