// The kernel that finds a row's largest logits, on rows that are hard for it.
#pragma once

namespace cohort::device_check {

/// Vocabularies of many sizes; equal logits, NaN, infinities, signed zeros, and all large ones in the share of a few
/// threads: compared with a sort. Prints a line; false when anything differs.
bool check_top();

}  // namespace cohort::device_check
