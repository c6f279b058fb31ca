// Mapped files as memory: which pages can be dropped because the file still has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort {

/// The parts of this process's address space that were read-only maps of files when this was made.
class FileMaps {
 public:
  FileMaps();

  /// Drops the resident pages that lie wholly inside [begin, begin + size) if those are of a file; they come back by
  /// themselves when they are read.
  void release(const std::byte* begin, size_t size) const;

 private:
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;
};

}  // namespace cohort
