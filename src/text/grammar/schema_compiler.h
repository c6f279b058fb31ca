// What json_schema.h does: a schema becomes expressions of a grammar. Its parts: json_schema.cpp (any schema),
// schema_types.cpp (one type), schema_combined.cpp (references and combinations).
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "text/grammar/json_parts.h"

namespace cohort::grammar {

inline constexpr std::array<std::string_view, 7> kTypes{"object",  "array",   "string", "number",
                                                        "integer", "boolean", "null"};
/// Keywords that describe and do not restrict.
inline constexpr std::array<std::string_view, 18> kDescriptions{
    "title",     "description",   "default", "examples",        "example",          "$schema",
    "$id",       "$comment",      "$defs",   "definitions",     "deprecated",       "readOnly",
    "writeOnly", "discriminator", "strict",  "contentEncoding", "contentMediaType", "$anchor"};
inline constexpr std::array<std::string_view, 16> kTypeKeywords{
    "properties",      "required",    "additionalProperties",
    "items",           "prefixItems", "minItems",
    "maxItems",        "uniqueItems", "minLength",
    "maxLength",       "pattern",     "format",
    "minimum",         "maximum",     "exclusiveMinimum",
    "exclusiveMaximum"};

/// Bytes of a name that messages show.
inline constexpr size_t kShownName = 60;

inline bool has(const auto& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

/// The JSON Schema type of a value; whole numbers are "integer".
std::string_view type_of(const nlohmann::ordered_json& value);

using Types = std::set<std::string_view>;

/// "number" holds every "integer".
bool is_of(std::string_view type, const Types& types);

class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;
  using Id = Grammar::Id;

  /// `root` must outlive this; `path` names it in messages.
  SchemaCompiler(Grammar& grammar, const Json& root, std::string_view path)
      : g_(grammar), parts_(grammar), root_(root), path_(path) {}

  /// An expression for the values of the root schema.
  Expected<Id> run();

 private:
  struct Waiting {
    Grammar::Rule rule;
    const Json* schema;
    std::string path;
  };

  tl::unexpected<Error> unsupported(std::string_view keyword, const std::string& path, std::string_view why = "") const;
  tl::unexpected<Error> wrong(std::string_view keyword, const std::string& path, std::string_view expected) const;
  Expected<Id> schema(const Json& s, const std::string& path);
  /// The types that a schema allows; without "type", those that its keywords speak of.
  Expected<Types> types_of(const Json& s, const std::string& path) const;
  Expected<Id> typed(const Json& s, std::string_view type, const std::string& path);
  Expected<Id> values(const Json& s, const Types& types, const std::string& path);

  Expected<int32_t> count(const Json& s, std::string_view keyword, int32_t absent, const std::string& path) const;
  Expected<Id> string(const Json& s, const std::string& path);
  Expected<NumberBounds> bounds(const Json& s, bool integer, const std::string& path) const;
  Expected<Id> number(const Json& s, bool integer, const std::string& path);
  Expected<Id> array(const Json& s, const std::string& path);
  Expected<std::optional<std::vector<Json>>> finite_values(const Json& s, const std::string& path) const;
  Expected<Id> unique_array(const Json& s, int32_t low, int32_t high, const std::string& path);
  /// [a, b, c, rest...]: what follows after each of the fixed items, from the last to the first.
  Id tuple(const std::vector<Id>& prefix, Id item, int32_t low, int32_t high);
  Id named(std::string_view name, Id body);
  Expected<Id> object(const Json& s, const std::string& path);

  Expected<const Json*> resolve(const Json& reference, const std::string& path) const;
  Expected<Id> reference(const Json& s, const std::string& path);
  /// $ref, anyOf, oneOf and allOf. Beside them only `type` may restrict.
  Expected<Id> combined(const Json& s, const std::string& keyword, const std::string& path);
  /// A schema with its references followed.
  Expected<const Json*> followed(const Json& s, const std::string& path) const;
  Expected<bool> exclusive(const Json& a, const Json& b, const std::string& path) const;
  Expected<void> check_exclusive(const Json& branches, const std::string& path) const;
  /// The parts become one schema, as long as they speak of different things.
  Expected<Id> all_of(const Json& s, const std::string& path);

  Grammar& g_;
  JsonParts parts_;
  const Json& root_;
  std::string path_;
  std::map<const Json*, Grammar::Rule> rules_;    // by what a reference names
  std::map<std::string, Grammar::Rule> strings_;  // by their pattern
  std::deque<Waiting> waiting_;
  std::deque<Json> owned_;
  size_t count_ = 0;
  int merged_ = 0;
};

}  // namespace cohort::grammar
