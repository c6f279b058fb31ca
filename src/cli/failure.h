// How a command that can be interrupted says that it failed.
#pragma once

#include <cstddef>

#include "cohort/error.h"

namespace cohort::cli {

/// Bytes of a message or name from a file that are printed, at most.
inline constexpr size_t kMessageBytes = 4000;

/// Prints "cohort COMMAND: message" to stderr, control characters escaped. Returns the exit code: kInterruptedExit when
/// the work was cancelled, else 1.
int failed(const char* command, const Error& error);

}  // namespace cohort::cli
