// The tests that stand behind `is`.
#include <iterator>

#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

Value yes_or_no(bool value) {
  return Value::boolean(value);
}

template <Kind... kinds>
Value is_kind(Runtime&, const Value& self, Arguments&) {
  return yes_or_no((self.is(kinds) || ...));
}

template <Comparison comparison>
Value compares(Runtime& runtime, const Value& self, Arguments& arguments) {
  return yes_or_no(compare(runtime, comparison, self, arguments[0]));
}

Value is_defined(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(!self.is_undefined());
}
Value is_true(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(self.is(Kind::boolean) && self.boolean());
}
Value is_false(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(self.is(Kind::boolean) && !self.boolean());
}
Value is_iterable_value(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(is_iterable(self));
}

/// Whether value % number == rest, with all that % means.
bool leaves(Runtime& runtime, const Value& value, const Value& number, Int rest) {
  return equal(runtime, arithmetic(runtime, Arithmetic::modulo, value, number), Value::integer(rest));
}

Value is_odd(Runtime& runtime, const Value& self, Arguments&) {
  return yes_or_no(leaves(runtime, self, Value::integer(2), 1));
}

Value is_even(Runtime& runtime, const Value& self, Arguments&) {
  return yes_or_no(leaves(runtime, self, Value::integer(2), 0));
}

Value is_divisible_by(Runtime& runtime, const Value& self, Arguments& arguments) {
  return yes_or_no(leaves(runtime, self, arguments[0], 0));
}

/// Whether all letters with case have the one that `wanted` tests, and there is one.
template <bool (*wanted)(char32_t)>
Value is_case(Runtime& runtime, const Value& self, Arguments&) {
  Value text = to_string(runtime, self);
  runtime.spend_bytes(text_of(text).size() * 16);
  bool found = false;
  for (size_t position = 0; position < text_of(text).size();) {
    char32_t c = decode(text_of(text), position);
    if (wanted(c)) {
      found = true;
    } else if (is_uppercase(c) || is_lowercase(c) || is_titlecase(c)) {
      return yes_or_no(false);
    }
  }
  return yes_or_no(found);
}

Value is_same_as(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& other = arguments[0];
  if (self.kind() != other.kind()) return yes_or_no(false);
  // Which equal numbers and texts are one object is an accident of Python's; here all of them are.
  bool by_value = self.object() == nullptr || self.is_string() || self.is_undefined();
  return yes_or_no(by_value ? equal(runtime, self, other) : self.object() == other.object());
}

Value is_escaped(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(self.is_string() && self.as<StringObject>().markup);
}

Value is_filter(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(self.is_string() && (find_filter(text_of(self)) != nullptr || is_unsupported_filter(text_of(self))));
}

Value is_test(Runtime&, const Value& self, Arguments&) {
  return yes_or_no(self.is_string() && find_test(text_of(self)) != nullptr);
}

constexpr Native kTests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_kind<Kind::undefined>},
    {"none", "", is_kind<Kind::none>},
    {"string", "", is_kind<Kind::string>},
    {"number", "", is_kind<Kind::integer, Kind::floating, Kind::boolean>},
    {"integer", "", is_kind<Kind::integer>},
    {"float", "", is_kind<Kind::floating>},
    {"boolean", "", is_kind<Kind::boolean>},
    {"true", "", is_true},
    {"false", "", is_false},
    {"mapping", "", is_kind<Kind::dict>},
    {"sequence", "", is_kind<Kind::string, Kind::list, Kind::tuple, Kind::dict, Kind::range, Kind::undefined>},
    {"iterable", "", is_iterable_value},
    {"callable", "", is_kind<Kind::function, Kind::macro, Kind::loop, Kind::joiner, Kind::undefined>},
    {"in", "seq", compares<Comparison::in>},
    {"odd", "", is_odd},
    {"even", "", is_even},
    {"divisibleby", "num", is_divisible_by},
    {"lower", "", is_case<is_lowercase>},
    {"upper", "", is_case<is_uppercase>},
    {"sameas", "other", is_same_as},
    {"escaped", "", is_escaped},
    {"filter", "", is_filter},
    {"test", "", is_test},
    {"eq", "/other", compares<Comparison::eq>},
    {"==", "/other", compares<Comparison::eq>},
    {"equalto", "/other", compares<Comparison::eq>},
    {"ne", "/other", compares<Comparison::ne>},
    {"!=", "/other", compares<Comparison::ne>},
    {"lt", "/other", compares<Comparison::lt>},
    {"<", "/other", compares<Comparison::lt>},
    {"lessthan", "/other", compares<Comparison::lt>},
    {"le", "/other", compares<Comparison::le>},
    {"<=", "/other", compares<Comparison::le>},
    {"gt", "/other", compares<Comparison::gt>},
    {">", "/other", compares<Comparison::gt>},
    {"greaterthan", "/other", compares<Comparison::gt>},
    {"ge", "/other", compares<Comparison::ge>},
    {">=", "/other", compares<Comparison::ge>},
};

}  // namespace

const Native* find_test(std::string_view name) {
  return NativeTable{kTests, std::size(kTests)}.find(name);
}

}  // namespace cohort::jinja
