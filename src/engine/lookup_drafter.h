// Guesses from the sequence itself: what followed the last time that it had the same last few tokens. Costs next to
// nothing and is right where text repeats what it has read: code that is edited, answers that quote their prompt.
// (Saxena: "Prompt lookup decoding", 2023; Yang et al.: "Inference with reference", 2023.)
#pragma once

#include <unordered_map>

#include "engine/drafter.h"

namespace cohort {

class LookupDrafter : public Drafter {
 public:
  std::string description() const override { return "lookup"; }
  Expected<void> guess(std::span<Wish> wishes) override;
  void forget(SequenceId id) override { indices_.erase(id); }

 private:
  /// Longer runs are tried first; below two tokens nearly everything has been seen before.
  static constexpr int32_t kLongest = 4, kShortest = 2;
  /// Where each run of kShortest to kLongest tokens ended last, by a hash of them; the runs that end at the last token
  /// are not there yet, because nothing has followed them.
  struct Index {
    int32_t seen = 0;  // tokens
    std::unordered_map<uint64_t, int32_t> last;
  };
  static uint64_t hash(std::span<const int32_t> run);
  static void extend(Index& index, std::span<const int32_t> tokens);
  static int32_t find(const Index& index, std::span<const int32_t> tokens);

  std::unordered_map<SequenceId, Index> indices_;
};

}  // namespace cohort
