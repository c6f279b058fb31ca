#include "engine/lookup_drafter.h"

#include <algorithm>

namespace cohort {

uint64_t LookupDrafter::hash(std::span<const int32_t> run) {
  uint64_t h = run.size();
  for (const int32_t token : run) {
    // The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    h += static_cast<uint64_t>(static_cast<uint32_t>(token)) + 0x9E3779B97F4A7C15U;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9U;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBU;
    h ^= h >> 31;
  }
  return h;
}

/// Adds the runs that end before the last token.
void LookupDrafter::extend(Index& index, std::span<const int32_t> tokens) {
  const auto size = static_cast<int32_t>(tokens.size());
  for (; index.seen < size; ++index.seen) {
    const int32_t end = index.seen;
    // The run before this token has a token after it now.
    for (int32_t n = kShortest; n <= std::min(kLongest, end); ++n) {
      index.last[hash(tokens.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n)))] = end;
    }
  }
}

/// The position after the latest earlier run that equals the last tokens; -1: there is none.
int32_t LookupDrafter::find(const Index& index, std::span<const int32_t> tokens) {
  const auto size = static_cast<int32_t>(tokens.size());
  for (int32_t n = std::min(kLongest, size); n >= kShortest; --n) {
    const auto run = tokens.last(static_cast<size_t>(n));
    const auto found = index.last.find(hash(run));
    if (found == index.last.end()) continue;
    const auto before = tokens.subspan(static_cast<size_t>(found->second - n), static_cast<size_t>(n));
    if (std::ranges::equal(before, run)) return found->second;  // else two runs have the same hash
  }
  return -1;
}

Expected<void> LookupDrafter::guess(std::span<Wish> wishes) {
  for (Wish& wish : wishes) {
    wish.guesses.clear();
    Index& index = indices_[wish.id];
    extend(index, wish.tokens);
    const int32_t from = find(index, wish.tokens);
    if (from < 0) continue;
    // Where the run overlaps the end, the guesses go on with themselves: "a b a b" is followed by "a b a b".
    for (int32_t i = 0; i < wish.count; ++i) {
      const auto at = static_cast<size_t>(from) + static_cast<size_t>(i);
      wish.guesses.push_back(at < wish.tokens.size() ? wish.tokens[at] : wish.guesses[at - wish.tokens.size()]);
    }
  }
  return {};
}

}  // namespace cohort
