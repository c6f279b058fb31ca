// A pushdown automaton over bytes, made deterministic as it runs. A state is a set of stacks; a set is stored as frames
// (place in the rules, count of the repetition there, the set of stacks below it), so that stacks share what they have
// in common and a set is no larger than the rules, however many ways there are to read the text. Sets are interned: the
// same set is the same number, and what a byte does to it is remembered.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/rules.h"

namespace cohort::grammar {

using Stacks = uint32_t;

struct Frame {
  uint32_t item = 0;  // place in Rules::items
  int32_t count = 0;  // rounds done, if that is a repetition
  Stacks below = 0;   // what follows after the rule
  bool operator==(const Frame&) const = default;
};

class Automaton {
 public:
  /// The empty stack: the text is complete.
  static constexpr Stacks kComplete = 0;
  /// A stack of which nothing is known, for what holds whatever lies below.
  static constexpr Stacks kUnknown = 1;
  /// No stack at all: the text is wrong.
  static constexpr Stacks kNone = 2;

  explicit Automaton(const Rules& rules);

  /// The state before the first byte.
  Stacks start();
  /// The state when what is on `stacks` goes on. A state's own frames all wait for a byte or a token.
  Stacks enter(Stacks stacks);
  Stacks step(Stacks state, unsigned char byte) { return step_class(state, rules_->byte_class[byte]); }
  Stacks step_token(Stacks state, int32_t token);
  Stacks unite(Stacks a, Stacks b) { return unite(a, b, 0); }
  Stacks intern(std::vector<Frame> frames, bool complete, bool unknown);
  /// A copy of another automaton's stacks (of the same rules).
  Stacks copy(const Automaton& other, Stacks stacks);

  std::span<const Frame> frames(Stacks s) const { return {frames_.data() + sets_[s].first, sets_[s].size}; }
  /// The empty stack is among them.
  bool complete(Stacks s) const { return sets_[s].complete; }
  bool unknown(Stacks s) const { return sets_[s].unknown; }
  const Item& item(const Frame& frame) const { return rules_->items[frame.item]; }
  const Rules& rules() const { return *rules_; }

  /// Allows so much work from now on (frames looked at). When it is used up, states are kNone and exhausted() is true.
  void allow(uint64_t work) {
    limit_ = work_ + work;
    exhausted_ = false;
  }
  bool exhausted() const { return exhausted_; }
  size_t bytes() const;

 private:
  struct Set {
    uint32_t first = 0, size = 0;
    bool complete = false, unknown = false;
    int32_t next = -1;  // offset of its transitions
  };
  struct Closure;
  static constexpr Stacks kNotYet = ~Stacks{0};

  Stacks step_class(Stacks state, uint8_t byte_class);
  Stacks unite(Stacks a, Stacks b, int depth);
  Stacks close(Closure& closure);
  void add(Closure& closure, uint32_t item, int32_t count, Stacks below);
  void add_all(Closure& closure, Stacks stacks);

  const Rules* rules_;
  std::vector<Frame> frames_;
  std::vector<Set> sets_;
  std::unordered_multimap<uint64_t, Stacks> index_;  // by hash
  std::unordered_map<uint64_t, Stacks> united_;      // by the pair
  std::unordered_map<Stacks, Stacks> entered_;
  std::vector<Stacks> next_;  // blocks of one entry for each byte class
  uint64_t work_ = 0, limit_ = ~uint64_t{0};
  bool exhausted_ = false;
};

}  // namespace cohort::grammar
