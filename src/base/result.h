// Shorthands around Expected<T>: make an error from a format string, pass an error on.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "cohort/error.h"

namespace cohort {

/// An error with a formatted message: `return fail(ErrorCode::corrupt, "tensor '{}': ...", name);`
template <class... Args>
tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace cohort

/// Returns from the enclosing function with the error of `expression`, which is an Expected<void> (or one whose value
/// is not needed).
#define COHORT_TRY(expression)                                           \
  do {                                                                   \
    auto cohort_try_result = (expression);                               \
    if (!cohort_try_result) {                                            \
      return tl::unexpected<::cohort::Error>(cohort_try_result.error()); \
    }                                                                    \
  } while (false)
// A declaration and a name stand without parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
/// Declares `declaration` from the value of `expression`, or returns its error: `COHORT_ASSIGN(auto file, open(path));`
#define COHORT_ASSIGN(declaration, expression) \
  COHORT_ASSIGN_IMPL(declaration, expression, COHORT_CONCAT(cohort_value_, __LINE__))
#define COHORT_ASSIGN_IMPL(declaration, expression, name) \
  auto name = (expression);                               \
  if (!name) {                                            \
    return tl::unexpected<::cohort::Error>(name.error()); \
  }                                                       \
  declaration = std::move(*name)
#define COHORT_CONCAT(a, b) COHORT_CONCAT_IMPL(a, b)
#define COHORT_CONCAT_IMPL(a, b) a##b
// NOLINTEND(bugprone-macro-parentheses)
