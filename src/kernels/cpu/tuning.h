// How the pass over experts orders its work, by type and number of rows. What is fastest differs between machines
// (`cohort tune` measures it); no choice changes a bit of a result.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/layout.h"

namespace cohort::cpu {

struct ExpertTuning {
  /// Gate and up alternate tile by tile; else both tiles of gate come before both of up.
  bool interleave = false;
  /// A job of gate and up reads at most this much weight, and never of more than one expert: rows are gathered once
  /// for every job, and its first lines are often not prefetched. The last jobs of a pass are shorter anyway.
  int32_t job_bytes = 1 << 20;
  friend bool operator==(const ExpertTuning&, const ExpertTuning&) = default;
};

class TuningTable {
 public:
  /// Rows of a step fall into classes: 1, 2, up to 4, up to 8, up to 16, more.
  static constexpr std::array<int32_t, 6> kClassRows = {1, 2, 4, 8, 16, 32};
  static constexpr size_t class_of(int64_t rows) {
    size_t index = 0;
    while (index + 1 < kClassRows.size() && rows > kClassRows[index]) ++index;
    return index;
  }
  const ExpertTuning& find(Layout gate_up, int64_t rows) const {
    return choices_[static_cast<size_t>(gate_up)][class_of(rows)];
  }
  void set(Layout gate_up, int64_t rows, const ExpertTuning& choice) {
    choices_[static_cast<size_t>(gate_up)][class_of(rows)] = choice;
  }

 private:
  std::array<std::array<ExpertTuning, kClassRows.size()>, kLayouts> choices_;
};

/// What a choice may be.
inline constexpr int32_t kMinJobBytes = 4 << 10, kMaxJobBytes = 4 << 20;

}  // namespace cohort::cpu
