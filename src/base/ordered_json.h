// JSON whose objects keep the order of their names, from text of clients. The library's own parser looks each name up
// among those before it, which takes minutes for the largest objects that a request may hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "cohort/error.h"

namespace cohort {

/// Parses `text` in a time that grows with its size alone; `name` stands in messages. A name that occurs twice in one
/// object is there twice (parse_json refuses that; look-ups find the first one). corrupt: invalid JSON or UTF-8,
/// nesting deeper than kMaxJsonDepth.
Expected<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view name);

}  // namespace cohort
