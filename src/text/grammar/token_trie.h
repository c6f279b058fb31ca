// The bytes of all tokens of a vocabulary as a trie in depth-first order, so that a walk that leaves a branch early is
// a jump in an array.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/rules.h"

namespace cohort::grammar {

class TokenTrie {
 public:
  struct Node {
    unsigned char byte = 0;
    uint16_t depth = 0;        // bytes from the root; children of the root have 1
    uint32_t end = 0;          // the node after the last one below this
    uint32_t first_token = 0;  // tokens of this node: tokens()[first_token .. next node's first_token)
  };

  /// `pieces`: the bytes of every token by id, empty for tokens that are no text (and for those longer than 65535
  /// bytes, which are never allowed then).
  explicit TokenTrie(std::span<const std::string_view> pieces);

  /// In depth-first order, without the root; one more at the end as a bound.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  /// The tokens whose bytes end at a node.
  std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  std::string_view piece(int32_t token) const {
    const auto& [offset, size] = pieces_[static_cast<size_t>(token)];
    return std::string_view(bytes_).substr(offset, size);
  }
  size_t vocabulary() const { return pieces_.size(); }
  size_t longest() const { return longest_; }
  /// Bytes that are tokens by themselves.
  const ByteSet& single_bytes() const { return single_bytes_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::string bytes_;
  std::vector<std::pair<size_t, size_t>> pieces_;
  size_t longest_ = 0;
  ByteSet single_bytes_;
};

}  // namespace cohort::grammar
