// Text from files and requests, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace cohort {

/// `text` on one line: control characters (which could drive a terminal) are escaped, invalid UTF-8 becomes U+FFFD, and
/// what exceeds about `limit` bytes becomes "...".
std::string printable(std::string_view text, size_t limit);

}  // namespace cohort
