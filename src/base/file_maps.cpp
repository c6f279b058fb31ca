#include "base/file_maps.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace cohort {

FileMaps::FileMaps() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    char mode[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %*s %*s %lu", &begin, &end, mode, &inode) != 4) continue;
    if (inode != 0 && std::string_view(mode).starts_with("r--")) ranges_.emplace_back(begin, end);
  }
}

void FileMaps::release(const std::byte* begin, size_t size) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(begin) + size) / page * page;
  if (last <= first) return;
  for (const auto& [from, to] : ranges_) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address of a page is a number
    if (from <= first && last <= to) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

}  // namespace cohort
