// Python's operations on values. Those that Python would refuse throw a Failure that says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace cohort::jinja {

// Truth, equality, order.
enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };
bool truthy(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b);
bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);
inline bool less(Runtime& runtime, const Value& a, const Value& b) {
  return compare(runtime, Comparison::lt, a, b);
}
bool contains(Runtime& runtime, const Value& container, const Value& item);
size_t hash(Runtime& runtime, const Value& value);  // refuses what Python cannot hash

// Arithmetic. "+", "*" and "%" also work on texts and sequences.
enum class Arithmetic : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);
Value add(Runtime& runtime, const Value& a, const Value& b);
Value to_integer(double value);                                     // int(float)
std::optional<Int> parse_integer(std::string_view text, int base);  // int(str, base); no value: not an integer
std::optional<double> parse_float(std::string_view text);           // float(str)
Value round_number(const Value& value, Int digits);                 // round(value, digits)

// Texts: str() and repr().
void append_str(Text& out, const Value& value);
void append_repr(Text& out, const Value& value);
std::string float_repr(double value);
std::string integer_text(Int value, int base = 10, bool upper = false);
/// str(value): the same object if it is a text already.
Value to_string(Runtime& runtime, const Value& value);
/// `"format" % argument`.
Value format_percent(Runtime& runtime, const Value& format, const Value& argument);
struct Arguments;
/// `"format".format(arguments)`.
Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments);

// Sequences.
/// len(value); no value where Python has none.
std::optional<Int> length(const Value& value);
/// iter(value); refuses what cannot be walked.
Ref<IteratorObject> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
/// Everything that iter(value) gives.
std::vector<Value> collect(Runtime& runtime, const Value& value);
/// reversed(value) for a sequence or dict; no value where Python has none.
std::optional<Value> reversed(Runtime& runtime, const Value& value);
/// value[start:stop:step]; missing bounds are Kind::none.
Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);
/// The code points [begin, end) of a text.
Value substring(Runtime& runtime, const Value& text, size_t begin, size_t end);
/// A text with the markup flag of `like`.
inline Value string_like(Runtime& runtime, const Value& like, std::string bytes) {
  return runtime.string(std::move(bytes), like.as<StringObject>().markup);
}

// Attributes and items, with the sandbox's rules: value.name prefers attributes, value[key] prefers items.
Value get_attribute(Runtime& runtime, const Value& value, const Value& name);  // name: a text
Value get_item(Runtime& runtime, const Value& value, const Value& key);

}  // namespace cohort::jinja
