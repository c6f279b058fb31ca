#include "cli/failure.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/interrupt.h"

namespace cohort::cli {

int failed(const char* command, const Error& error) {
  fmt::print(stderr, "cohort {}: {}\n", command, printable(error.message, kMessageBytes));
  return error.code == ErrorCode::cancelled ? kInterruptedExit : 1;
}

}  // namespace cohort::cli
