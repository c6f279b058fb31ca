// How much memory this process may still use.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

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
/// "24G" and "24GiB" are 24 * 2^30, "24GB" is 24 * 10^9; also K, M and T, fractions ("1.5G") and plain bytes. Empty for
/// anything else, and above 2^62.
std::optional<size_t> parse_bytes(std::string_view text);

}  // namespace cohort
