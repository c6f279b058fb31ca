// A grammar as the automaton runs it: every rule is a list of alternatives, every alternative a run of items that ends
// with `end`. Characters have become bytes; what can never be completed is gone.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "cohort/error.h"
#include "text/grammar/grammar.h"

namespace cohort::grammar {

using ByteSet = std::bitset<256>;

struct Item {
  enum class Kind : uint8_t {
    end,    // of the alternative
    bytes,  // one byte of sets[index]
    token,  // the token `index`
    call,   // the rule `index`
    repeat  // the rule `index`, low to high times (high < 0: without limit)
  };
  Kind kind = Kind::end;
  int32_t index = 0;
  int32_t low = 0, high = 0;
};

struct Rules {
  std::vector<Item> items;
  std::vector<std::vector<uint32_t>> alternatives;  // by rule: where they begin in items
  std::vector<ByteSet> sets;
  uint32_t root = 0;
  /// Bytes that no set tells apart have the same class.
  std::array<uint8_t, 256> byte_class{};
  std::vector<unsigned char> class_byte;  // one byte of each class
};

/// `available`: bytes that some token spells alone, so that whatever is begun can be completed. Errors:
/// invalid_argument (a rule calls itself before it reads anything; nothing can be derived from the root), capacity (too
/// many items).
Expected<Rules> make_rules(const Grammar& grammar, const ByteSet& available);

}  // namespace cohort::grammar
