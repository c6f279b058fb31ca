#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace cohort {
namespace {

/// How many characters must be added, removed, changed or exchanged with their neighbour to make `b` of `a`
/// (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1});
      const bool exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (exchanged) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

std::string letters(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-') out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return out;
}

}  // namespace

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& known) {
  constexpr size_t kLongest = 64, kNear = 2;
  if (name.size() > kLongest) return {};
  const std::string plain = letters(name);
  std::string_view best;
  size_t least = kNear + 1;
  for (const std::string_view one : known) {
    // Short names are near to everything: at most a third of the letters may differ.
    const size_t distance = plain == letters(one) ? 0 : edit_distance(name, one);
    if (distance < least && distance <= one.size() / 3) {
      least = distance;
      best = one;
    }
  }
  return best;
}

}  // namespace cohort
