// Documents from parser events, for base/json.cpp and base/ordered_json.cpp.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace cohort {

/// Unlike the library's own builder it refuses deep nesting, and a failure is a message instead of an exception. A
/// class derived from it says what becomes of names: key().
template <class Json>
class JsonBuilder {
 public:
  // Callbacks of the library's SAX interface: false stops the parser.
  bool null() { return place(nullptr) != nullptr; }
  bool boolean(bool value) { return place(value) != nullptr; }
  bool number_integer(typename Json::number_integer_t value) { return place(value) != nullptr; }
  bool number_unsigned(typename Json::number_unsigned_t value) { return place(value) != nullptr; }
  bool number_float(typename Json::number_float_t value, const typename Json::string_t&) {
    return place(value) != nullptr;
  }
  bool string(typename Json::string_t& value) { return place(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const typename Json::exception& exception) {
    const std::string_view what = exception.what();
    const size_t detail = what.find("syntax error");
    error_ = fmt::format("invalid JSON at byte {}: {}", position, detail == what.npos ? what : what.substr(detail));
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 protected:
  typename Json::object_t& object() { return stack_.back()->template get_ref<typename Json::object_t&>(); }
  /// Where the value goes that comes next.
  void set_slot(Json* slot) { slot_ = slot; }
  bool refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

 private:
  template <class T>
  Json* place(T&& value) {
    if (stack_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      auto& array = stack_.back()->template get_ref<typename Json::array_t&>();
      array.emplace_back(std::forward<T>(value));
      return &array.back();
    }
    *slot_ = std::forward<T>(value);
    return slot_;
  }
  bool open(Json container) {
    if (stack_.size() == kMaxJsonDepth)
      return refuse(fmt::format("objects and arrays nest deeper than {}", kMaxJsonDepth));
    stack_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  Json root_;
  Json* slot_ = nullptr;
  // Open containers. A container is complete before its parent grows again, so that these pointers stay valid.
  std::vector<Json*> stack_;
  std::string error_;
};

}  // namespace cohort
