// What the readers of tokenizer.json need beyond JsonObject's look-ups.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace cohort::text {

/// The error for a field that is not what it must be.
inline tl::unexpected<Error> wrong_field(const JsonObject& object, std::string_view field, std::string_view expected) {
  return fail(ErrorCode::corrupt, "{}: \"{}\" must be {}", object.where(), field, expected);
}

/// A whole number from 0 to `most`; `otherwise` if the field is absent.
inline Expected<size_t> get_count(const JsonObject& object, std::string_view field, size_t otherwise, int64_t most) {
  COHORT_ASSIGN(const int64_t value, object.get_int(field, static_cast<int64_t>(otherwise)));
  if (value < 0 || value > most) {
    return fail(ErrorCode::corrupt, "{}: \"{}\" is {}, but must be a whole number up to {}", object.where(), field,
                value, most);
  }
  return static_cast<size_t>(value);
}

}  // namespace cohort::text
