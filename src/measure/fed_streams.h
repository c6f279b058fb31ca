// Streams that are fed random tokens straight through a backend, without engine, sampler or scheduler: what the ladder,
// the profile and the parity check step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "kernels/backend.h"

namespace cohort {

struct FeedShape {
  int32_t prompt_tokens = 128;    // of each stream
  int32_t generated_tokens = 32;  // decode steps
  int32_t prefill_rows = 512;     // prompt rows of one step
  bool shared_tokens = false;     // every stream is fed the same tokens
  int32_t canvas = 0;             // rows of each stream in a decode step, denoised behind its prompt; 0: one row
  bool whole_logits = false;      // also where the backend could give the largest only, as the engine takes them
};

/// Positions of a stream.
constexpr int32_t fed_positions(int32_t prompt, int32_t generated, int32_t canvas) {
  return prompt + (canvas > 0 ? canvas : generated);
}

/// Streams on a backend, each on pages of its own: stream i holds the i-th run of pages_for(fed_positions()) pages.
/// Tokens are a function of stream and position alone.
class FedStreams {
 public:
  FedStreams(Backend& backend, const Program& program, const FeedShape& shape, int32_t count);

  /// Reads every prompt, one stream after the other, prefill_rows a step; the last row of each is sampled, as a server
  /// would. The sums over all steps; seconds as seen from outside of the backend.
  Expected<StepStats> prefill();
  /// generated_tokens steps of one row (or of the canvas) of each stream, all sampled. The sums over all steps.
  /// Canvases are thought to hold a few tokens a row; or, where the backend keeps that itself, what each step made of
  /// the one before.
  Expected<StepStats> decode();
  /// The logits of the last step: [sampled rows, vocabulary]; with shape.whole_logits, or where the backend has no
  /// other.
  std::span<const float> logits() const { return logits_; }

 private:
  void add_rows(Batch& batch, size_t stream, int32_t first, int32_t rows);
  Expected<void> step(const Batch& batch, StepStats& sums);
  Expected<StepStats> run(const Batch& batch);

  Backend& backend_;
  const Program& program_;
  FeedShape shape_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<Mixture> thought_;  // of the rows of a canvas
  bool thinks_ = false;           // the backend keeps thoughts of all canvases
  std::vector<float> logits_;
  std::vector<TopLogit> top_;
};

double median(std::vector<double> values);

/// The type that holds most of the model's weight bytes.
std::string main_type(const Program& program);

}  // namespace cohort
