#include "base/ordered_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cohort {
namespace {

using Json = nlohmann::ordered_json;

/// Builds a document from parser events. A container is complete before its parent grows again, so that pointers to the
/// open ones stay valid.
class OrderedBuilder {
 public:
  // Callbacks of the library's SAX interface: false stops the parser.
  bool null() { return place(nullptr) != nullptr; }
  bool boolean(bool value) { return place(value) != nullptr; }
  bool number_integer(Json::number_integer_t value) { return place(value) != nullptr; }
  bool number_unsigned(Json::number_unsigned_t value) { return place(value) != nullptr; }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return place(value) != nullptr; }
  bool string(Json::string_t& value) { return place(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool key(Json::string_t& name) {
    slot_ = &stack_.back()->get_ref<Json::object_t&>().emplace_back(std::move(name), nullptr).second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    error_ = fmt::format("invalid JSON at byte {}", position);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  template <class T>
  Json* place(T&& value) {
    if (stack_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    if (stack_.back()->is_array())
      return &stack_.back()->get_ref<Json::array_t&>().emplace_back(std::forward<T>(value));
    *slot_ = std::forward<T>(value);
    return slot_;
  }
  bool open(Json container) {
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

  Json root_;
  Json* slot_ = nullptr;  // where the value of the last key goes
  std::vector<Json*> stack_;
  std::string error_;
};

}  // namespace

Expected<Json> parse_ordered_json(std::string_view text, std::string_view name) {
  OrderedBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return fail(ErrorCode::corrupt, "'{}': {}", name, builder.error());
  return builder.take();
}

}  // namespace cohort
