// The rows of one step, as every backend receives them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cohort {

/// What a row of a canvas was thought to hold after the step before (docs/NUMERICS.md, rule 10).
struct Mixture {
  std::vector<int32_t> tokens;  // ascending
  std::vector<float> weights;   // [tokens]
};

/// Consecutive rows of one sequence: tokens at first_position, first_position + 1, ...
struct SequenceRows {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  /// Page ids that hold positions 0 .. first_position + rows - 1, kPagePositions each, in order.
  std::span<const int32_t> pages;
  /// The rows are a canvas of block diffusion (rule 10): each of them sees all of them, and a layer's window counts
  /// back from the first.
  bool canvas = false;
  /// [rows] of a canvas, or empty: nothing is thought of it yet.
  std::span<const Mixture> mixtures = {};
};

/// Positions [begin, end).
struct VisiblePositions {
  int32_t begin, end;
};
/// What row `row` of `sequence` sees in a layer with that window (0: none), its own position included.
inline VisiblePositions visible_positions(const SequenceRows& sequence, int32_t row, int32_t window) {
  const int32_t last = sequence.first_position + (sequence.canvas ? 0 : row);
  const int32_t end = sequence.canvas ? sequence.first_position + sequence.rows : last + 1;
  return {window > 0 && last >= window ? last + 1 - window : 0, end};
}

struct Batch {
  std::vector<int32_t> tokens;          // [rows]
  std::vector<int32_t> positions;       // [rows]
  std::vector<SequenceRows> sequences;  // cover the rows exactly, in order; a sequence appears at most once
  std::vector<int32_t> sampled_rows;    // ascending; whose logits are wanted
  int32_t rows() const { return static_cast<int32_t>(tokens.size()); }
};

/// What one step did, for /metrics, the ladder and the profile.
struct StepStats {
  double seconds = 0;
  int64_t rows = 0;
  double distinct_experts = 0;  // mean over MoE layers
  double bytes = 0;             // weights (dense once, distinct experts once) + KV read
  /// [MoE layers, experts] rows that chose each expert; empty where the backend does not say.
  std::vector<uint32_t> routes;
};

}  // namespace cohort
