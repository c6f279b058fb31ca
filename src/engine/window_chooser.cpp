#include "engine/window_chooser.h"

#include <algorithm>

namespace cohort {

void HitRate::observe(int32_t guesses, int32_t right) {
  for (int32_t i = 0; i < right; ++i) value_ += kMemory * (1 - value_);
  if (right < guesses) value_ -= kMemory * value_;
}

void WindowChooser::observe(int64_t rows, double seconds) {
  const auto r = static_cast<double>(rows);
  n_ = kKeep * n_ + 1;
  rows_ = kKeep * rows_ + r;
  rows2_ = kKeep * rows2_ + r * r;
  seconds_ = kKeep * seconds_ + seconds;
  product_ = kKeep * product_ + r * seconds;
}

void WindowChooser::observe_drafting(int64_t guesses, double seconds) {
  if (guesses <= 0) return;
  const double one = seconds / static_cast<double>(guesses);
  draft_seconds_ = draft_seconds_ > 0 ? draft_seconds_ + 0.1 * (one - draft_seconds_) : one;
}

double WindowChooser::row_seconds() const {
  const double variance = n_ * rows2_ - rows_ * rows_;
  if (n_ < 4 || variance < 1e-3 * n_ * n_) return -1;
  return std::max(0.0, (n_ * product_ - rows_ * seconds_) / variance);
}

std::vector<int32_t> WindowChooser::choose(std::span<const Stream> streams) {
  std::vector<int32_t> count(streams.size());
  const auto room = [&](size_t i) { return std::min(streams[i].room, most_); };
  const double row = row_seconds();
  if (always_) {
    for (size_t i = 0; i < streams.size(); ++i) count[i] = room(i);
    return count;
  }
  // Until the price of a row is known every other step has guesses, so that it can be seen; later one now and then.
  if (++plain_steps_ >= (row < 0 ? 2 : probe_after_)) {
    plain_steps_ = 0;
    if (row >= 0) probe_after_ = std::min(2 * probe_after_, kRarestProbe);
    for (size_t i = 0; i < streams.size(); ++i) count[i] = std::min(room(i), kProbeGuesses);
    return count;
  }
  if (row < 0) return count;
  // The most likely guesses first, each stream's in their order: a later one is right only if those before it are.
  struct Candidate {
    double chance;
    size_t stream;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < streams.size(); ++i) {
    double chance = 1;
    for (int32_t k = 0; k < room(i); ++k) candidates.push_back({chance *= streams[i].hit, i});
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) { return a.chance > b.chance; });
  const auto n = static_cast<double>(streams.size());
  double tokens = n, seconds = std::max(seconds_ / n_ + row * (n - rows_ / n_), 1e-9);
  for (const Candidate& c : candidates) {
    const double price = row + draft_seconds_;
    if (c.chance * seconds <= tokens * price) break;  // chance / price <= tokens / seconds: not worth it
    tokens += c.chance;
    seconds += price;
    ++count[c.stream];
  }
  if (tokens > n) {
    plain_steps_ = 0;
    probe_after_ = kProbe;
  }
  return count;
}

}  // namespace cohort
