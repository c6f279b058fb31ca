// Methods of lists, tuples, dicts and ranges that change nothing.
#include <algorithm>
#include <iterator>

#include "text/template/callable.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int found = 0;
  auto iterator = iterate(runtime, self);
  for (Value item; iterator->next(runtime, item);) found += equal(runtime, item, arguments[0]) ? 1 : 0;
  return Value::integer(found);
}

Value index(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int size = *length(self);
  auto bound = [&](size_t i, Int absent) {
    if (!arguments.has(i)) return absent;
    Int value = integer_argument(arguments[i], "a bound of index");
    return std::max<Int>(value < 0 ? value + size : value, 0);
  };
  Int begin = bound(1, 0), end = bound(2, size);
  auto iterator = iterate(runtime, self);
  Int at = 0;
  for (Value item; at < end && iterator->next(runtime, item); ++at) {
    if (at >= begin && equal(runtime, item, arguments[0])) return Value::integer(at);
  }
  refuse("the value is not in the {}", type_name(self));
}

Value copy_list(Runtime& runtime, const Value& self, Arguments&) {
  return runtime.list(collect(runtime, self));
}

const DictObject& dict_of(const Value& self) {
  return self.as<DictObject>();
}

template <ViewObject::Part part>
Value view(Runtime& runtime, const Value& self, Arguments&) {
  return runtime.view(part, Ref<DictObject>(&self.as<DictObject>()));
}

Value get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* found = dict_of(self).find(runtime, arguments[0]);
  if (found != nullptr) return *found;
  return arguments.has(1) ? arguments[1] : Value::none();
}

Value copy_dict(Runtime& runtime, const Value& self, Arguments&) {
  Ref<DictObject> copy = runtime.dict();
  for (const auto& [key, value] : dict_of(self).entries) copy->set(runtime, key, value);
  return runtime.dict(std::move(copy));
}

Value from_keys(Runtime& runtime, const Value&, Arguments& arguments) {
  Ref<DictObject> dict = runtime.dict();
  Value value = arguments.has(1) ? arguments[1] : Value::none();
  for (Value& key : collect(runtime, arguments[0])) dict->set(runtime, std::move(key), value);
  return runtime.dict(std::move(dict));
}

constexpr Native kListMethods[] = {
    {"count", "/value", count},
    {"index", "/value start= stop=", index},
    {"copy", "", copy_list},
};

constexpr Native kDictMethods[] = {
    {"items", "", view<ViewObject::Part::items>},
    {"keys", "", view<ViewObject::Part::keys>},
    {"values", "", view<ViewObject::Part::values>},
    {"get", "/key default=", get},
    {"copy", "", copy_dict},
    {"fromkeys", "/iterable value=", from_keys},
};

constexpr Native kRangeMethods[] = {{"count", "/value", count}, {"index", "/value", index}};

}  // namespace

NativeTable list_methods() {
  return {kListMethods, std::size(kListMethods)};
}
NativeTable tuple_methods() {
  return {kListMethods, 2};
}  // all but copy
NativeTable dict_methods() {
  return {kDictMethods, std::size(kDictMethods)};
}
NativeTable range_methods() {
  return {kRangeMethods, std::size(kRangeMethods)};
}

}  // namespace cohort::jinja
