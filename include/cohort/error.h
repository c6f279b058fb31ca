// Errors that input can cause. Every message says what happened, the value, the limit and the fix.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace cohort {

enum class ErrorCode {
  invalid_argument,  // the caller's value is wrong (HTTP 400)
  not_found,         // a file, tensor or key that does not exist
  corrupt,           // a file whose contents contradict its format
  unsupported,       // well-formed, but this build cannot do it
  io,                // the operating system refused
  capacity,          // more than memory, context or queue holds (HTTP 503 or 400)
  cancelled,         // the caller went away
  internal,          // a bug of ours, reported instead of crashing
};

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

template <class T>
using Expected = tl::expected<T, Error>;

}  // namespace cohort
