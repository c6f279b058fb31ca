// The grammar of calls in Gemma 4's notation: its values are not JSON, so a tool's schema is read here once more.
// Served are types, enum, properties, required, items and counts of items; other keywords that restrict are refused.
#include <algorithm>
#include <array>

#include "base/result.h"
#include "server/openai/tools.h"
#include "text/grammar/json_parts.h"

namespace cohort::server {

using grammar::Grammar;
using nlohmann::ordered_json;

namespace {

constexpr int kMaxDepth = 64;
constexpr std::array<std::string_view, 13> kServed{
    "type",    "enum",        "properties",           "required", "items",   "minItems", "maxItems", "title",
    "default", "description", "additionalProperties", "examples", "nullable"};

class GemmaSchema {
 public:
  GemmaSchema(Grammar& g, const grammar::FindToken& find_special)
      : g_(g), parts_(g), quote_(tool_marker(g, "<|\"|>", find_special)) {}

  /// {key:value,...} of an object schema.
  Expected<Grammar::Id> object(const ordered_json& schema, const std::string& path, int depth = 0) {
    COHORT_TRY(check(schema, path, depth));
    const ordered_json none = ordered_json::object();
    const ordered_json& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object())
      return fail(ErrorCode::invalid_argument, "'{}.properties' must be an object of schemas", path);
    if (schema.contains("additionalProperties") && schema["additionalProperties"] != false && properties.empty())
      return refuse("additionalProperties", path);
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) names.push_back(name);
    for (const ordered_json& name : schema.value("required", ordered_json::array())) {
      if (!name.is_string() || !properties.contains(name.get_ref<const std::string&>()))
        return fail(ErrorCode::invalid_argument, "'{}.required' names what 'properties' does not have", path);
    }
    std::ranges::sort(names);  // as the template writes them
    Grammar::Id first = g_.literal(""), later = g_.literal("");
    for (size_t i = names.size(); i-- > 0;) {
      COHORT_ASSIGN(const Grammar::Id value,
                    this->value(properties[names[i]], path + ".properties." + names[i], depth + 1));
      const Grammar::Id member = g_.sequence({g_.literal(names[i] + ":"), value});
      const Grammar::Id with_first = g_.sequence({member, later});
      const Grammar::Id with_later = g_.sequence({g_.literal(","), member, later});
      const bool required = is_required(schema, names[i]);
      first = named(required ? with_first : g_.choice({with_first, first}));
      later = named(required ? with_later : g_.choice({with_later, later}));
    }
    return g_.sequence({g_.literal("{"), first, g_.literal("}")});
  }

 private:
  static bool is_required(const ordered_json& schema, const std::string& name) {
    const auto required = schema.find("required");
    return required != schema.end() && required->is_array() &&
           std::find(required->begin(), required->end(), name) != required->end();
  }

  static tl::unexpected<Error> refuse(std::string_view keyword, const std::string& path) {
    return fail(ErrorCode::unsupported,
                "'{}.{}' is not supported with 'tool_choice' other than \"auto\" and this model's calls, which are not "
                "JSON; leave it out, or use \"auto\"",
                path, keyword);
  }

  static Expected<void> check(const ordered_json& schema, const std::string& path, int depth) {
    if (!schema.is_object()) return fail(ErrorCode::invalid_argument, "'{}' must be a schema: an object", path);
    if (depth > kMaxDepth) return fail(ErrorCode::capacity, "'{}' is nested more than {} deep", path, kMaxDepth);
    for (const auto& [keyword, value] : schema.items()) {
      if (std::ranges::find(kServed, keyword) == kServed.end()) return refuse(keyword, path);
    }
    return {};
  }

  Grammar::Id named(Grammar::Id body) {
    const Grammar::Rule rule = g_.add_rule("member");
    g_.define(rule, body);
    return g_.rule(rule);
  }

  Grammar::Id text(Grammar::Id inside) { return g_.sequence({quote_, inside, quote_}); }

  Expected<Grammar::Id> value(const ordered_json& schema, const std::string& path, int depth) {
    COHORT_TRY(check(schema, path, depth));
    if (const auto values = schema.find("enum"); values != schema.end()) {
      if (!values->is_array() || values->empty())
        return fail(ErrorCode::invalid_argument, "'{}.enum' must be a list of values that is not empty", path);
      std::vector<Grammar::Id> choices;
      for (const ordered_json& one : *values) {
        if (one.is_structured()) return refuse("enum", path);
        choices.push_back(one.is_string() ? text(g_.literal(one.get<std::string>())) : g_.literal(one.dump()));
      }
      return g_.choice(std::move(choices));
    }
    const auto type = schema.find("type");
    if (type == schema.end()) return fail(ErrorCode::invalid_argument, "'{}.type' is missing", path);
    const ordered_json types = type->is_array() ? *type : ordered_json::array({*type});
    std::vector<Grammar::Id> choices;
    for (const ordered_json& one : types) {
      COHORT_ASSIGN(const Grammar::Id id, typed(schema, one, path, depth));
      choices.push_back(id);
    }
    if (choices.empty()) return fail(ErrorCode::invalid_argument, "'{}.type' must not be empty", path);
    return g_.choice(std::move(choices));
  }

  Expected<Grammar::Id> typed(const ordered_json& schema, const ordered_json& type, const std::string& path,
                              int depth) {
    if (type == "object") return object(schema, path, depth);
    if (type == "array") return array(schema, path, depth);
    if (type == "integer") return parts_.integer();
    if (type == "number") return parts_.number();
    if (type == "boolean") return parts_.boolean();
    if (type == "null") return g_.literal("null");
    if (type == "string") {
      // Without '<', so that no text looks like the quotation mark.
      const Grammar::Id character = g_.characters(grammar::complement({{'<', '<'}}));
      return text(g_.repeat(character, 0, Grammar::kUnbounded));
    }
    return fail(ErrorCode::invalid_argument,
                "'{}.type' must be one of object, array, string, number, integer, boolean, null, or a list of them",
                path);
  }

  Expected<Grammar::Id> array(const ordered_json& schema, const std::string& path, int depth) {
    const auto count = [&](const char* keyword, int32_t absent) -> Expected<int32_t> {
      const auto found = schema.find(keyword);
      if (found == schema.end()) return absent;
      constexpr int64_t kMost = 1'000'000;
      if (!found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > kMost)
        return fail(ErrorCode::invalid_argument, "'{}.{}' must be a whole number from 0 to {}", path, keyword, kMost);
      return static_cast<int32_t>(found->get<int64_t>());
    };
    COHORT_ASSIGN(const int32_t low, count("minItems", 0));
    COHORT_ASSIGN(const int32_t high, count("maxItems", Grammar::kUnbounded));
    if (high >= 0 && low > high)
      return fail(ErrorCode::invalid_argument, "'{}': minItems {} is more than maxItems {}", path, low, high);
    if (!schema.contains("items")) return fail(ErrorCode::invalid_argument, "'{}.items' is missing", path);
    COHORT_ASSIGN(const Grammar::Id item, value(schema["items"], path + ".items", depth + 1));
    if (high == 0) return g_.literal("[]");
    const Grammar::Id more = g_.repeat(g_.sequence({g_.literal(","), item}), std::max(low - 1, 0),
                                       high < 0 ? Grammar::kUnbounded : high - 1);
    const Grammar::Id items = g_.sequence({item, more});
    return g_.sequence({g_.literal("["), low == 0 ? g_.optional(items) : items, g_.literal("]")});
  }

  Grammar& g_;
  grammar::JsonParts parts_;
  Grammar::Id quote_;
};

}  // namespace

Expected<Grammar::Id> gemma_calls(Grammar& g, const ToolGrammarRequest& request,
                                  const grammar::FindToken& find_special) {
  GemmaSchema schemas(g, find_special);
  std::vector<Grammar::Id> calls;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const ordered_json& function = request.tools[i].at("function");
    const bool some = function.contains("parameters") && !function["parameters"].is_null();
    const ordered_json parameters = some ? function["parameters"] : ordered_json::object();
    COHORT_ASSIGN(const Grammar::Id body, schemas.object(parameters, fmt::format("tools[{}].function.parameters", i)));
    calls.push_back(g.sequence({g.literal("call:" + function.at("name").get<std::string>()), body}));
  }
  const Grammar::Id one = g.sequence({tool_marker(g, "<|tool_call>", find_special), g.choice(std::move(calls)),
                                      tool_marker(g, "<tool_call|>", find_special)});
  return request.several ? g.repeat(one, 1, Grammar::kUnbounded) : one;
}

}  // namespace cohort::server
