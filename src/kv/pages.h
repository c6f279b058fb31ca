// Which KV pages are free. Pages are counted, so that sequences and the prefix tree may share them.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache.h"

namespace cohort {

/// Pages that hold `positions` positions.
constexpr int32_t pages_for(int64_t positions) {
  return static_cast<int32_t>((positions + kPagePositions - 1) / kPagePositions);
}

class PagePool {
 public:
  explicit PagePool(int32_t pages) : references_(static_cast<size_t>(pages)), kept_(static_cast<size_t>(pages)) {
    for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  }

  int32_t total() const { return static_cast<int32_t>(references_.size()); }
  /// Pages that hold nothing.
  int32_t available() const { return static_cast<int32_t>(free_.size()); }
  /// Pages that nobody but the prefix tree holds: they can be had by evicting.
  int32_t reusable() const { return reusable_; }

  /// A page with one reference, or -1 when none is free.
  int32_t take() {
    if (free_.empty()) return -1;
    const int32_t page = free_.back();
    free_.pop_back();
    references_[index(page)] = 1;
    return page;
  }
  void share(int32_t page) {
    if (kept_[index(page)] && references_[index(page)] == 1) --reusable_;
    ++references_[index(page)];
  }
  int32_t references(int32_t page) const { return references_[index(page)]; }
  void release(int32_t page) {
    const int32_t left = --references_[index(page)];
    if (left == 0) free_.push_back(page);
    if (left == 1 && kept_[index(page)]) ++reusable_;
  }

  /// The prefix tree's own reference to a page that somebody holds.
  void keep(int32_t page) {
    share(page);
    kept_[index(page)] = true;
  }
  /// Gives that reference back.
  void drop(int32_t page) {
    if (references_[index(page)] == 1) --reusable_;
    kept_[index(page)] = false;
    release(page);
  }

 private:
  static size_t index(int32_t page) { return static_cast<size_t>(page); }
  std::vector<int32_t> references_;
  std::vector<bool> kept_;
  std::vector<int32_t> free_;
  int32_t reusable_ = 0;
};

}  // namespace cohort
