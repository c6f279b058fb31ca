// How much memory this process may still use.
#pragma once

#include <cstddef>
#include <string>

namespace cohort {

/// Bytes that can be allocated without swapping: the kernel's estimate, lowered by the limit of the control group (v2)
/// when there is one.
size_t available_memory();

/// Bytes of this process that are resident now, and the most there ever were (0 where /proc does not say).
size_t resident_memory();
size_t peak_resident_memory();
/// The peak counts from now on (where the kernel allows that): for one who measures one thing after another.
void reset_peak_resident_memory();

/// "1.50 GiB", "37 MiB": for messages.
std::string format_bytes(double bytes);

}  // namespace cohort
