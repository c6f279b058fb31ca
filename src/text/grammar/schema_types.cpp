// Schemas of one type: strings, numbers, arrays, objects.
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "base/result.h"
#include "text/grammar/schema_compiler.h"

namespace cohort::grammar {

using Json = nlohmann::ordered_json;
using Id = Grammar::Id;

namespace {

constexpr int32_t kMaxCount = 1'000'000'000;

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

}  // namespace

Expected<int32_t> SchemaCompiler::count(const Json& s, std::string_view keyword, int32_t absent,
                                        const std::string& path) const {
  const auto found = s.find(keyword);
  if (found == s.end()) return absent;
  const bool whole = found->is_number() && found->get<double>() >= 0 && found->get<double>() <= kMaxCount &&
                     found->get<double>() == std::floor(found->get<double>());
  if (!whole) return wrong(keyword, path, fmt::format("a whole number from 0 to {}", kMaxCount));
  return static_cast<int32_t>(found->get<double>());
}

Expected<Id> SchemaCompiler::string(const Json& s, const std::string& path) {
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
                  path, printable(expression, kShownName));
    }
    expression = *known;
  }
  auto inside = string_pattern(g_, parts_, expression);
  if (!inside)
    return fail(inside.error().code, "'{}.{}' is '{}': {}", path, keyword, printable(expression, kShownName),
                inside.error().message);
  return parts_.quoted(*inside);
}

Expected<Id> SchemaCompiler::number(const Json& s, bool integer, const std::string& path) {
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

Expected<Id> SchemaCompiler::array(const Json& s, const std::string& path) {
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
    return fail(ErrorCode::invalid_argument, "'{}': minItems {} is more than the {} items that there may be", path, low,
                high);
  if (prefix.empty()) return parts_.list("[", item, low, high, "]");
  return tuple(prefix, item, low, high);
}

/// [a, b, c, rest...]: what follows after each of the fixed items, from the last to the first.
Id SchemaCompiler::tuple(const std::vector<Id>& prefix, Id item, int32_t low, int32_t high) {
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

Id SchemaCompiler::named(std::string_view name, Id body) {
  const Grammar::Rule rule = g_.add_rule(std::string(name));
  g_.define(rule, body);
  return g_.rule(rule);
}

Expected<Id> SchemaCompiler::object(const Json& s, const std::string& path) {
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
  // A schema that names properties is closed unless it says otherwise; one that names none is any object.
  const bool closed = given ? *additional == false : found != s.end() || !required.empty();
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
    COHORT_ASSIGN(const Id value, schema(property, fmt::format("{}.properties.{}", path, printable(name, kShownName))));
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
    extra =
        g_.sequence({parts_.other_key(names), parts_.space(), g_.literal(":"), parts_.space(), value, parts_.space()});
  } else {
    for (const std::string& name : required) {
      if (properties.contains(name)) continue;
      // Only an explicit false forbids it; otherwise it may be anything.
      if (given)
        return fail(ErrorCode::invalid_argument,
                    "'{}.required' names '{}', which 'properties' does not have and 'additionalProperties' forbids",
                    path, printable(name, kShownName));
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

}  // namespace cohort::grammar
