#ifdef COHORT_HAS_CUDA

#include "kernels/cuda/step_writer.h"

#include <algorithm>

#include "base/result.h"
#include "kernels/cuda/units.h"
#include "kv/cache.h"

namespace cohort::cuda {
namespace {

/// What a row of a sequence sees of the cache.
struct Seen {
  int32_t end;                      // of its positions
  int32_t first_split, last_split;  // that hold them
  bool same_splits(const Seen& other) const {
    return first_split == other.first_split && last_split == other.last_split;
  }
};
Seen seen_by(const SequenceRows& sequence, int32_t row, int32_t window) {
  const VisiblePositions p = visible_positions(sequence, row, window);
  return {p.end, p.begin / kSplitPositions, (p.end - 1) / kSplitPositions};
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
  Fill fill{{begin, begin, first_sampled, first_sampled}, std::vector<int64_t>(windows_.size(), 0)};
  for (const SequenceRows& s : batch.sequences) {
    const int32_t end = s.first_row + s.rows;
    while (fill.part.end < end) {
      if (!take(batch, s, s.canvas ? end : fill.part.end + 1, fill)) return fill.part;
    }
  }
  return fill.part;
}

/// Adds the sequence's rows up to `end` if they fit, as a row alone always does; else the part ends here.
bool StepWriter::take(const Batch& batch, const SequenceRows& s, int32_t end, Fill& fill) const {
  const StepPart& part = fill.part;
  bool fits = end - part.begin <= limits_.rows && (!s.canvas || limits_.canvas == 0 || s.rows <= limits_.canvas);
  for (int32_t row = part.end; row < end; ++row) {
    for (size_t w = 0; w < windows_.size(); ++w) {
      const Seen seen = seen_by(s, row - s.first_row, windows_[w]);
      fill.units[w] += seen.last_split - seen.first_split + 1;
      fits &= fill.units[w] <= limits_.units;
    }
  }
  int32_t sampled = part.last_sampled;
  const auto total = static_cast<int32_t>(batch.sampled_rows.size());
  while (sampled < total && batch.sampled_rows[static_cast<size_t>(sampled)] < end) ++sampled;
  fits &= sampled == part.last_sampled || sampled - part.first_sampled <= limits_.sampled;
  if (!fits && (part.rows() > 0 || s.canvas)) return false;
  fill.part.end = end;
  fill.part.last_sampled = sampled;
  return true;
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
    const auto [from, to] = part.of(s);
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
    const int32_t count = write_units(windows_[w], batch, part, group_rows, page_begin, pages, units, tiles);
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
int32_t StepWriter::write_units(int32_t window, const Batch& batch, const StepPart& part, int32_t group_rows,
                                const int32_t* page_begin, const int32_t* pages, int32_t* out, int32_t& tiles) const {
  constexpr int32_t kPages = kSplitPositions / kPagePositions;
  int32_t total = 0;
  // Places in this order: kPages + 1 down to 2 for the pages of the first kind, then 1 and 0.
  for (int32_t place = group_rows > 1 ? kPages + 1 : 1; place >= 0; --place) {
    int32_t partial = 0, count = 1;
    for (const SequenceRows& s : batch.sequences) {
      const auto [from, to] = part.of(s);
      for (int32_t row = from; row < to; row += count) {
        const Seen seen = seen_by(s, row - s.first_row, window);
        Seen last_seen = seen;
        for (count = 1; count < group_rows && row + count < to; ++count) {
          const Seen next = seen_by(s, row + count - s.first_row, window);
          if (!next.same_splits(seen)) break;
          last_seen = next;
        }
        const int32_t last_page = (last_seen.end - 1) / kPagePositions, first_page = page_begin[row - part.begin];
        for (int32_t split = seen.first_split; split <= seen.last_split; ++split) {
          const int32_t unit_pages = std::min(last_page - split * kPages + 1, kPages);
          if ((count > kFewRows ? unit_pages + 1 : split < seen.last_split ? 1 : 0) != place) continue;
          int32_t* unit = out + int64_t{total++} * kUnitWords;
          unit[kUnitRow] = row - part.begin;
          unit[kUnitSplit] = split;
          unit[kUnitPosition] = s.first_position + (s.canvas ? 0 : row - s.first_row);
          unit[kUnitPartial] = partial;
          unit[kUnitRows] = unit_rows_word(count, seen.end - 1 - unit[kUnitPosition]);
          for (int32_t p = 0; p < kPages; ++p)
            unit[kUnitPages + p] = pages[first_page + std::min(split * kPages + p, last_page)];
        }
        partial += count * (seen.last_split - seen.first_split + 1);
      }
    }
    if (place == 2) tiles = total;
  }
  return total;
}

bool StepWriter::has_canvas(const Batch& batch, const StepPart& part) {
  return std::ranges::any_of(batch.sequences,
                             [&](const SequenceRows& s) { return s.canvas && part.of(s).from < part.of(s).to; });
}

bool StepWriter::one_row_each(const Batch& batch, const StepPart& part) {
  return std::all_of(batch.sequences.begin(), batch.sequences.end(),
                     [&](const SequenceRows& s) { return part.of(s).to - part.of(s).from <= 1; });
}

int32_t StepWriter::most_units(const int32_t* step) {
  return *std::max_element(step + kUnits, step + kUnits + kMaxWindows);
}

}  // namespace cohort::cuda

#endif  // COHORT_HAS_CUDA
