#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>

namespace cohort {
namespace {

// The number that follows `key` in a file of "key value" lines, or `fallback`.
size_t number_after(const char* path, const std::string& key, size_t fallback) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    size_t value = 0;
    if (word == key && file >> value) return value;
  }
  return fallback;
}

// The whole content as a number ("max" and absent files give `fallback`).
size_t number_in(const char* path, size_t fallback) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : fallback;
}

}  // namespace

size_t available_memory() {
  constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
  const size_t kibibytes = number_after("/proc/meminfo", "MemAvailable:", kUnlimited / 1024);
  const size_t limit = number_in("/sys/fs/cgroup/memory.max", kUnlimited);
  if (limit == kUnlimited) return kibibytes * 1024;
  // Page cache inside the group can be dropped, so only anonymous memory counts against the limit.
  const size_t used = number_after("/sys/fs/cgroup/memory.stat", "anon", 0);
  return std::min(kibibytes * 1024, limit - std::min(limit, used));
}

size_t resident_memory() {
  return number_after("/proc/self/status", "VmRSS:", 0) * 1024;
}
size_t peak_resident_memory() {
  return number_after("/proc/self/status", "VmHWM:", 0) * 1024;
}

void reset_peak_resident_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

}  // namespace cohort
