// Arithmetic as Python does it: floor division and modulo follow the divisor's sign, integers are exact up to 128 bits.
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/escape_html.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

constexpr Int kIntMax = static_cast<Int>(~static_cast<unsigned __int128>(0) >> 1);
constexpr Int kIntMin = -kIntMax - 1;

std::string_view symbol(Arithmetic operation) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(operation)];
}

[[noreturn]] void refuse_overflow() {
  throw Failure{ErrorCode::capacity, "an integer grows beyond 128 bits, the largest that templates compute with"};
}

Int multiply(Int a, Int b) {
  constexpr Int kSafe = Int{1} << 63;
  if (a > -kSafe && a < kSafe && b > -kSafe && b < kSafe) return a * b;
  if (a == 0 || b == 0) return 0;
  if (a == kIntMin || b == kIntMin) refuse_overflow();
  if ((a < 0 ? -a : a) > kIntMax / (b < 0 ? -b : b)) refuse_overflow();
  return a * b;
}

Int floor_divide(Int a, Int b) {
  if (a == kIntMin && b == -1) refuse_overflow();
  Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int modulo(Int a, Int b) {
  if (b == -1) return 0;
  Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_divide(double a, double b) {
  double quotient = (a - modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Int power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent & 1) result = multiply(result, base);
    exponent >>= 1;
    if (exponent > 0) base = multiply(base, base);
  }
  return result;
}

double power(double base, double exponent) {
  if (base == 0 && exponent < 0) refuse("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    refuse("a negative number to a fractional power is a complex number, which templates do not have");
  }
  double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) refuse("numerical result out of range");
  return result;
}

Value integers(Arithmetic operation, Int a, Int b) {
  Int result = 0;
  switch (operation) {
    case Arithmetic::add:
      if (__builtin_add_overflow(a, b, &result)) refuse_overflow();
      return Value::integer(result);
    case Arithmetic::subtract:
      if (__builtin_sub_overflow(a, b, &result)) refuse_overflow();
      return Value::integer(result);
    case Arithmetic::multiply:
      return Value::integer(multiply(a, b));
    case Arithmetic::power:
      if (b < 0) return Value::floating(power(static_cast<double>(a), static_cast<double>(b)));
      return Value::integer(power(a, b));
    default:
      break;
  }
  if (b == 0) refuse("division by zero in '{}'", symbol(operation));
  if (operation == Arithmetic::divide) return Value::floating(static_cast<double>(a) / static_cast<double>(b));
  return Value::integer(operation == Arithmetic::modulo ? modulo(a, b) : floor_divide(a, b));
}

Value floats(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::add:
      return Value::floating(a + b);
    case Arithmetic::subtract:
      return Value::floating(a - b);
    case Arithmetic::multiply:
      return Value::floating(a * b);
    case Arithmetic::power:
      return Value::floating(power(a, b));
    default:
      break;
  }
  if (b == 0) refuse("float division by zero in '{}'", symbol(operation));
  if (operation == Arithmetic::divide) return Value::floating(a / b);
  return Value::floating(operation == Arithmetic::modulo ? modulo(a, b) : floor_divide(a, b));
}

Value repeat(Runtime& runtime, const Value& sequence, Int count) {
  bool text = sequence.is_string();
  size_t unit = text ? text_of(sequence).size() : items_of(sequence).size();
  size_t unit_bytes = text ? unit : unit * sizeof(Value);
  if (count < 0 || unit == 0) count = 0;
  constexpr Int kHuge = Int{1} << 62;
  if (count > kHuge || count * static_cast<Int>(unit_bytes) > kHuge) runtime.check_memory(kHuge);
  runtime.check_memory(static_cast<size_t>(count) * unit_bytes);
  auto times = static_cast<size_t>(count);
  runtime.spend_bytes(unit_bytes * times);
  if (text) {
    std::string bytes;
    bytes.reserve(unit * times);
    for (size_t i = 0; i < times; ++i) bytes += text_of(sequence);
    return string_like(runtime, sequence, std::move(bytes));
  }
  std::vector<Value> items;
  items.reserve(unit * times);
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), items_of(sequence).begin(), items_of(sequence).end());
  }
  return sequence.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

Value concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (!a.is_string()) {
    runtime.check_memory((items_of(a).size() + items_of(b).size()) * sizeof(Value));
    std::vector<Value> items = items_of(a);
    items.insert(items.end(), items_of(b).begin(), items_of(b).end());
    runtime.spend(items.size());
    return a.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
  }
  bool a_markup = a.as<StringObject>().markup, b_markup = b.as<StringObject>().markup;
  runtime.check_memory(text_of(a).size() + text_of(b).size());
  if (a_markup == b_markup) return runtime.string(text_of(a) + text_of(b), a_markup);
  return runtime.string(
      (a_markup ? text_of(a) : escape_html(text_of(a))) + (b_markup ? text_of(b) : escape_html(text_of(b))), true);
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is(Kind::list) || value.is(Kind::tuple);
}

/// A number without underscores and white space around, or nothing where Python would not read one.
std::optional<std::string> plain_number(std::string_view text) {
  text = strip_left(strip_right(text));
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    bool between = i > 0 && i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                   std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return plain;
}

}  // namespace

Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
  runtime.spend();
  if (a.is_integral() && b.is_integral()) return integers(operation, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return floats(operation, a.number(), b.number());
  if (operation == Arithmetic::modulo && a.is_string()) return format_percent(runtime, a, b);
  if (a.is_undefined()) refuse("{}", a.as<UndefinedObject>().message);
  if (b.is_undefined()) refuse("{}", b.as<UndefinedObject>().message);
  if (operation == Arithmetic::add && is_sequence(a) && a.kind() == b.kind()) return concatenate(runtime, a, b);
  if (operation == Arithmetic::multiply) {
    if (is_sequence(a) && b.is_integral()) return repeat(runtime, a, b.integer());
    if (is_sequence(b) && a.is_integral()) return repeat(runtime, b, a.integer());
  }
  refuse("unsupported operand types for {}: '{}' and '{}'", symbol(operation), type_name(a), type_name(b));
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  return arithmetic(runtime, Arithmetic::add, a, b);
}

Value negate(const Value& value) {
  if (value.is(Kind::floating)) return Value::floating(-value.floating());
  if (value.is_undefined()) refuse("{}", value.as<UndefinedObject>().message);
  if (!value.is_integral()) refuse("bad operand type for unary -: '{}'", type_name(value));
  if (value.integer() == kIntMin) refuse_overflow();
  return Value::integer(-value.integer());
}

Value plus(const Value& value) {
  if (value.is(Kind::floating)) return value;
  if (value.is_undefined()) refuse("{}", value.as<UndefinedObject>().message);
  if (!value.is_integral()) refuse("bad operand type for unary +: '{}'", type_name(value));
  return Value::integer(value.integer());
}

Value to_integer(double value) {
  if (std::isnan(value)) refuse("cannot convert float NaN to integer");
  if (std::isinf(value)) refuse("cannot convert float infinity to integer");
  if (std::abs(value) >= 0x1p127) refuse_overflow();
  return Value::integer(static_cast<Int>(value));
}

std::optional<Int> parse_integer(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  auto plain = plain_number(text);
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  auto prefix = [&](char letter, int of_base) {
    if (digits.size() < 2 || digits[0] != '0' || (digits[1] | 0x20) != letter) return false;
    if (base != 0 && base != of_base) return false;
    digits.remove_prefix(2);
    base = of_base;
    return true;
  };
  if (!prefix('x', 16) && !prefix('o', 8) && !prefix('b', 2) && base == 0) {
    base = 10;
    bool all_zero = digits.find_first_not_of('0') == std::string_view::npos;
    if (digits.size() > 1 && digits[0] == '0' && !all_zero) return std::nullopt;  // Python 2's octal spelling
  }
  if (digits.empty()) return std::nullopt;
  Int value = 0;
  for (char c : digits) {
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (value > (kIntMax - digit) / base) refuse_overflow();
    value = value * base + digit;
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  auto plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (digits.find('(') != std::string_view::npos) return std::nullopt;  // C's "nan(...)"
  if (error == std::errc::result_out_of_range) {
    value = std::strtod(std::string(digits).c_str(), nullptr);  // infinity or the nearest tiny number
  }
  return negative ? -value : value;
}

Value round_number(const Value& value, Int digits) {
  if (value.is_integral()) {
    if (digits >= 0) return Value::integer(value.integer());
    if (digits < -37) return Value::integer(0);
    Int unit = power(Int{10}, -digits), rest = modulo(value.integer(), unit), floor = value.integer() - rest;
    bool up = rest * 2 > unit || (rest * 2 == unit && floor_divide(floor, unit) % 2 != 0);
    return Value::integer(up ? floor + unit : floor);
  }
  if (!value.is(Kind::floating)) refuse("type {} has no rounding", type_name(value));
  double number = value.floating();
  if (!std::isfinite(number) || number == 0 || digits > 323) return value;
  if (digits < -308) return Value::floating(std::copysign(0.0, number));
  if (digits < 0) {
    double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::floating(std::nearbyint(number / unit) * unit);
  }
  // The decimal expansion of a double is finite and printf rounds it exactly, half to even: what Python does.
  char text[700];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), number);
  return Value::floating(std::strtod(text, nullptr));
}

}  // namespace cohort::jinja
