#include "kv/prefix_tree.h"

#include <algorithm>

namespace cohort {

PrefixTree::PrefixTree(PagePool& pool) : pool_(pool) {
  nodes_.emplace_back();  // the root: no page
}

uint64_t PrefixTree::hash_of(int32_t node, std::span<const int32_t> tokens) {
  uint64_t hash = 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(node);
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(static_cast<uint32_t>(token))) * 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

int32_t PrefixTree::peek(int32_t node, std::span<const int32_t> tokens) const {
  const auto [first, last] = index_.equal_range(hash_of(node, tokens));
  for (auto it = first; it != last; ++it) {
    const Node& candidate = nodes_[static_cast<size_t>(it->second)];
    if (candidate.parent == node && std::ranges::equal(candidate.tokens, tokens)) return it->second;
  }
  return kNone;
}

int32_t PrefixTree::find(int32_t node, std::span<const int32_t> tokens) {
  const int32_t child = peek(node, tokens);
  if (child != kNone) touch(child);
  return child;
}

void PrefixTree::touch(int32_t node) {
  Node& n = nodes_[static_cast<size_t>(node)];
  if (n.children == 0) leaves_.erase({n.used, node});
  n.used = ++clock_;
  if (n.children == 0) leaves_.emplace(n.used, node);
}

int32_t PrefixTree::insert(int32_t node, std::span<const int32_t> tokens, int32_t page) {
  int32_t id = static_cast<int32_t>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  Node& parent = nodes_[static_cast<size_t>(node)];
  if (node != kRoot && parent.children == 0) leaves_.erase({parent.used, node});
  ++parent.children;
  Node& n = nodes_[static_cast<size_t>(id)];
  n = {node, page, 0, ++clock_, hash_of(node, tokens), {tokens.begin(), tokens.end()}};
  pool_.keep(page);
  leaves_.emplace(n.used, id);
  index_.emplace(n.hash, id);
  return id;
}

bool PrefixTree::evict() {
  // Sequences hold all pages from the root to where they are, so a leaf that is held hides no page that could be freed,
  // and few leaves are held: those of running sequences.
  const auto leaf = std::ranges::find_if(leaves_, [&](const auto& entry) {
    return pool_.references(nodes_[static_cast<size_t>(entry.second)].page) == 1;
  });
  if (leaf == leaves_.end()) return false;
  const int32_t id = leaf->second;
  leaves_.erase(leaf);
  Node& n = nodes_[static_cast<size_t>(id)];
  const auto [first, last] = index_.equal_range(n.hash);
  index_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == id; }));
  pool_.drop(n.page);
  const int32_t parent_id = n.parent;
  Node& parent = nodes_[static_cast<size_t>(parent_id)];
  if (--parent.children == 0 && parent_id != kRoot) leaves_.emplace(parent.used, parent_id);
  n = {};
  unused_.push_back(id);
  return true;
}

}  // namespace cohort
