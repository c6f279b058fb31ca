// Typed access to the fields of a JSON object, with errors that name the component and the field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cohort::text {

/// `object` must be an object; `component` is for messages ("normalizer Replace").
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string component) : object_(object), component_(std::move(component)) {}

  const std::string& component() const { return component_; }

  /// Null if the field is absent or null.
  const nlohmann::json* find(const char* field) const {
    const auto it = object_.find(field);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  Expected<bool> boolean(const char* field, bool otherwise) const {
    const auto* value = find(field);
    if (value == nullptr) {
      return otherwise;
    }
    return value->is_boolean() ? Expected<bool>(value->get<bool>()) : wrong(field, "true or false");
  }

  Expected<std::string> string(const char* field, std::string otherwise) const {
    const auto* value = find(field);
    if (value == nullptr) {
      return otherwise;
    }
    return value->is_string() ? Expected<std::string>(value->get<std::string>()) : wrong(field, "a string");
  }

  Expected<std::string> string(const char* field) const {
    return find(field) == nullptr ? wrong(field, "a string") : string(field, "");
  }

  /// A whole number from 0 to `most`.
  Expected<size_t> number(const char* field, size_t otherwise, size_t most) const {
    const auto* value = find(field);
    if (value == nullptr) {
      return otherwise;
    }
    if (!value->is_number_unsigned() || value->get<uint64_t>() > most) {
      return wrong(field, fmt::format("a whole number up to {}", most));
    }
    return value->get<size_t>();
  }

  tl::unexpected<Error> wrong(const char* field, std::string_view expected) const {
    return fail(ErrorCode::corrupt, "{}: \"{}\" must be {}", component_, field, expected);
  }

 private:
  const nlohmann::json& object_;
  std::string component_;
};

}  // namespace cohort::text
