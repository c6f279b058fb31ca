// Schemas of one type: strings, numbers, arrays, objects.
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "base/result.h"
#include "text/grammar/schema_compiler.h"
#include "text/grammar/string_formats.h"

namespace cohort::grammar {

using Json = nlohmann::ordered_json;
using Id = Grammar::Id;

namespace {

constexpr int32_t kMaxCount = 1'000'000'000;

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
  if (keyword == "pattern" && format != s.end()) return unsupported("format", path, " beside 'pattern'");
  std::string expression = value.get<std::string>();
  int32_t shortest = 0, longest = Grammar::kUnbounded;
  if (keyword == "format") {
    auto known = string_format(expression, high);
    if (!known) {
      return fail(ErrorCode::unsupported, "'{}.format': the format '{}' is not supported; these are: {}", path,
                  printable(expression, kShownName), known_formats());
    }
    expression = std::move(known->pattern);
    shortest = known->shortest;
    longest = known->longest;
  }
  // What the lengths say in addition cannot be kept to; what they only repeat can.
  if (low > shortest) return unsupported("minLength", path, fmt::format(" beside '{}'", keyword));
  if (high >= 0 && (longest < 0 || high < longest))
    return unsupported("maxLength", path, fmt::format(" beside '{}'", keyword));
  const auto kept = strings_.find(expression);
  if (kept != strings_.end()) return g_.rule(kept->second);
  auto inside = string_pattern(g_, parts_, expression);
  if (!inside)
    return fail(inside.error().code, "'{}.{}' is '{}': {}", path, keyword, printable(expression, kShownName),
                inside.error().message);
  const Grammar::Rule rule = g_.add_rule(std::string(keyword));
  g_.define(rule, parts_.quoted(*inside));
  strings_.emplace(std::move(expression), rule);
  return g_.rule(rule);
}

Expected<NumberBounds> SchemaCompiler::bounds(const Json& s, bool integer, const std::string& path) const {
  NumberBounds bounds;
  if (const auto format = s.find("format"); format != s.end()) {
    if (!format->is_string()) return wrong("format", path, "a string");
    const auto& name = format->get_ref<const std::string&>();
    // Formats of strings say nothing of numbers.
    if (const auto known = bounds_of_format(name, integer)) {
      bounds = *known;
    } else if (!string_format(name, Grammar::kUnbounded) && !(integer && bounds_of_format(name, false))) {
      return fail(
          ErrorCode::unsupported,
          "'{}.format': the format '{}' of a number is not supported; int8 to int64, uint8 to uint64, float and "
          "double are",
          path, printable(name, kShownName));
    }
  }
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
  return bounds;
}

namespace {

/// k of 10^k, from -15 to 14; nullopt for other numbers.
std::optional<int> power_of_ten(const Json& value) {
  constexpr std::array kPowers{1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6,
                               1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0,   1e1,  1e2,  1e3,  1e4,
                               1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11, 1e12, 1e13, 1e14};
  const auto found = value.is_number() ? std::ranges::find(kPowers, value.get<double>()) : kPowers.end();
  if (found == kPowers.end()) return std::nullopt;
  return static_cast<int>(found - kPowers.begin()) - 15;
}

}  // namespace

Expected<Id> SchemaCompiler::number(const Json& s, bool integer, const std::string& path) {
  COHORT_ASSIGN(const NumberBounds limits, bounds(s, integer, path));
  Id id = -1;
  if (const auto step = s.find("multipleOf"); step != s.end()) {
    // Which numbers are multiples shows in their digits only for powers of ten.
    const auto power = power_of_ten(*step);
    if (!power) return unsupported("multipleOf", path, " but for powers of ten from 1e-15 to 1e14");
    id = *power >= 0 || integer ? parts_.tens(limits, std::max(*power, 0)) : parts_.number(limits, -*power);
  } else if (!limits.low && !limits.high) {
    return integer ? parts_.integer() : parts_.number();
  } else {
    id = integer ? parts_.integer(limits) : parts_.number(limits);
  }
  if (id >= 0) return id;
  return fail(ErrorCode::invalid_argument,
              "'{}': no number that could be written is within the bounds (whole numbers of up to 15 digits, with a "
              "fraction where a whole step fits)",
              path);
}

/// All values that a schema allows, when it lists them; nullopt when it does not.
Expected<std::optional<std::vector<Json>>> SchemaCompiler::finite_values(const Json& s, const std::string& path) const {
  COHORT_ASSIGN(const Json* target, followed(s, path));
  if (!target->is_object()) return std::nullopt;
  // What stands beside a reference is followed or refused where schemas are made, not here.
  if (target != &s && s.size() > 1) return std::nullopt;
  std::vector<Json> listed;
  COHORT_ASSIGN(const Types types, types_of(*target, path));
  if (target->contains("enum") && (*target)["enum"].is_array() && !target->contains("const")) {
    listed.assign((*target)["enum"].begin(), (*target)["enum"].end());
  } else if (target->contains("const") && !target->contains("enum")) {
    listed.push_back((*target)["const"]);
  } else if (types == Types{"boolean"} || types == Types{"null"} || types == Types{"boolean", "null"}) {
    if (types.contains("boolean")) listed = {true, false};
    if (types.contains("null")) listed.push_back(nullptr);
  } else {
    return std::nullopt;
  }
  for (const auto& [keyword, value] : target->items()) {
    if (keyword != "enum" && keyword != "const" && keyword != "type" && !has(kDescriptions, keyword))
      return std::nullopt;
  }
  std::vector<Json> out;
  std::vector<nlohmann::json> seen;  // objects are equal in whatever order their members are
  for (Json& value : listed) {
    nlohmann::json plain = value;
    if (!is_of(type_of(value), types) || std::ranges::find(seen, plain) != seen.end()) continue;
    seen.push_back(std::move(plain));
    out.push_back(std::move(value));
  }
  return out;
}

/// Lists in which no value comes twice, of a few values: a rule for each set of those that have come.
Expected<Id> SchemaCompiler::unique_array(const Json& s, int32_t low, int32_t high, const std::string& path) {
  constexpr size_t kMostValues = 10;  // 1,024 sets
  const auto items = s.find("items");
  if (s.contains("prefixItems")) return unsupported("uniqueItems", path, " beside 'prefixItems'");
  std::optional<std::vector<Json>> values;
  if (items != s.end()) {
    COHORT_ASSIGN(values, finite_values(*items, path + ".items"));
  }
  if (!values || values->size() > kMostValues) {
    return unsupported(
        "uniqueItems", path,
        fmt::format(" unless 'items' lists what there may be: at most {} values in 'enum', or booleans", kMostValues));
  }
  const auto all = static_cast<int32_t>(values->size());
  high = high < 0 ? all : std::min(high, all);
  if (low > high)
    return fail(ErrorCode::invalid_argument, "'{}': minItems {} is more than the {} items that there may be", path, low,
                high);
  // Rules, since they stand in half of the sets.
  const auto named = [&](Id body) {
    const Grammar::Rule rule = g_.add_rule("unique_part");
    g_.define(rule, body);
    return g_.rule(rule);
  };
  std::vector<Id> spelled;
  for (const Json& value : *values)
    spelled.push_back(named(g_.literal(value.dump(-1, ' ', false, Json::error_handler_t::replace))));
  const Id comma = named(g_.sequence({g_.literal(","), parts_.space()}));
  std::vector<Grammar::Rule> after(size_t{1} << values->size());  // by the set of those that have come
  for (Grammar::Rule& rule : after) rule = g_.add_rule("unique");
  for (size_t set = 0; set < after.size(); ++set) {
    const int32_t count = std::popcount(set);
    std::vector<Id> choices;
    if (count >= low) choices.push_back(g_.literal(""));
    for (size_t i = 0; i < spelled.size() && count < high; ++i) {
      const size_t bit = size_t{1} << i;
      if ((set & bit) != 0) continue;
      std::vector<Id> parts{spelled[i], parts_.space(), g_.rule(after[set | bit])};
      if (count > 0) parts.insert(parts.begin(), comma);
      choices.push_back(g_.sequence(std::move(parts)));
    }
    g_.define(after[set], g_.choice(std::move(choices)));
  }
  return g_.sequence({g_.literal("["), parts_.space(), g_.rule(after[0]), g_.literal("]")});
}

Expected<Id> SchemaCompiler::array(const Json& s, const std::string& path) {
  COHORT_ASSIGN(const int32_t low, count(s, "minItems", 0, path));
  COHORT_ASSIGN(int32_t high, count(s, "maxItems", Grammar::kUnbounded, path));
  if (const auto unique = s.find("uniqueItems"); unique != s.end()) {
    if (!unique->is_boolean()) return wrong("uniqueItems", path, "true or false");
    // One item is always unique.
    if (*unique == true && (high < 0 || high > 1)) return unique_array(s, low, high, path);
  }
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
