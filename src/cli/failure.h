// How a command that can be interrupted says that it failed.
#pragma once

#include <cstddef>
#include <string_view>

#include "cohort/error.h"

namespace cohort::cli {

/// Bytes of a message or name from a file that are printed, at most.
inline constexpr size_t kMessageBytes = 4000;

// What a command returns is 0, one of these, or 130 when Ctrl-C ended it.
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;  // the command line is wrong

/// Prints "cohort COMMAND: message" to stderr, control characters escaped. Returns the exit code: kInterruptedExit when
/// the work was cancelled, kUsage for a value that was given wrong (as for flags that cannot be read), else 1.
int failed(const char* command, const Error& error);
int failed(const char* command, std::string_view message);  // 1

}  // namespace cohort::cli
