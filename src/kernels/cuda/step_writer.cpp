#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/step_writer.h"

#include <algorithm>

#include "base/result.h"
#include "kv/cache.h"

namespace cohort::cuda {
namespace {

/// First and last split that a row at `position` sees.
std::pair<int32_t, int32_t> splits(int32_t window, int32_t position) {
  const int32_t first_visible = window > 0 ? std::max(0, position + 1 - window) : 0;
  return {first_visible / kSplitPositions, position / kSplitPositions};
}

}  // namespace

Expected<StepMemory> allocate_step(DeviceMemory& memory, const Limits& limits) {
  const auto ints = [&](int64_t count) -> Expected<int32_t*> {
    COHORT_ASSIGN(void* words, memory.allocate_zeros(static_cast<size_t>(count) * 4, "the step's data"));
    return static_cast<int32_t*>(words);
  };
  StepMemory out;
  COHORT_ASSIGN(out.step.header, ints(kHeaderWords));
  COHORT_ASSIGN(out.step.tokens, ints(limits.rows));
  COHORT_ASSIGN(out.step.positions, ints(limits.rows));
  COHORT_ASSIGN(out.step.page_begin, ints(limits.rows));
  COHORT_ASSIGN(out.step.sampled_rows, ints(limits.sampled));
  COHORT_ASSIGN(out.step.pages, ints(StepWriter::kMaxPages + kSplitPositions / kPagePositions));
  for (auto& units : out.step.units) {
    COHORT_ASSIGN(units, ints(int64_t{limits.units} * kUnitWords));
  }
  COHORT_ASSIGN(int32_t * best, ints(int64_t{limits.sampled} * 2));
  out.best = reinterpret_cast<unsigned long long*>(best);
  COHORT_ASSIGN(out.counters, ints(int64_t{limits.sampled} + 1));
  return out;
}

int64_t StepWriter::most_words(const Limits& limits) {
  return kHeaderWords + 3 * int64_t{limits.rows} + limits.sampled + kMaxPages +
         kMaxWindows * int64_t{limits.units} * kUnitWords;
}

StepPart StepWriter::next_part(const Batch& batch, int32_t begin, int32_t first_sampled) const {
  std::vector<int64_t> units(windows_.size(), 0);
  int32_t sampled = first_sampled, row = begin;
  const auto total = static_cast<int32_t>(batch.sampled_rows.size());
  for (; row < batch.rows() && row - begin < limits_.rows; ++row) {
    bool fits = true;
    for (size_t w = 0; w < units.size(); ++w) {
      const auto [first, last] = splits(windows_[w], batch.positions[static_cast<size_t>(row)]);
      units[w] += last - first + 1;
      fits &= units[w] <= limits_.units;
    }
    const bool samples = sampled < total && batch.sampled_rows[static_cast<size_t>(sampled)] == row;
    fits &= !samples || sampled + 1 - first_sampled <= limits_.sampled;
    if (!fits && row > begin) break;
    if (samples) ++sampled;
  }
  return {begin, row, first_sampled, sampled};
}

void StepWriter::write(const Batch& batch, const StepPart& part, int32_t group_rows, int32_t ticket,
                       int32_t* out) const {
  const int32_t rows = part.rows();
  std::fill_n(out, kHeaderWords, 0);
  int32_t* tokens = out + kHeaderWords;
  int32_t* positions = tokens + rows;
  int32_t* page_begin = positions + rows;
  int32_t* sampled = page_begin + rows;
  int32_t* pages = sampled + part.sampled();
  std::copy_n(batch.tokens.begin() + part.begin, rows, tokens);
  std::copy_n(batch.positions.begin() + part.begin, rows, positions);
  for (int32_t i = part.first_sampled; i < part.last_sampled; ++i)
    sampled[i - part.first_sampled] = batch.sampled_rows[static_cast<size_t>(i)] - part.begin;
  int32_t page_count = 0;
  for (const SequenceRows& s : batch.sequences) {
    const int32_t from = std::max(part.begin, s.first_row), to = std::min(part.end, s.first_row + s.rows);
    if (from >= to) continue;
    for (int32_t row = from; row < to; ++row) page_begin[row - part.begin] = page_count;
    const int32_t last_position = s.first_position + (to - 1 - s.first_row);
    const int32_t needed = last_position / kPagePositions + 1;
    std::copy_n(s.pages.begin(), needed, pages + page_count);
    page_count += needed;
  }
  int32_t* units = pages + page_count;
  for (size_t w = 0; w < windows_.size(); ++w) {
    const auto window = static_cast<int32_t>(w);
    int32_t tiles = 0;
    const int32_t count = write_units(windows_[w], group_rows, rows, positions, page_begin, pages, units, tiles);
    out[kUnits + window] = count;
    out[kTileUnits + window] = tiles;
    units += count * kUnitWords;
  }
  out[kRows] = rows;
  out[kSampled] = part.sampled();
  out[kPages] = page_count;
  out[kTicket] = ticket;
}

/// The units of one window: first those of more than kFewRows rows, of which the ones with more pages come first, since
/// they are worked on in this order; then the others, whole splits first, so that no block starts one last. Returns how
/// many there are, tiles: how many of the first kind.
int32_t StepWriter::write_units(int32_t window, int32_t group_rows, int32_t rows, const int32_t* positions,
                                const int32_t* page_begin, const int32_t* pages, int32_t* out, int32_t& tiles) const {
  constexpr int32_t kPages = kSplitPositions / kPagePositions;
  int32_t total = 0;
  // Places in this order: kPages + 1 down to 2 for the pages of the first kind, then 1 and 0.
  for (int32_t place = group_rows > 1 ? kPages + 1 : 1; place >= 0; --place) {
    int32_t partial = 0, count = 1;
    for (int32_t row = 0; row < rows; row += count) {
      const auto range = splits(window, positions[row]);
      const auto [first, last] = range;
      count = 1;
      while (count < group_rows && row + count < rows && page_begin[row + count] == page_begin[row] &&
             positions[row + count] == positions[row] + count && splits(window, positions[row + count]) == range)
        ++count;
      const int32_t last_page = positions[row + count - 1] / kPagePositions;
      for (int32_t split = first; split <= last; ++split) {
        const int32_t unit_pages = std::min(last_page - split * kPages + 1, kPages);
        if ((count > kFewRows ? unit_pages + 1 : split < last ? 1 : 0) != place) continue;
        int32_t* unit = out + int64_t{total++} * kUnitWords;
        unit[kUnitRow] = row;
        unit[kUnitSplit] = split;
        unit[kUnitPosition] = positions[row];
        unit[kUnitPartial] = partial;
        unit[kUnitRows] = count;
        for (int32_t p = 0; p < kPages; ++p)
          unit[kUnitPages + p] = pages[page_begin[row] + std::min(split * kPages + p, last_page)];
      }
      partial += count * (last - first + 1);
    }
    if (place == 2) tiles = total;
  }
  return total;
}

bool StepWriter::one_row_each(const Batch& batch, const StepPart& part) {
  return std::all_of(batch.sequences.begin(), batch.sequences.end(), [&](const SequenceRows& s) {
    return std::min(part.end, s.first_row + s.rows) - std::max(part.begin, s.first_row) <= 1;
  });
}

int32_t StepWriter::most_units(const int32_t* step) {
  return *std::max_element(step + kUnits, step + kUnits + kMaxWindows);
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
