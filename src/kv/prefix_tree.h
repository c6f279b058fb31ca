// Which full pages hold which tokens, so that sequences with a common beginning share them. A page's K and V depend on
// nothing but the tokens up to its end (docs/NUMERICS.md, rule 7), so a shared page has the bits of one computed again.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/pages.h"

namespace cohort {

/// A tree of pages: a node is a page whose tokens follow those of its parents. It holds a reference to each page; pages
/// that nobody else holds are evicted in order of last use, leaves first.
class PrefixTree {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  /// `pool` must outlive the tree.
  explicit PrefixTree(PagePool& pool);

  /// The child of `node` with these kPagePositions tokens, which counts as used now; kNone if there is none.
  int32_t find(int32_t node, std::span<const int32_t> tokens);
  /// As find(), but only looks.
  int32_t peek(int32_t node, std::span<const int32_t> tokens) const;
  /// Adds a child; the caller holds `page`, and there is no such child yet.
  int32_t insert(int32_t node, std::span<const int32_t> tokens, int32_t page);
  int32_t page(int32_t node) const { return nodes_[static_cast<size_t>(node)].page; }

  /// Frees the least recently used page that only the tree holds; false if there is none.
  bool evict();
  size_t size() const { return index_.size(); }

 private:
  struct Node {
    int32_t parent = kNone, page = -1, children = 0;
    uint64_t used = 0, hash = 0;
    std::vector<int32_t> tokens;
  };
  static uint64_t hash_of(int32_t node, std::span<const int32_t> tokens);
  void touch(int32_t node);

  PagePool& pool_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;  // nodes to be used again
  std::unordered_multimap<uint64_t, int32_t> index_;
  std::set<std::pair<uint64_t, int32_t>> leaves_;  // (last use, node)
  uint64_t clock_ = 0;
};

}  // namespace cohort
