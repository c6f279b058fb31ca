#include "engine/scheduler.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace cohort {

std::vector<int32_t> schedule(std::span<const Pending> sequences, int32_t prefill_rows) {
  std::vector<int32_t> rows(sequences.size());
  std::vector<size_t> prompts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].decoding) {
      rows[i] = sequences[i].rows;
    } else if (sequences[i].rows > 0) {
      prompts.push_back(i);
    }
  }
  if (prompts.empty()) return rows;
  const size_t first = prompts.front();
  constexpr int32_t kFirstPart = 4;
  rows[first] = std::min(sequences[first].rows, (prefill_rows + kFirstPart - 1) / kFirstPart);
  prefill_rows -= rows[first];
  std::ranges::stable_sort(prompts, {},
                           [&](size_t i) { return std::pair(sequences[i].priority, sequences[i].rows - rows[i]); });
  for (const size_t i : prompts) {
    const int32_t more = std::min(sequences[i].rows - rows[i], prefill_rows);
    rows[i] += more;
    prefill_rows -= more;
  }
  return rows;
}

Load load_of(std::span<const Pending> sequences) {
  Load load;
  int32_t most_urgent = INT32_MAX;
  for (const Pending& p : sequences) {
    if (!p.decoding) continue;
    ++load.decoding;
    most_urgent = std::min(most_urgent, p.priority);
  }
  load.prompts = std::ranges::count_if(
      sequences, [&](const Pending& p) { return !p.decoding && p.rows > 0 && p.priority <= most_urgent; });
  return load;
}

size_t PrefillBudget::size_class(int64_t rows) {
  return std::min<size_t>(std::bit_width(static_cast<uint64_t>(rows)), std::tuple_size_v<decltype(alone_)> - 1);
}

int32_t PrefillBudget::next(Load load) const {
  if (load.decoding == 0) return rows_;
  const Alone& alone = alone_[size_class(load.decoding)];
  // One row, so that something is read in any case, costs next to nothing: it is a step of decoding alone.
  if (alone.seconds <= 0 || alone.age >= kStale) return 1;
  const double share = std::max(1.0, static_cast<double>(load.prompts) / static_cast<double>(load.decoding));
  const double stall = stall_ > 0 ? stall_ : alone.seconds * share;
  if (row_seconds_ <= 0) return std::min(rows_, kLeast);
  const double fitting = std::min(stall / row_seconds_, static_cast<double>(rows_));
  return std::min(rows_, std::max(kLeast, static_cast<int32_t>(fitting)));
}

void PrefillBudget::observe(int64_t prefill_rows, int64_t decode_rows, double seconds) {
  const auto mix = [](double& mean, double value) { mean = mean > 0 ? mean + kMemory * (value - mean) : value; };
  Alone& alone = alone_[size_class(decode_rows)];
  if (prefill_rows <= 1 && decode_rows > 0) {
    mix(alone.seconds, seconds);
    alone.age = 0;
    return;
  }
  ++alone.age;
  // A step of prompts alone says little about the price of one more row when rows are few.
  if (decode_rows == 0 && prefill_rows < kLeast) return;
  const double others = decode_rows > 0 ? alone.seconds : 0;
  // At least a tenth of the time is theirs: the estimate of the rest may be off.
  mix(row_seconds_, std::max(seconds - others, 0.1 * seconds) / static_cast<double>(prefill_rows));
}

}  // namespace cohort
