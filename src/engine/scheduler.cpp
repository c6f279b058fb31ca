#include "engine/scheduler.h"

#include <algorithm>

namespace cohort {

std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows) {
  std::vector<int32_t> rows(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Pending& pending = sequences[i];
    rows[i] = pending.decoding ? pending.rows : std::min(pending.rows, prefill_rows);
    if (!pending.decoding) prefill_rows -= rows[i];
  }
  return rows;
}

}  // namespace cohort
