#include "base/json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_builder.h"
#include "base/result.h"

namespace cohort {
namespace {

/// Refuses names that occur twice.
class Builder : public JsonBuilder<nlohmann::json> {
 public:
  bool key(std::string& name) {
    auto [place, inserted] = object().emplace(std::move(name), nullptr);
    if (!inserted) return refuse(fmt::format("key '{}' occurs twice in one object", place->first.substr(0, 200)));
    set_slot(&place->second);
    return true;
  }
};

std::string_view type_of(const nlohmann::json& value) {
  return value.type_name();
}

}  // namespace

Expected<nlohmann::json> parse_json(std::string_view text, std::string_view name) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return fail(ErrorCode::corrupt, "'{}': {}", name, builder.error());
  }
  return builder.take();
}

Expected<nlohmann::json> read_json_file(const std::filesystem::path& path, size_t limit) {
  COHORT_ASSIGN(auto map, MappedFile::open(path));
  auto bytes = map.bytes();
  if (bytes.size() > limit) {
    return fail(ErrorCode::corrupt, "'{}' has {} bytes; at most {} are read", path.string(), bytes.size(), limit);
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

JsonObject::JsonObject(const nlohmann::json& json, std::string where) : json_(&json), where_(std::move(where)) {}

const nlohmann::json* JsonObject::find(std::string_view key) const {
  if (!json_->is_object()) return nullptr;
  auto found = json_->find(std::string(key));
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

Expected<const nlohmann::json*> JsonObject::require(std::string_view key) const {
  if (const auto* value = find(key)) return value;
  return fail(ErrorCode::not_found, "{}: key '{}' is missing", where_, key);
}

Expected<int64_t> JsonObject::get_int(std::string_view key) const {
  COHORT_ASSIGN(const auto* value, require(key));
  if (!value->is_number_integer()) {
    return fail(ErrorCode::corrupt, "{}: key '{}' has type {}; an integer is needed", where_, key, type_of(*value));
  }
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return fail(ErrorCode::corrupt, "{}: key '{}' is {}; at most {} is possible", where_, key, value->get<uint64_t>(),
                std::numeric_limits<int64_t>::max());
  }
  return value->get<int64_t>();
}

Expected<double> JsonObject::get_number(std::string_view key) const {
  COHORT_ASSIGN(const auto* value, require(key));
  if (value->is_number()) return value->get<double>();
  return fail(ErrorCode::corrupt, "{}: key '{}' has type {}; a number is needed", where_, key, type_of(*value));
}

Expected<bool> JsonObject::get_bool(std::string_view key) const {
  COHORT_ASSIGN(const auto* value, require(key));
  if (value->is_boolean()) return value->get<bool>();
  return fail(ErrorCode::corrupt, "{}: key '{}' has type {}; true or false is needed", where_, key, type_of(*value));
}

Expected<std::string> JsonObject::get_string(std::string_view key) const {
  COHORT_ASSIGN(const auto* value, require(key));
  if (value->is_string()) return value->get<std::string>();
  return fail(ErrorCode::corrupt, "{}: key '{}' has type {}; a string is needed", where_, key, type_of(*value));
}

Expected<JsonObject> JsonObject::get_object(std::string_view key) const {
  COHORT_ASSIGN(const auto* value, require(key));
  if (value->is_object()) return JsonObject(*value, fmt::format("{}: {}", where_, key));
  return fail(ErrorCode::corrupt, "{}: key '{}' has type {}; an object is needed", where_, key, type_of(*value));
}

Expected<int64_t> JsonObject::get_int(std::string_view key, int64_t fallback) const {
  return contains(key) ? get_int(key) : fallback;
}
Expected<double> JsonObject::get_number(std::string_view key, double fallback) const {
  return contains(key) ? get_number(key) : fallback;
}
Expected<bool> JsonObject::get_bool(std::string_view key, bool fallback) const {
  return contains(key) ? get_bool(key) : fallback;
}
Expected<std::string> JsonObject::get_string(std::string_view key, std::string fallback) const {
  return contains(key) ? get_string(key) : fallback;
}

}  // namespace cohort
