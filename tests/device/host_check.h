// Experts in host memory through the engine: the same tokens, and how fast.
#pragma once

#include <string>
#include <vector>

namespace cohort::device_check {

/// The model (a file, or the name of a synthetic one, which is written to the current folder) on the device, with all,
/// half and none of its experts there, and on the CPU: the greedy tokens and tokens a second at each of `counts`
/// streams, and at the first of them other ways of sampling, too. Prints a table; false when a token differs.
bool check_host(const std::string& model, const std::vector<int>& counts);

}  // namespace cohort::device_check
