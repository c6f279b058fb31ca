// Strict reading of a request's JSON object: every field is asked for once, with its type and range; what nobody asked
// for is an error that names it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "cohort/error.h"

namespace cohort::server {

/// Null counts as absent, as OpenAI's clients expect. Errors: invalid_argument (type, range), unsupported.
class Fields {
 public:
  /// `path` stands before the names in messages: "" for the request, "stream_options." for a part of it.
  Fields(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {}

  /// The value, or nullptr when absent; counts as asked for.
  const nlohmann::json* take(std::string_view name);

  Expected<void> boolean(std::string_view name, bool& out);
  Expected<void> integer(std::string_view name, int64_t low, int64_t high, int32_t& out);
  Expected<void> number(std::string_view name, double low, double high, float& out);
  Expected<void> string(std::string_view name, std::string& out);
  Expected<std::optional<int64_t>> optional_integer(std::string_view name, int64_t low, int64_t high);

  /// A field that this server cannot serve: fine when absent or equal to `neutral`, the value that asks for nothing.
  Expected<void> unsupported(std::string_view name, const nlohmann::json& neutral);
  /// Unknown fields are an error.
  Expected<void> finish() const;

  std::string full(std::string_view name) const { return path_ + std::string(name); }

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string, std::less<>> asked_;
};

/// The JSON object that a request's body is. Errors: corrupt, invalid_argument; they name no field.
Expected<nlohmann::json> parse_body(std::string_view body);

/// An error of something that does not know which field it was given: its message begins with the field's name.
Error of_field(std::string_view field, Error error);

/// A value as messages show it: at most 60 bytes of its JSON.
std::string shown(const nlohmann::json& value);

}  // namespace cohort::server
