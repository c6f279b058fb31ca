#include "text/tokenizer/byte_trie.h"

#include <algorithm>

namespace cohort::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Each node is a range of the sorted entries that share a prefix; a breadth-first walk numbers them.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> nodes{{0, entries.size(), 0}};
  label_.push_back(0);
  for (size_t node = 0; node < nodes.size(); ++node) {
    const Range range = nodes[node];
    first_child_.push_back(static_cast<uint32_t>(nodes.size()));
    int32_t value = -1;
    for (size_t i = range.begin; i < range.end;) {
      if (entries[i].first.size() == range.depth) {
        if (value < 0 && range.depth > 0) {
          value = entries[i].second;
        }
        ++i;
        continue;
      }
      const char byte = entries[i].first[range.depth];
      const size_t begin = i;
      while (i < range.end && entries[i].first[range.depth] == byte) {
        ++i;
      }
      if (node == 0) {
        root_[static_cast<unsigned char>(byte)] = static_cast<uint32_t>(nodes.size());
      }
      nodes.push_back({begin, i, range.depth + 1});
      label_.push_back(static_cast<unsigned char>(byte));
    }
    value_.push_back(value);
  }
  first_child_.push_back(static_cast<uint32_t>(nodes.size()));
}

}  // namespace cohort::text
