#include "text/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/printable.h"
#include "base/result.h"
#include "text/grammar/json_parts.h"

namespace cohort::grammar {
namespace {

using Json = nlohmann::ordered_json;
using Id = Grammar::Id;

constexpr size_t kMaxSchemas = 100'000;
constexpr int32_t kMaxCount = 1'000'000'000;
constexpr int kMaxReferences = 64;  // of references to references
constexpr size_t kShown = 60;

constexpr std::array<std::string_view, 7> kTypes{"object", "array", "string", "number", "integer", "boolean", "null"};
/// Keywords that describe and do not restrict.
constexpr std::array<std::string_view, 18> kDescriptions{
    "title",     "description",   "default", "examples",        "example",          "$schema",
    "$id",       "$comment",      "$defs",   "definitions",     "deprecated",       "readOnly",
    "writeOnly", "discriminator", "strict",  "contentEncoding", "contentMediaType", "$anchor"};
constexpr std::array<std::string_view, 16> kTypeKeywords{"properties",      "required",    "additionalProperties",
                                                         "items",           "prefixItems", "minItems",
                                                         "maxItems",        "uniqueItems", "minLength",
                                                         "maxLength",       "pattern",     "format",
                                                         "minimum",         "maximum",     "exclusiveMinimum",
                                                         "exclusiveMaximum"};

constexpr std::string_view kDay = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

std::optional<std::string> pattern_of_format(std::string_view format) {
  if (format == "date") return fmt::format("^{}$", kDay);
  if (format == "time") return fmt::format("^{}$", kTime);
  if (format == "date-time") return fmt::format("^{}T{}$", kDay, kTime);
  if (format == "uuid") return "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
  if (format == "ipv4") return fmt::format("^({0}\\.){{3}}{0}$", kByte);
  if (format == "email")
    return "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30}){0,3}@([a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\\.){1,3}[a-z]{2,10}"
           "$";
  return std::nullopt;
}

bool has(const auto& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

std::string_view type_of(const Json& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  if (value.is_number_integer()) return "integer";
  return value.get<double>() == std::floor(value.get<double>()) ? "integer" : "number";
}

using Types = std::set<std::string_view>;

/// A set of types without "integer" where "number" says it already.
bool is_of(std::string_view type, const Types& types) {
  return types.contains(type) || (type == "integer" && types.contains("number"));
}

class Compiler {
 public:
  Compiler(Grammar& grammar, const Json& root, std::string_view path)
      : g_(grammar), parts_(grammar), root_(root), path_(path) {}

  Expected<Id> run() {
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

 private:
  struct Waiting {
    Grammar::Rule rule;
    const Json* schema;
    std::string path;
  };

  tl::unexpected<Error> unsupported(std::string_view keyword, const std::string& path,
                                    std::string_view why = "") const {
    return fail(ErrorCode::unsupported, "'{}.{}': the schema keyword '{}' is not supported{}", path,
                printable(keyword, kShown), printable(keyword, kShown), why);
  }
  tl::unexpected<Error> wrong(std::string_view keyword, const std::string& path, std::string_view expected) const {
    return fail(ErrorCode::invalid_argument, "'{}.{}' must be {}", path, keyword, expected);
  }

  Expected<Id> schema(const Json& s, const std::string& path) {
    if (++count_ > kMaxSchemas) return fail(ErrorCode::capacity, "'{}' has more than {} schemas", path_, kMaxSchemas);
    if (s.is_boolean()) return s.get<bool>() ? parts_.value() : g_.choice({});
    if (!s.is_object())
      return fail(ErrorCode::invalid_argument, "'{}' must be a schema: an object, true or false", path);
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
  Expected<Types> types_of(const Json& s, const std::string& path) const {
    Types types;
    const auto type = s.find("type");
    if (type != s.end()) {
      const Json list = type->is_array() ? *type : Json::array({*type});
      for (const Json& one : list) {
        const auto known =
            one.is_string() ? std::ranges::find(kTypes, one.get_ref<const std::string&>()) : kTypes.end();
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

  Expected<Id> typed(const Json& s, std::string_view type, const std::string& path) {
    if (type == "object") return object(s, path);
    if (type == "array") return array(s, path);
    if (type == "string") return string(s, path);
    if (type == "number" || type == "integer") return number(s, type == "integer", path);
    return type == "boolean" ? parts_.boolean() : g_.literal("null");
  }

  Expected<Id> values(const Json& s, const Types& types, const std::string& path) {
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

  Expected<int32_t> count(const Json& s, std::string_view keyword, int32_t absent, const std::string& path) const {
    const auto found = s.find(keyword);
    if (found == s.end()) return absent;
    const bool whole = found->is_number() && found->get<double>() >= 0 && found->get<double>() <= kMaxCount &&
                       found->get<double>() == std::floor(found->get<double>());
    if (!whole) return wrong(keyword, path, fmt::format("a whole number from 0 to {}", kMaxCount));
    return static_cast<int32_t>(found->get<double>());
  }

  Expected<Id> string(const Json& s, const std::string& path) {
    COHORT_ASSIGN(const int32_t low, count(s, "minLength", 0, path));
    COHORT_ASSIGN(const int32_t high, count(s, "maxLength", Grammar::kUnbounded, path));
    if (high >= 0 && high < low)
      return fail(ErrorCode::invalid_argument, "'{}': minLength {} is more than maxLength {}", path, low, high);
    const auto pattern = s.find("pattern"), format = s.find("format");
    if (pattern == s.end() && format == s.end()) return parts_.string(low, high);
    const std::string_view keyword = pattern != s.end() ? "pattern" : "format";
    const Json& value = pattern != s.end() ? *pattern : *format;
    if (!value.is_string()) return wrong(keyword, path, "a string");
    for (const char* other : {"minLength", "maxLength", "format"}) {
      if (other != keyword && s.contains(other)) return unsupported(other, path, fmt::format(" beside '{}'", keyword));
    }
    std::string expression = value.get<std::string>();
    if (keyword == "format") {
      const auto known = pattern_of_format(expression);
      if (!known) {
        return fail(ErrorCode::unsupported,
                    "'{}.format': the format '{}' is not supported; date, time, date-time, uuid, ipv4 and email are",
                    path, printable(expression, kShown));
      }
      expression = *known;
    }
    auto inside = string_pattern(g_, parts_, expression);
    if (!inside)
      return fail(inside.error().code, "'{}.{}' is '{}': {}", path, keyword, printable(expression, kShown),
                  inside.error().message);
    return parts_.quoted(*inside);
  }

  Expected<Id> number(const Json& s, bool integer, const std::string& path) {
    if (const auto found = s.find("multipleOf"); found != s.end() && !(integer && *found == 1))
      return unsupported("multipleOf", path);
    NumberBounds bounds;
    for (const bool low : {true, false}) {
      auto& bound = low ? bounds.low : bounds.high;
      auto& exclusive = low ? bounds.low_exclusive : bounds.high_exclusive;
      for (const bool strict : {false, true}) {
        const char* keyword = strict ? (low ? "exclusiveMinimum" : "exclusiveMaximum") : (low ? "minimum" : "maximum");
        const auto found = s.find(keyword);
        if (found == s.end()) continue;
        if (!found->is_number()) return wrong(keyword, path, "a number");
        const auto value = found->get<double>();
        const bool tighter = !bound || (low ? value > *bound : value < *bound) || (value == *bound && strict);
        if (!tighter) continue;
        bound = value;
        exclusive = strict;
      }
    }
    if (!bounds.low && !bounds.high) return integer ? parts_.integer() : parts_.number();
    const Id id = integer ? parts_.integer(bounds) : parts_.number(bounds);
    if (id >= 0) return id;
    return fail(ErrorCode::invalid_argument,
                "'{}': no number that could be written is within the bounds (whole numbers of up to 15 digits, with a "
                "fraction where a whole step fits)",
                path);
  }

  Expected<Id> array(const Json& s, const std::string& path) {
    if (const auto unique = s.find("uniqueItems"); unique != s.end() && *unique != false)
      return unsupported("uniqueItems", path);
    COHORT_ASSIGN(const int32_t low, count(s, "minItems", 0, path));
    COHORT_ASSIGN(int32_t high, count(s, "maxItems", Grammar::kUnbounded, path));
    std::vector<Id> prefix;
    if (const auto found = s.find("prefixItems"); found != s.end()) {
      if (!found->is_array()) return wrong("prefixItems", path, "a list of schemas");
      for (size_t i = 0; i < found->size(); ++i) {
        COHORT_ASSIGN(const Id one, schema((*found)[i], fmt::format("{}.prefixItems[{}]", path, i)));
        prefix.push_back(one);
      }
    }
    Id item = -1;
    const auto fixed = static_cast<int32_t>(prefix.size());
    if (const auto found = s.find("items"); found != s.end() && *found != false) {
      if (found->is_array()) return unsupported("items", path, " as a list; use 'prefixItems'");
      COHORT_ASSIGN(item, schema(*found, path + ".items"));
    } else if (found == s.end() && (prefix.empty() || low > fixed)) {
      item = parts_.value();
    }
    if (item < 0 && (high < 0 || high > fixed)) high = fixed;
    if (high >= 0 && low > high)
      return fail(ErrorCode::invalid_argument, "'{}': minItems {} is more than the {} items that there may be", path,
                  low, high);
    if (prefix.empty()) return parts_.list("[", item, low, high, "]");
    return tuple(prefix, item, low, high);
  }

  /// [a, b, c, rest...]: what follows after each of the fixed items, from the last to the first.
  Id tuple(const std::vector<Id>& prefix, Id item, int32_t low, int32_t high) {
    const auto fixed = static_cast<int32_t>(prefix.size());
    const Id comma = g_.sequence({g_.literal(","), parts_.space()});
    Id rest = g_.literal("");
    if (item >= 0 && (high < 0 || high > fixed)) {
      const Id next = g_.sequence({comma, item, parts_.space()});
      rest = g_.repeat(next, std::max(low - fixed, 0), high < 0 ? high : high - fixed);
    }
    for (int32_t i = fixed; i-- > 0;) {
      if (high >= 0 && i >= high) continue;
      const Id one = prefix[static_cast<size_t>(i)];
      std::vector<Id> parts{one, parts_.space(), rest};
      if (i > 0) parts.insert(parts.begin(), comma);
      const Id whole = named("tuple", g_.sequence(std::move(parts)));
      rest = i < low ? whole : g_.optional(whole);
    }
    return g_.sequence({g_.literal("["), parts_.space(), rest, g_.literal("]")});
  }

  Id named(std::string_view name, Id body) {
    const Grammar::Rule rule = g_.add_rule(std::string(name));
    g_.define(rule, body);
    return g_.rule(rule);
  }

  Expected<Id> object(const Json& s, const std::string& path) {
    const Json none = Json::object();
    const auto found = s.find("properties");
    if (found != s.end() && !found->is_object()) return wrong("properties", path, "an object of schemas");
    const Json& properties = found == s.end() ? none : *found;
    std::vector<std::string> required;
    if (const auto list = s.find("required"); list != s.end()) {
      if (!list->is_array()) return wrong("required", path, "a list of names");
      for (const Json& name : *list) {
        if (!name.is_string()) return wrong("required", path, "a list of names");
        if (!has(required, name.get_ref<const std::string&>())) required.push_back(name.get<std::string>());
      }
    }
    const auto additional = s.find("additionalProperties");
    const bool given = additional != s.end();
    const bool closed = given ? *additional == false : found != s.end();
    if (!given && found == s.end() && required.empty()) return parts_.object();

    struct Property {
      Id member;
      bool required;
    };
    std::vector<Property> members;
    const auto add = [&](const std::string& name, Id value) {
      const Id key = g_.literal(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace));
      members.push_back({g_.sequence({key, parts_.space(), g_.literal(":"), parts_.space(), value, parts_.space()}),
                         has(required, name)});
    };
    for (const auto& [name, property] : properties.items()) {
      COHORT_ASSIGN(const Id value, schema(property, fmt::format("{}.properties.{}", path, printable(name, kShown))));
      add(name, named("property", value));
    }
    Id extra = -1;
    if (!closed) {
      Id value = parts_.value();
      if (given) {
        COHORT_ASSIGN(value, schema(*additional, path + ".additionalProperties"));
        value = named("additional", value);
      }
      for (const std::string& name : required) {
        if (!properties.contains(name)) add(name, value);
      }
      std::vector<std::string_view> names(required.begin(), required.end());
      for (const auto& [name, property] : properties.items()) {
        if (!has(required, name)) names.push_back(name);
      }
      extra = g_.sequence(
          {parts_.other_key(names), parts_.space(), g_.literal(":"), parts_.space(), value, parts_.space()});
    } else {
      for (const std::string& name : required) {
        if (properties.contains(name)) continue;
        // Only an explicit false forbids it; otherwise it may be anything.
        if (given)
          return fail(ErrorCode::invalid_argument,
                      "'{}.required' names '{}', which 'properties' does not have and 'additionalProperties' forbids",
                      path, printable(name, kShown));
        add(name, parts_.value());
      }
    }
    // From the last property to the first: what may follow when nothing has been written yet, and after something has.
    const Id comma = g_.sequence({g_.literal(","), parts_.space()});
    Id first = g_.literal(""), later = g_.literal("");
    if (extra >= 0) {
      later = named("more", g_.repeat(g_.sequence({comma, extra}), 0, Grammar::kUnbounded));
      first = named("any", g_.optional(g_.sequence({extra, later})));
    }
    for (size_t i = members.size(); i-- > 0;) {
      const Id member = named("member", members[i].member);
      const Id with_first = g_.sequence({member, later}), with_later = g_.sequence({comma, member, later});
      first = named("first", members[i].required ? with_first : g_.choice({with_first, first}));
      later = named("later", members[i].required ? with_later : g_.choice({with_later, later}));
    }
    return g_.sequence({g_.literal("{"), parts_.space(), first, g_.literal("}")});
  }

  Expected<const Json*> resolve(const Json& reference, const std::string& path) const {
    if (!reference.is_string()) return wrong("$ref", path, "a string");
    const std::string& text = reference.get_ref<const std::string&>();
    if (text == "#") return &root_;
    const auto missing = [&]() {
      return fail(ErrorCode::invalid_argument, "'{}.$ref' is '{}', which is nowhere in the schema", path,
                  printable(text, kShown));
    };
    if (!text.starts_with("#/"))
      return fail(ErrorCode::unsupported, "'{}.$ref' is '{}'; only references within the schema (#/...) are supported",
                  path, printable(text, kShown));
    const Json* at = &root_;
    for (size_t begin = 2; begin <= text.size();) {
      const size_t end = std::min(text.find('/', begin), text.size());
      std::string name;
      for (size_t i = begin; i < end; ++i) {
        if (text[i] == '~' && i + 1 < end && (text[i + 1] == '0' || text[i + 1] == '1')) {
          name += text[++i] == '0' ? '~' : '/';
        } else {
          name += text[i];
        }
      }
      begin = end + 1;
      if (at->is_object() && at->contains(name)) {
        at = &(*at)[name];
      } else if (at->is_array() && !name.empty() && name.size() < 7 &&
                 std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }) &&
                 std::stoul(name) < at->size()) {
        at = &(*at)[std::stoul(name)];
      } else {
        return missing();
      }
    }
    return at;
  }

  Expected<Id> reference(const Json& s, const std::string& path) {
    COHORT_ASSIGN(const Json* target, resolve(s.at("$ref"), path));
    const auto [found, added] = rules_.try_emplace(target, 0);
    if (added) {
      const std::string& name = s.at("$ref").get_ref<const std::string&>();
      found->second = g_.add_rule(name);
      waiting_.push_back({found->second, target, path_ + name.substr(1)});
    }
    return g_.rule(found->second);
  }

  /// $ref, anyOf, oneOf and allOf. Beside them only `type` may restrict.
  Expected<Id> combined(const Json& s, const std::string& keyword, const std::string& path) {
    if (keyword == "allOf") return all_of(s, path);
    for (const auto& [other, value] : s.items()) {
      const bool fine = other == keyword || has(kDescriptions, other) || other.starts_with("x-") ||
                        (other == "type" && keyword != "$ref");
      if (!fine) return unsupported(other, path, fmt::format(" beside '{}'", keyword));
    }
    if (keyword == "$ref") return reference(s, path);
    const Json& branches = s.at(keyword);
    if (!branches.is_array() || branches.empty()) return wrong(keyword, path, "a list of schemas that is not empty");
    if (keyword == "oneOf") COHORT_TRY(check_exclusive(branches, path));
    std::vector<Id> choices;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = fmt::format("{}.{}[{}]", path, keyword, i);
      if (!s.contains("type") || !branches[i].is_object()) {
        COHORT_ASSIGN(const Id one, schema(branches[i], place));
        choices.push_back(one);
        continue;
      }
      if (branches[i].contains("type") ? branches[i]["type"] != s["type"] : branches[i].contains("$ref"))
        return unsupported("type", path, fmt::format(" beside '{}' whose branches have other types", keyword));
      Json typed = branches[i];
      typed["type"] = s["type"];
      COHORT_ASSIGN(const Id one, schema(typed, place));
      choices.push_back(one);
    }
    return g_.choice(std::move(choices));
  }

  /// A schema with its references followed.
  Expected<const Json*> followed(const Json& s, const std::string& path) const {
    const Json* at = &s;
    for (int i = 0; at->is_object() && at->contains("$ref"); ++i) {
      if (i == kMaxReferences)
        return fail(ErrorCode::invalid_argument, "'{}.$ref' leads to references without an end", path);
      COHORT_ASSIGN(at, resolve(at->at("$ref"), path));
    }
    return at;
  }

  static std::optional<std::vector<Json>> constants(const Json& s) {
    if (!s.is_object()) return std::nullopt;
    if (s.contains("const")) return std::vector<Json>{s["const"]};
    if (s.contains("enum") && s["enum"].is_array()) return std::vector<Json>(s["enum"].begin(), s["enum"].end());
    return std::nullopt;
  }

  static bool requires_property(const Json& s, const std::string& name) {
    const auto required = s.find("required");
    return required != s.end() && required->is_array() &&
           std::find(required->begin(), required->end(), name) != required->end();
  }

  static bool no_common_constant(const Json& a, const Json& b) {
    const auto left = constants(a), right = constants(b);
    return left && right && std::ranges::none_of(*left, [&](const Json& value) {
             return std::ranges::find(*right, value) != right->end();
           });
  }

  Expected<bool> exclusive(const Json& a, const Json& b, const std::string& path) const {
    if (!a.is_object() || !b.is_object()) return false;
    const auto types = [&](const Json& s) -> Expected<Types> {
      if (s.contains("type")) return types_of(s, path);
      Types out;
      if (const auto list = constants(s)) {
        for (const Json& value : *list) out.insert(type_of(value));
        return out;
      }
      return Types(kTypes.begin(), kTypes.end());
    };
    COHORT_ASSIGN(const Types left, types(a));
    COHORT_ASSIGN(const Types right, types(b));
    const bool common = std::ranges::any_of(left, [&](auto t) { return is_of(t, right); }) ||
                        std::ranges::any_of(right, [&](auto t) { return is_of(t, left); });
    if (!common || no_common_constant(a, b)) return true;
    const bool objects =
        left == Types{"object"} && right == left && a.contains("properties") && b.contains("properties");
    if (!objects || !a["properties"].is_object() || !b["properties"].is_object()) return false;
    for (const auto& [name, property] : a["properties"].items()) {
      if (!b["properties"].contains(name)) continue;
      const bool needed = requires_property(a, name) && requires_property(b, name);
      if (needed && no_common_constant(property, b["properties"][name])) return true;
    }
    return false;
  }

  Expected<void> check_exclusive(const Json& branches, const std::string& path) const {
    std::vector<const Json*> targets;
    for (const Json& branch : branches) {
      COHORT_ASSIGN(const Json* target, followed(branch, path));
      targets.push_back(target);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        COHORT_ASSIGN(const bool apart, exclusive(*targets[i], *targets[j], path));
        if (!apart) {
          return fail(
              ErrorCode::unsupported,
              "'{}.oneOf': a value may satisfy both branch {} and branch {}, which 'oneOf' forbids; use 'anyOf', "
              "or give them different types or a required property with different constants",
              path, j, i);
        }
      }
    }
    return {};
  }

  /// The parts become one schema, as long as they speak of different things.
  Expected<Id> all_of(const Json& s, const std::string& path) {
    const Json& list = s.at("allOf");
    if (!list.is_array() || list.empty()) return wrong("allOf", path, "a list of schemas that is not empty");
    bool alone = list.size() == 1;
    for (const auto& [keyword, value] : s.items()) alone &= keyword == "allOf" || has(kDescriptions, keyword);
    if (alone) return schema(list.front(), path + ".allOf[0]");
    Json merged = Json::object();
    Json rest = s;
    rest.erase("allOf");
    std::vector<const Json*> sources{&rest};
    for (const Json& part : list) {
      COHORT_ASSIGN(const Json* target, followed(part, path));
      sources.push_back(target);
    }
    int with_properties = 0;
    for (const Json* source : sources) {
      if (!source->is_object()) return unsupported("allOf", path, " with parts that are no objects");
      with_properties += source->contains("properties") ? 1 : 0;
      for (const auto& [keyword, value] : source->items()) {
        if (has(kDescriptions, keyword)) continue;
        if (!merged.contains(keyword)) {
          merged[keyword] = value;
        } else if (keyword == "required" && value.is_array() && merged[keyword].is_array()) {
          for (const Json& name : value) merged[keyword].push_back(name);
        } else if (keyword == "properties" && value.is_object() && merged[keyword].is_object()) {
          for (const auto& [name, property] : value.items()) {
            if (merged[keyword].contains(name) && merged[keyword][name] != property)
              return unsupported("allOf", path,
                                 fmt::format(" whose parts both have the property '{}'", printable(name, kShown)));
            merged[keyword][name] = property;
          }
        } else if (merged[keyword] != value) {
          return unsupported("allOf", path, fmt::format(" whose parts both have '{}'", printable(keyword, kShown)));
        }
      }
    }
    if (merged.contains("additionalProperties") && with_properties > 1)
      return unsupported("allOf", path, " with 'additionalProperties' and properties in several parts");
    if (++merged_ > kMaxReferences)
      return fail(ErrorCode::capacity, "'{}' merges more than {} allOf lists", path_, kMaxReferences);
    owned_.push_back(std::move(merged));
    return schema(owned_.back(), path);
  }

  Grammar& g_;
  JsonParts parts_;
  const Json& root_;
  std::string path_;
  std::map<const Json*, Grammar::Rule> rules_;  // by what a reference names
  std::deque<Waiting> waiting_;
  std::deque<Json> owned_;
  size_t count_ = 0;
  int merged_ = 0;
};

}  // namespace

Expected<Grammar::Id> add_schema(Grammar& grammar, const Json& schema, std::string_view path) {
  return Compiler(grammar, schema, path).run();
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
