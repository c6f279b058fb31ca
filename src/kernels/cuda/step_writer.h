// What the host tells the device about a step: rows, positions, pages and the units of attention, as launch_begin reads
// them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cuda/lower.h"

namespace cohort::cuda {

/// Rows [begin, end) of a batch, which one submission runs, and their part of the sampled rows.
struct StepPart {
  int32_t begin = 0, end = 0;
  int32_t first_sampled = 0, last_sampled = 0;
  int32_t rows() const { return end - begin; }
  int32_t sampled() const { return last_sampled - first_sampled; }
  /// What the part has of a sequence: none of it when from >= to.
  struct Range {
    int32_t from, to;
  };
  Range of(const SequenceRows& s) const { return {std::max(begin, s.first_row), std::min(end, s.first_row + s.rows)}; }
};

/// The step's data on the device, and what the choice of the highest logit needs.
struct StepMemory {
  Step step{};
  unsigned long long* best = nullptr;  // [sampled]
  int32_t* counters = nullptr;         // [sampled] and one more word
};
Expected<StepMemory> allocate_step(DeviceMemory& memory, const Limits& limits);

class StepWriter {
 public:
  /// windows: the program's attention windows (Lowered::windows).
  StepWriter(const Limits& limits, std::vector<int32_t> windows) : limits_(limits), windows_(std::move(windows)) {}

  /// Words that any step takes at most.
  static int64_t most_words(const Limits& limits);
  static constexpr int32_t kMaxPages = 1 << 20;  // page ids of one submission

  /// The part that starts at row `begin`, as long as fits one submission; canvases are never cut. Without rows: a
  /// canvas starts there that does not fit.
  StepPart next_part(const Batch& batch, int32_t begin, int32_t first_sampled) const;
  /// Writes a part to `out`; units of attention have at most `group_rows` rows, 1 when it has a canvas.
  void write(const Batch& batch, const StepPart& part, int32_t group_rows, int32_t ticket, int32_t* out) const;

  /// Whether the part has rows of a canvas.
  static bool has_canvas(const Batch& batch, const StepPart& part);
  /// Whether every sequence has at most one row of the part.
  static bool one_row_each(const Batch& batch, const StepPart& part);
  /// Of a step that was written: the most units of a window.
  static int32_t most_units(const int32_t* step);

 private:
  /// What a part that grows takes so far.
  struct Fill {
    StepPart part;
    std::vector<int64_t> units;  // [windows]
  };
  bool take(const Batch& batch, const SequenceRows& sequence, int32_t end, Fill& fill) const;
  int32_t write_units(int32_t window, const Batch& batch, const StepPart& part, int32_t group_rows,
                      const int32_t* page_begin, const int32_t* pages, int32_t* out, int32_t& tiles) const;

  Limits limits_;
  std::vector<int32_t> windows_;
};

}  // namespace cohort::cuda
