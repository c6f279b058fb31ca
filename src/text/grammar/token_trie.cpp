#include "text/grammar/token_trie.h"

#include <algorithm>

namespace cohort::grammar {

TokenTrie::TokenTrie(std::span<const std::string_view> pieces) {
  for (const std::string_view piece : pieces) {
    const bool fits = piece.size() <= UINT16_MAX;
    pieces_.emplace_back(bytes_.size(), fits ? piece.size() : 0);
    if (fits) bytes_ += piece;
  }
  std::vector<int32_t> sorted;
  for (size_t t = 0; t < pieces_.size(); ++t) {
    const std::string_view bytes = piece(static_cast<int32_t>(t));
    if (bytes.empty()) continue;
    sorted.push_back(static_cast<int32_t>(t));
    longest_ = std::max(longest_, bytes.size());
    if (bytes.size() == 1) single_bytes_.set(static_cast<unsigned char>(bytes[0]));
  }
  std::ranges::sort(sorted, [this](int32_t a, int32_t b) {
    const int order = piece(a).compare(piece(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // nodes from the root to the last token
  std::string_view last;
  const auto leave = [&](size_t depth) {
    while (path.size() > depth) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
  };
  for (const int32_t token : sorted) {
    const std::string_view bytes = piece(token);
    const auto [a, b] = std::ranges::mismatch(bytes, last);
    leave(static_cast<size_t>(a - bytes.begin()));
    for (size_t i = path.size(); i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<unsigned char>(bytes[i]), static_cast<uint16_t>(i + 1), 0,
                        static_cast<uint32_t>(tokens_.size())});
    }
    tokens_.push_back(token);
    last = bytes;
  }
  leave(0);
  nodes_.push_back({0, 0, 0, static_cast<uint32_t>(tokens_.size())});
}

}  // namespace cohort::grammar
