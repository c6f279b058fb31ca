// str() and repr(): how Python prints its values.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

void append_quoted(Text& out, std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos, has_double = text.find('"') != std::string_view::npos;
  char quote = has_single && !has_double ? '"' : '\'';
  std::string quoted(1, quote);
  for (size_t position = 0; position < text.size();) {
    size_t begin = position;
    char32_t c = decode(text, position);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      quoted += '\\', quoted += static_cast<char>(c);
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (is_printable(c)) {
      quoted += text.substr(begin, position - begin);
    } else if (c < 0x100) {
      quoted += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      quoted += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  quoted += quote;
  out.append(quoted);
}

void append_items(Text& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!std::exchange(first, false)) out.append(", ");
    append_repr(out, item);
  }
}

void append_entries(Text& out, const DictObject& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!std::exchange(first, false)) out.append(", ");
    append_repr(out, key);
    out.append(": ");
    append_repr(out, value);
  }
  out.append("}");
}

void append_view(Text& out, const ViewObject& view) {
  constexpr std::string_view kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  out.append(kNames[static_cast<size_t>(view.part)]);
  bool first = true;
  for (const auto& [key, value] : view.dict->entries) {
    if (!std::exchange(first, false)) out.append(", ");
    if (view.part == ViewObject::Part::items) out.append("(");
    if (view.part != ViewObject::Part::values) append_repr(out, key);
    if (view.part == ViewObject::Part::items) out.append(", ");
    if (view.part != ViewObject::Part::keys) append_repr(out, value);
    if (view.part == ViewObject::Part::items) out.append(")");
  }
  out.append("])");
}

void append_range(Text& out, const RangeObject& range) {
  out.append("range(" + integer_text(range.start) + ", " + integer_text(range.stop));
  if (range.step != 1) out.append(", " + integer_text(range.step));
  out.append(")");
}

void append_namespace(Text& out, const NamespaceObject& object) {
  if (object.being_printed) return out.append("<Namespace {...}>");
  RecursionGuard guard(out.runtime());  // namespaces in namespaces are not bounded by the depth of values
  struct Printing {
    const NamespaceObject& object;
    explicit Printing(const NamespaceObject& o) : object(o) { object.being_printed = true; }
    ~Printing() { object.being_printed = false; }
  } printing(object);
  out.append("<Namespace {");
  bool first = true;
  for (const auto& [name, value] : object.attributes) {
    if (!std::exchange(first, false)) out.append(", ");
    append_quoted(out, name);
    out.append(": ");
    append_repr(out, value);
  }
  out.append("}>");
}

}  // namespace

void append_repr(Text& out, const Value& value) {
  out.runtime().spend();
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return out.append("Undefined");
    case Kind::none:
      return out.append("None");
    case Kind::boolean:
      return out.append(value.boolean() ? "True" : "False");
    case Kind::integer:
      return out.append(integer_text(value.integer()));
    case Kind::floating:
      return out.append(float_repr(value.floating()));
    case Kind::string:
      if (!value.as<StringObject>().markup) return append_quoted(out, text_of(value));
      out.append("Markup(");
      append_quoted(out, text_of(value));
      return out.append(")");
    case Kind::list:
      out.append("[");
      append_items(out, items_of(value));
      return out.append("]");
    case Kind::tuple:
      out.append("(");
      append_items(out, items_of(value));
      return out.append(items_of(value).size() == 1 ? ",)" : ")");
    case Kind::dict:
      return append_entries(out, value.as<DictObject>());
    case Kind::range:
      return append_range(out, value.as<RangeObject>());
    case Kind::view:
      return append_view(out, value.as<ViewObject>());
    case Kind::name_space:
      return append_namespace(out, value.as<NamespaceObject>());
    default:
      return out.append(describe(out.runtime(), value));
  }
}

void append_str(Text& out, const Value& value) {
  if (value.is_string()) {
    out.runtime().spend_bytes(text_of(value).size());
    out.append(text_of(value));
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

Value to_string(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value;
  Text text(runtime);
  append_str(text, value);
  return runtime.string(text.take());
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<size_t>(end - buffer));  // d.ddde[+-]dd
  std::string sign = shortest[0] == '-' ? "-" : "";
  shortest.remove_prefix(sign.size());
  size_t e = shortest.find('e');
  int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string digits(shortest.substr(0, e));
  std::erase(digits, '.');
  auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(digits.begin() + 1, '.');
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

std::string integer_text(Int value, int base, bool upper) {
  auto magnitude = static_cast<unsigned __int128>(value);
  if (value < 0) magnitude = -magnitude;
  std::string digits;
  do {
    auto digit = static_cast<int>(magnitude % static_cast<unsigned>(base));
    digits += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    magnitude /= static_cast<unsigned>(base);
  } while (magnitude != 0);
  if (value < 0) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {
      "missing", "Undefined", "NoneType",  "bool",      "int",   "float",    "str",         "list",   "tuple", "dict",
      "range",   "dict_view", "generator", "Namespace", "Macro", "function", "LoopContext", "Joiner", "Cycler"};
  if (!value.is(Kind::view)) return kNames[static_cast<size_t>(value.kind())];
  constexpr std::string_view kViews[] = {"dict_keys", "dict_values", "dict_items"};
  return kViews[static_cast<size_t>(value.as<ViewObject>().part)];
}

}  // namespace cohort::jinja
