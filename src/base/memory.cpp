#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
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

std::optional<size_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) return {};
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    constexpr std::string_view kPrefixes = "KMGT";
    const size_t power = kPrefixes.find(unit.front());
    if (power == std::string_view::npos) return {};
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return {};
    factor = std::pow(unit == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = std::floor(value * factor);
  if (!(bytes <= 0x1p62)) return {};
  return static_cast<size_t>(bytes);
}

}  // namespace cohort
