// JSON glue: parsing untrusted text without exceptions, and typed look-ups whose errors name the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"

namespace cohort {

/// Deepest nesting of objects and arrays that parse_json accepts.
inline constexpr size_t kMaxJsonDepth = 256;

/// Parses `text`; `name` (a file name, say) stands in messages. corrupt: invalid JSON (with the byte position), invalid
/// UTF-8, a key that occurs twice in one object, nesting deeper than kMaxJsonDepth.
Expected<nlohmann::json> parse_json(std::string_view text, std::string_view name);
/// Reads and parses a file of at most `limit` bytes.
Expected<nlohmann::json> read_json_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);

/// A view of a JSON object for typed look-ups. A key whose value is null counts as absent. Errors: not_found (absent),
/// corrupt (another type, or out of range); look-ups with a `fallback` return it when the key is absent. The viewed
/// JSON must outlive it.
class JsonObject {
 public:
  /// `where` is what messages say, e.g. "config.json". A value that is no object behaves like an empty one.
  JsonObject(const nlohmann::json& json, std::string where);

  const nlohmann::json* find(std::string_view key) const;  // nullptr: absent or null
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  Expected<int64_t> get_int(std::string_view key) const;
  Expected<double> get_number(std::string_view key) const;  // integers too
  Expected<bool> get_bool(std::string_view key) const;
  Expected<std::string> get_string(std::string_view key) const;
  Expected<JsonObject> get_object(std::string_view key) const;

  Expected<int64_t> get_int(std::string_view key, int64_t fallback) const;
  Expected<double> get_number(std::string_view key, double fallback) const;
  Expected<bool> get_bool(std::string_view key, bool fallback) const;
  Expected<std::string> get_string(std::string_view key, std::string fallback) const;

  const std::string& where() const { return where_; }

 private:
  Expected<const nlohmann::json*> require(std::string_view key) const;
  const nlohmann::json* json_;
  std::string where_;
};

}  // namespace cohort
