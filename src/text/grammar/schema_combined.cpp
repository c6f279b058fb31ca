// Schemas that are made of others: $ref, anyOf, oneOf, allOf.
#include <optional>

#include "base/printable.h"
#include "base/result.h"
#include "text/grammar/schema_compiler.h"

namespace cohort::grammar {

using Json = nlohmann::ordered_json;
using Id = Grammar::Id;

namespace {

constexpr int kMaxReferences = 64;  // of references to references

std::optional<std::vector<Json>> constants(const Json& s) {
  if (!s.is_object()) return std::nullopt;
  if (s.contains("const")) return std::vector<Json>{s["const"]};
  if (s.contains("enum") && s["enum"].is_array()) return std::vector<Json>(s["enum"].begin(), s["enum"].end());
  return std::nullopt;
}

bool requires_property(const Json& s, const std::string& name) {
  const auto required = s.find("required");
  return required != s.end() && required->is_array() &&
         std::find(required->begin(), required->end(), name) != required->end();
}

bool no_common_constant(const Json& a, const Json& b) {
  const auto left = constants(a), right = constants(b);
  return left && right && std::ranges::none_of(*left, [&](const Json& value) {
           return std::ranges::find(*right, value) != right->end();
         });
}

}  // namespace

Expected<const Json*> SchemaCompiler::resolve(const Json& reference, const std::string& path) const {
  if (!reference.is_string()) return wrong("$ref", path, "a string");
  const std::string& text = reference.get_ref<const std::string&>();
  if (text == "#") return &root_;
  const auto missing = [&]() {
    return fail(ErrorCode::invalid_argument, "'{}.$ref' is '{}', which is nowhere in the schema", path,
                printable(text, kShownName));
  };
  if (!text.starts_with("#/"))
    return fail(ErrorCode::unsupported, "'{}.$ref' is '{}'; only references within the schema (#/...) are supported",
                path, printable(text, kShownName));
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

Expected<Id> SchemaCompiler::reference(const Json& s, const std::string& path) {
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
Expected<Id> SchemaCompiler::combined(const Json& s, const std::string& keyword, const std::string& path) {
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
Expected<const Json*> SchemaCompiler::followed(const Json& s, const std::string& path) const {
  const Json* at = &s;
  for (int i = 0; at->is_object() && at->contains("$ref"); ++i) {
    if (i == kMaxReferences)
      return fail(ErrorCode::invalid_argument, "'{}.$ref' leads to references without an end", path);
    COHORT_ASSIGN(at, resolve(at->at("$ref"), path));
  }
  return at;
}

Expected<bool> SchemaCompiler::exclusive(const Json& a, const Json& b, const std::string& path) const {
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
  const bool objects = left == Types{"object"} && right == left && a.contains("properties") && b.contains("properties");
  if (!objects || !a["properties"].is_object() || !b["properties"].is_object()) return false;
  for (const auto& [name, property] : a["properties"].items()) {
    if (!b["properties"].contains(name)) continue;
    const bool needed = requires_property(a, name) && requires_property(b, name);
    if (needed && no_common_constant(property, b["properties"][name])) return true;
  }
  return false;
}

Expected<void> SchemaCompiler::check_exclusive(const Json& branches, const std::string& path) const {
  std::vector<const Json*> targets;
  for (const Json& branch : branches) {
    COHORT_ASSIGN(const Json* target, followed(branch, path));
    targets.push_back(target);
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      COHORT_ASSIGN(const bool apart, exclusive(*targets[i], *targets[j], path));
      if (!apart) {
        return fail(ErrorCode::unsupported,
                    "'{}.oneOf': a value may satisfy both branch {} and branch {}, which 'oneOf' forbids; use 'anyOf', "
                    "or give them different types or a required property with different constants",
                    path, j, i);
      }
    }
  }
  return {};
}

/// The parts become one schema, as long as they speak of different things.
Expected<Id> SchemaCompiler::all_of(const Json& s, const std::string& path) {
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
                               fmt::format(" whose parts both have the property '{}'", printable(name, kShownName)));
          merged[keyword][name] = property;
        }
      } else if (merged[keyword] != value) {
        return unsupported("allOf", path, fmt::format(" whose parts both have '{}'", printable(keyword, kShownName)));
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

}  // namespace cohort::grammar
