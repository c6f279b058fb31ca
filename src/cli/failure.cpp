#include "cli/failure.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/interrupt.h"

namespace cohort::cli {

int failed(const char* command, std::string_view message) {
  fmt::print(stderr, "cohort {}: {}\n", command, printable(message, kMessageBytes));
  return kFailure;
}

int failed(const char* command, const Error& error) {
  failed(command, error.message);
  if (error.code == ErrorCode::cancelled) return kInterruptedExit;
  return error.code == ErrorCode::invalid_argument ? kUsage : kFailure;
}

}  // namespace cohort::cli
