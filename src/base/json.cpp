#include "base/json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/result.h"

namespace cohort {
namespace {

/// Builds a document from parser events; unlike the library's own builder it refuses duplicate keys and deep nesting,
/// and a failure is a returned message instead of an exception.
class Builder {
 public:
  using json = nlohmann::json;
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  // Callbacks of the library's SAX interface: false stops the parser.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    auto [place, inserted] = stack_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    if (!inserted) {
      error_ = fmt::format("key '{}' occurs twice in one object", place->first.substr(0, 200));
      return false;
    }
    slot_ = &place->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& exception) {
    std::string_view what = exception.what();
    size_t detail = what.find("syntax error");
    error_ = fmt::format("invalid JSON at byte {}: {}", position, detail == what.npos ? what : what.substr(detail));
    return false;
  }

  json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  template <class T>
  json* place(T&& value) {
    if (stack_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      auto& array = stack_.back()->get_ref<json::array_t&>();
      array.emplace_back(std::forward<T>(value));
      return &array.back();
    }
    *slot_ = std::forward<T>(value);
    return slot_;
  }
  template <class T>
  bool add(T&& value) {
    place(std::forward<T>(value));
    return true;
  }
  bool open(json container) {
    if (stack_.size() == kMaxJsonDepth) {
      error_ = fmt::format("objects and arrays nest deeper than {}", kMaxJsonDepth);
      return false;
    }
    stack_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  json root_;
  json* slot_ = nullptr;  // where the value of the last key goes
  // Open containers. A container is complete before its parent grows again, so that these pointers stay valid.
  std::vector<json*> stack_;
  std::string error_;
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
