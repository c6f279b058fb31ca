// The context of a rendering: JSON becomes values of the template language.
#include <nlohmann/json.hpp>

#include "text/template/interpreter.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

using Json = nlohmann::ordered_json;

Value text_from_json(Runtime& runtime, const std::string& text) {
  if (!is_valid_utf8(text)) refuse("a text of the context is not valid UTF-8");
  return runtime.string(text);
}

Value list_from_json(Runtime& runtime, const Json& json) {
  ListBuilder items(runtime);
  for (const Json& item : json) items.push(from_json(runtime, item));
  return runtime.list(items.take());
}

Value dict_from_json(Runtime& runtime, const Json& json) {
  Ref<DictObject> dict = runtime.dict();
  for (const auto& [key, value] : json.items()) {
    Value name = text_from_json(runtime, key);
    dict->set(runtime, std::move(name), from_json(runtime, value));
  }
  return runtime.dict(std::move(dict));
}

}  // namespace

Value from_json(Runtime& runtime, const Json& json) {
  RecursionGuard guard(runtime);
  runtime.spend();
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::floating(json.get<double>());
    case Json::value_t::string:
      return text_from_json(runtime, json.get_ref<const std::string&>());
    case Json::value_t::array:
      return list_from_json(runtime, json);
    case Json::value_t::object:
      return dict_from_json(runtime, json);
    default:
      refuse("the context contains binary data, which is no JSON");
  }
}

}  // namespace cohort::jinja
