// A trie over byte strings in three arrays, in breadth-first order: the children of a node are neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::text {

class ByteTrie {
 public:
  ByteTrie() = default;
  /// From (string, value) pairs; of equal strings the first one counts, empty strings are left out. Values are not
  /// negative.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return value_.size() <= 1; }
  /// Whether some entry starts with this byte.
  bool may_start(char byte) const { return root_[static_cast<unsigned char>(byte)] != 0; }

  /// Calls visit(size, value) for each entry that `text` starts with, shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) {
        return;
      }
      if (value_[node] >= 0) {
        visit(i + 1, value_[node]);
      }
    }
  }

 private:
  /// The child of a node, 0 for none (the root is nobody's child).
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) {
      return root_[byte];
    }
    for (uint32_t i = first_child_[node]; i < first_child_[node + 1]; ++i) {
      if (label_[i] == byte) {
        return i;
      }
    }
    return 0;
  }

  std::array<uint32_t, 256> root_{};
  std::vector<uint32_t> first_child_;  // [nodes + 1]
  std::vector<unsigned char> label_;   // [nodes]
  std::vector<int32_t> value_;         // [nodes], -1: no entry ends here
};

}  // namespace cohort::text
