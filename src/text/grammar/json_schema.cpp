#include "text/grammar/json_schema.h"

#include <cmath>

#include "base/printable.h"
#include "base/result.h"
#include "text/grammar/schema_compiler.h"

namespace cohort::grammar {

using Json = nlohmann::ordered_json;
using Id = Grammar::Id;

namespace {
constexpr size_t kMaxSchemas = 100'000;
/// More than make_rules() takes, so that a schema is refused before its grammar fills the memory: one schema may add
/// some thousands.
constexpr size_t kMaxExpressions = 150'000;
}  // namespace

std::string_view type_of(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  if (value.is_number_integer()) return "integer";
  return value.get<double>() == std::floor(value.get<double>()) ? "integer" : "number";
}

/// A set of types without "integer" where "number" says it already.
bool is_of(std::string_view type, const Types& types) {
  return types.contains(type) || (type == "integer" && types.contains("number"));
}

Expected<Id> SchemaCompiler::run() {
  COHORT_ASSIGN(const Id body, schema(root_, path_));
  // What references name is compiled after what refers to it, so that recursion ends.
  while (!waiting_.empty()) {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    COHORT_ASSIGN(const Id target, schema(*next.schema, next.path));
    g_.define(next.rule, target);
  }
  return body;
}

tl::unexpected<Error> SchemaCompiler::unsupported(std::string_view keyword, const std::string& path,
                                                  std::string_view why) const {
  return fail(ErrorCode::unsupported, "'{}.{}': the schema keyword '{}' is not supported{}", path,
              printable(keyword, kShownName), printable(keyword, kShownName), why);
}

tl::unexpected<Error> SchemaCompiler::wrong(std::string_view keyword, const std::string& path,
                                            std::string_view expected) const {
  return fail(ErrorCode::invalid_argument, "'{}.{}' must be {}", path, keyword, expected);
}

Expected<Id> SchemaCompiler::schema(const Json& s, const std::string& path) {
  if (++count_ > kMaxSchemas) return fail(ErrorCode::capacity, "'{}' has more than {} schemas", path_, kMaxSchemas);
  if (g_.size() > kMaxExpressions) {
    return fail(ErrorCode::capacity, "'{}' becomes a grammar of more than {} parts; make it smaller", path,
                kMaxExpressions);
  }
  if (s.is_boolean()) return s.get<bool>() ? parts_.value() : g_.choice({});
  if (!s.is_object()) return fail(ErrorCode::invalid_argument, "'{}' must be a schema: an object, true or false", path);
  for (const auto& [keyword, value] : s.items()) {
    static constexpr std::array<std::string_view, 8> kOthers{"type",  "enum",  "const", "anyOf",
                                                             "oneOf", "allOf", "$ref",  "multipleOf"};
    if (!has(kDescriptions, keyword) && !has(kTypeKeywords, keyword) && !has(kOthers, keyword) &&
        !keyword.starts_with("x-"))
      return unsupported(keyword, path);
  }
  for (const char* keyword : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (s.contains(keyword)) return combined(s, keyword, path);
  }
  COHORT_ASSIGN(const Types types, types_of(s, path));
  if (s.contains("enum") || s.contains("const")) return values(s, types, path);
  bool restricted = s.contains("multipleOf");
  for (const std::string_view keyword : kTypeKeywords) restricted |= s.contains(keyword);
  if (types.size() == kTypes.size() && !restricted) return parts_.value();
  std::vector<Id> choices;
  for (const std::string_view type : types) {
    if (type == "integer" && types.contains("number")) continue;
    COHORT_ASSIGN(const Id one, typed(s, type, path));
    choices.push_back(one);
  }
  return g_.choice(std::move(choices));
}

/// The types that a schema allows; without "type", those that its keywords speak of.
Expected<Types> SchemaCompiler::types_of(const Json& s, const std::string& path) const {
  Types types;
  const auto type = s.find("type");
  if (type != s.end()) {
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& one : list) {
      const auto known = one.is_string() ? std::ranges::find(kTypes, one.get_ref<const std::string&>()) : kTypes.end();
      if (known == kTypes.end())
        return wrong("type", path, "one of object, array, string, number, integer, boolean, null, or a list of them");
      types.insert(*known);
    }
    if (types.empty()) return wrong("type", path, "a list that is not empty");
    return types;
  }
  if (s.contains("enum") || s.contains("const")) return Types(kTypes.begin(), kTypes.end());
  const auto speaks_of = [&](std::string_view name, std::initializer_list<std::string_view> keywords) {
    if (std::ranges::any_of(keywords, [&](std::string_view k) { return s.contains(k); })) types.insert(name);
  };
  speaks_of("object", {"properties", "required", "additionalProperties"});
  speaks_of("array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"});
  speaks_of("string", {"minLength", "maxLength", "pattern", "format"});
  speaks_of("number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
  return types.empty() ? Types(kTypes.begin(), kTypes.end()) : types;
}

Expected<Id> SchemaCompiler::typed(const Json& s, std::string_view type, const std::string& path) {
  if (type == "object") return object(s, path);
  if (type == "array") return array(s, path);
  if (type == "string") return string(s, path);
  if (type == "number" || type == "integer") return number(s, type == "integer", path);
  return type == "boolean" ? parts_.boolean() : g_.literal("null");
}

Expected<Id> SchemaCompiler::values(const Json& s, const Types& types, const std::string& path) {
  std::vector<Json> list;
  if (const auto found = s.find("enum"); found != s.end()) {
    if (!found->is_array() || found->empty()) return wrong("enum", path, "a list of values that is not empty");
    list.assign(found->begin(), found->end());
  }
  if (const auto found = s.find("const"); found != s.end()) {
    if (s.contains("enum") && std::ranges::find(list, *found) == list.end())
      list.clear();
    else
      list = {*found};
  }
  for (const std::string_view keyword : kTypeKeywords) {
    if (s.contains(keyword)) return unsupported(keyword, path, " beside 'enum' or 'const'");
  }
  if (s.contains("multipleOf")) return unsupported("multipleOf", path);
  std::vector<Id> choices;
  for (const Json& value : list) {
    if (!is_of(type_of(value), types)) continue;
    choices.push_back(g_.literal(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  if (choices.empty())
    return fail(ErrorCode::invalid_argument, "'{}': no value of 'enum' or 'const' has the schema's type", path);
  return g_.choice(std::move(choices));
}
Expected<Grammar::Id> add_schema(Grammar& grammar, const Json& schema, std::string_view path) {
  return SchemaCompiler(grammar, schema, path).run();
}

Expected<Grammar> grammar_of_schema(const Json& schema, std::string_view path) {
  Grammar grammar;
  grammar.root = grammar.add_rule("root");
  COHORT_ASSIGN(const Grammar::Id body, add_schema(grammar, schema, path));
  grammar.define(grammar.root, body);
  return grammar;
}

Grammar grammar_of_json_object() {
  Grammar grammar;
  grammar.root = grammar.add_rule("root");
  JsonParts parts(grammar);
  grammar.define(grammar.root, parts.object());
  return grammar;
}

}  // namespace cohort::grammar
