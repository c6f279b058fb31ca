// JSON Schema to grammar. Every text of the grammar is JSON that the schema accepts (not the other way round:
// properties come in the schema's order, there are none beside those that `properties` lists unless
// `additionalProperties` says so, white space is short, numbers have at most 15 digits).
//
// Supported: type (also a list), enum, const, properties, required, additionalProperties, items, prefixItems, minItems,
// maxItems, minLength, maxLength, pattern, format (date, time, date-time, uuid, ipv4, email), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, anyOf, oneOf (when its branches exclude each other), allOf (when its parts do not
// say different things of one place), $ref within the schema, also recursive, $defs, definitions, true and false. Other
// keywords that restrict are errors, those that only describe are fine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cohort/error.h"
#include "text/grammar/grammar.h"

namespace cohort::grammar {

/// `path` names the schema in messages ("response_format.json_schema.schema"). Errors: invalid_argument (a malformed
/// schema, one that nothing satisfies), unsupported (a keyword; the message names it and its place), capacity.
Expected<Grammar> grammar_of_schema(const nlohmann::ordered_json& schema, std::string_view path);

/// The same within another grammar: an expression for the schema's values.
Expected<Grammar::Id> add_schema(Grammar& grammar, const nlohmann::ordered_json& schema, std::string_view path);

/// Any JSON object.
Grammar grammar_of_json_object();

}  // namespace cohort::grammar
