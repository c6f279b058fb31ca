// Which KV pages are free. Pages are counted, so that sequences may share them.
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
  explicit PagePool(int32_t pages) : references_(static_cast<size_t>(pages)) {
    for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  }

  int32_t total() const { return static_cast<int32_t>(references_.size()); }
  int32_t available() const { return static_cast<int32_t>(free_.size()); }

  /// A page with one reference, or -1 when none is free.
  int32_t take() {
    if (free_.empty()) return -1;
    const int32_t page = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(page)] = 1;
    return page;
  }
  void share(int32_t page) { ++references_[static_cast<size_t>(page)]; }
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }
  void release(int32_t page) {
    if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }

 private:
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;
};

}  // namespace cohort
