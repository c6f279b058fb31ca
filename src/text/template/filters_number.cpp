// Filters and methods of numbers.
#include <cmath>

#include "text/template/callable.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

Value absolute(Runtime&, const Value& self, Arguments&) {
  if (self.is(Kind::floating)) return Value::floating(std::abs(self.floating()));
  if (!self.is_integral()) refuse("bad operand type for abs(): '{}'", type_name(self));
  return self.integer() < 0 ? negate(self) : Value::integer(self.integer());
}

/// int(value), or of its float, or the default.
Value to_int(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value fallback = arguments.has(0) ? arguments[0] : Value::integer(0);
  if (self.is_undefined()) refuse("{}", self.as<UndefinedObject>().message);
  if (self.is_integral()) return Value::integer(self.integer());
  if (self.is(Kind::floating)) return std::isnan(self.floating()) ? fallback : to_integer(self.floating());
  if (!self.is_string()) return fallback;
  runtime.spend_bytes(text_of(self).size());
  Int base = 10;
  if (arguments.has(1)) base = arguments[1].is_integral() ? arguments[1].integer() : -1;
  std::optional<Int> parsed =
      base >= 0 && base <= 36 ? parse_integer(text_of(self), static_cast<int>(base)) : std::nullopt;
  if (parsed) return Value::integer(*parsed);
  std::optional<double> number = parse_float(text_of(self));
  return number && std::isfinite(*number) ? to_integer(*number) : fallback;
}

Value to_float(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (self.is_undefined()) refuse("{}", self.as<UndefinedObject>().message);
  if (self.is_number()) return Value::floating(self.number());
  std::optional<double> parsed;
  if (self.is_string()) {
    runtime.spend_bytes(text_of(self).size());
    parsed = parse_float(text_of(self));
  }
  if (parsed) return Value::floating(*parsed);
  return arguments.has(0) ? arguments[0] : Value::floating(0);
}

Value round(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int digits = arguments.has(0) ? integer_argument(arguments[0], "the precision of round") : 0;
  std::string method = arguments.has(1) ? text_argument(arguments[1], "the method of round") : "common";
  if (method == "common") return round_number(self, digits);
  if (method != "ceil" && method != "floor") refuse("method must be common, ceil or floor");
  Value unit = arithmetic(runtime, Arithmetic::power, Value::integer(10), Value::integer(digits));
  Value scaled = arithmetic(runtime, Arithmetic::multiply, self, unit);
  if (!scaled.is_number()) refuse("must be a real number, not {}", type_name(scaled));
  if (scaled.is(Kind::floating)) {
    scaled = to_integer(method == "ceil" ? std::ceil(scaled.floating()) : std::floor(scaled.floating()));
  }
  return arithmetic(runtime, Arithmetic::divide, scaled, unit);
}

Value is_integer(Runtime&, const Value& self, Arguments&) {
  return Value::boolean(std::isfinite(self.floating()) && std::trunc(self.floating()) == self.floating());
}

constexpr Native kFilters[] = {
    {"abs", "", absolute},
    {"int", "default= base=", to_int},
    {"float", "default=", to_float},
    {"round", "precision= method=", round},
};

constexpr Native kMethods[] = {{"is_integer", "", is_integer}};

}  // namespace

NativeTable number_filters() {
  return {kFilters, std::size(kFilters)};
}
NativeTable number_methods() {
  return {kMethods, std::size(kMethods)};
}

}  // namespace cohort::jinja
