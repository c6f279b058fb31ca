// What the checks of device_check share: which items of a list are asked for, and how many threads the host uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace cohort::device_check {

/// Whether item `number` of a list, called `label`, is asked for: its label has one of the parts, or it is in a share
/// of the list ("2/8": every eighth from the third on, so that eight processes share the work); without parts all are.
inline bool asked_for(const std::vector<std::string>& parts, int32_t number, const char* label) {
  const auto wanted = [&](const std::string& part) {
    int32_t share = 0, shares = 0;
    if (std::sscanf(part.c_str(), "%d/%d", &share, &shares) == 2 && shares > 0) return number % shares == share;
    return std::strstr(label, part.c_str()) != nullptr;
  };
  return parts.empty() || std::any_of(parts.begin(), parts.end(), wanted);
}

/// Of the machine, or DEVICE_CHECK_THREADS: processes that share a machine's cores should not have all of them each.
inline int threads() {
  const char* wanted = std::getenv("DEVICE_CHECK_THREADS");
  const int count = wanted != nullptr ? std::atoi(wanted) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, count);
}

}  // namespace cohort::device_check
