// "format".format(arguments): fields, conversions and the format specifications of texts and numbers.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/escape_html.h"
#include "text/template/callable.h"
#include "text/template/format_number.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Specification {
  std::string fill = " ";
  char align = '\0', sign = '-', grouping = '\0', type = '\0';
  bool alternate = false;
  Int width = 0, precision = -1;
};

/// `align`: where values of the type stand if the specification does not say.
Specification parse_specification(std::string_view text, char align) {
  Specification spec;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  auto take = [&](auto accept) {
    if (text.empty() || !accept(text[0])) return '\0';
    char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  auto number = [&]() {
    Int value = 0;
    while (char c = take(is_digit)) {
      value = value * 10 + (c - '0');
      if (value > (Int{1} << 31)) refuse("a width or precision in a format is too large");
    }
    return value;
  };
  size_t first = byte_offset(text, 1);
  bool has_fill = first < text.size() && is_align(text[first]);
  if (has_fill) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else {
    spec.align = take(is_align);
  }
  if (char c = take([](char s) { return s == '+' || s == '-' || s == ' '; })) spec.sign = c;
  spec.alternate = take([](char c) { return c == '#'; }) != '\0';
  if (!has_fill && take([](char c) { return c == '0'; }) != '\0') {
    spec.fill.assign(1, '0');
    if (spec.align == '\0' && align == '>') spec.align = '=';
  }
  if (spec.align == '\0') spec.align = align;
  spec.width = number();
  spec.grouping = take([](char c) { return c == ',' || c == '_'; });
  if (take([](char c) { return c == '.'; }) != '\0') {
    if (text.empty() || !is_digit(text[0])) refuse("Format specifier missing precision");
    spec.precision = number();
  }
  spec.type = take([](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '%'; });
  if (!text.empty()) refuse("Invalid format specifier");
  return spec;
}

/// Puts a separator between groups of digits, from the right; zeros that fill up to `width` are grouped too.
std::string grouped(std::string digits, char separator, size_t group, Int width) {
  auto size_with = [&](size_t count) { return count + (count - 1) / group; };
  while (static_cast<Int>(size_with(digits.size())) < width) digits.insert(digits.begin(), '0');
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 1) refuse("Max string recursion exceeded");
    runtime_.spend_bytes(format.size());
    Text out(runtime_);
    for (size_t i = 0; i < format.size();) {
      char c = format[i];
      if (c != '{' && c != '}') {
        size_t end = std::min(format.find_first_of("{}", i), format.size());
        out.append(format.substr(i, end - i));
        i = end;
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        out.append(1, c);
        i += 2;
      } else if (c == '}') {
        refuse("Single '}}' encountered in format string");
      } else {
        size_t end = end_of_field(format, i + 1);
        out.append(field(format.substr(i + 1, end - i - 1), depth));
        i = end + 1;
      }
    }
    return out.take();
  }

 private:
  static size_t end_of_field(std::string_view format, size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    refuse("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    // A colon or exclamation mark inside of brackets belongs to the name.
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < text.size(); ++name_end) {
      char c = text[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == ':' || c == '!')) break;
    }
    Value value = find(text.substr(0, name_end));
    text.remove_prefix(name_end);
    char conversion = '\0';
    if (!text.empty() && text[0] == '!') {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) refuse("expected ':' after conversion specifier");
      conversion = text[1];
      text.remove_prefix(2);
    }
    std::string spec = text.empty() ? "" : run(text.substr(1), depth + 1);
    return formatted(converted(value, conversion), spec);
  }

  Value find(std::string_view name) {
    size_t first_end = std::min(name.find_first_of(".["), name.size());
    std::string first(name.substr(0, first_end));
    Value value;
    bool is_index = std::all_of(first.begin(), first.end(), is_digit);
    if (is_index) {
      bool automatic = first.empty();
      if ((automatic && manual_) || (!automatic && next_ > 0))
        refuse("cannot mix automatic and manual numbering of fields");
      manual_ = manual_ || !automatic;
      std::optional<Int> index = automatic ? static_cast<Int>(next_++) : parse_integer(first, 10);
      if (*index >= static_cast<Int>(arguments_.positional.size())) refuse("a field of the format has no argument");
      value = arguments_.positional[static_cast<size_t>(*index)];
    } else {
      const Value* found = arguments_.keyword(first);
      if (found == nullptr) refuse("the arguments of the format have no '{}'", first);
      value = *found;
    }
    for (name.remove_prefix(first_end); !name.empty();) {
      bool item = name[0] == '[';
      size_t end = item ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
      if (end == std::string_view::npos || end == 1) refuse("Missing ']' or empty attribute in format string");
      std::string key(name.substr(1, end - 1));
      name.remove_prefix(end + (item ? 1 : 0));
      if (!name.empty() && name[0] != '.' && name[0] != '[')
        refuse("Only '.' or '[' may follow ']' in format field specifier");
      bool number = item && std::all_of(key.begin(), key.end(), is_digit);
      Value key_value = number ? Value::integer(parse_integer(key, 10).value()) : runtime_.string(key);
      value = item ? get_item(runtime_, value, key_value) : get_attribute(runtime_, value, key_value);
    }
    return value;
  }

  Value converted(const Value& value, char conversion) {
    switch (conversion) {
      case '\0':
        return value;
      case 's':
        return to_string(runtime_, value);
      case 'r': {
        Text shown(runtime_);
        append_repr(shown, value);
        return runtime_.string(shown.take());
      }
      case 'a':
        return runtime_.string(ascii_repr(runtime_, value));
      default:
        refuse("Unknown conversion specifier '{}'", conversion);
    }
  }

  std::string formatted(const Value& value, std::string_view text) {
    std::string out;
    if (value.is_string()) {
      out = format_text(text_of(value), parse_specification(text, '<'));
    } else if (text.empty()) {
      out = text_of(to_string(runtime_, value));
    } else if (value.is_integral()) {
      out = format_integer(value, parse_specification(text, '>'));
    } else if (value.is(Kind::floating)) {
      out = format_float(value.floating(), parse_specification(text, '>'));
    } else {
      refuse("unsupported format string passed to {}.__format__", type_name(value));
    }
    bool is_markup = value.is_string() && value.as<StringObject>().markup;
    return escapes_ && !is_markup ? escape_html(out) : out;
  }

  std::string format_text(std::string_view text, const Specification& spec) {
    if ((spec.type != '\0' && spec.type != 's') || spec.grouping != '\0') refuse("Unknown format code for a string");
    if (spec.sign != '-' || spec.alternate || spec.align == '=') {
      refuse("Sign, '#' and '=' are not allowed in the format of a string");
    }
    if (spec.precision >= 0) text = first_code_points(text, spec.precision);
    return aligned(runtime_, "", text, spec.width, spec.align, spec.fill);
  }

  std::string format_integer(const Value& value, const Specification& spec) {
    switch (spec.type) {
      case '\0':
      case 'd':
      case 'n':
      case 'b':
      case 'o':
      case 'x':
      case 'X':
        break;
      case 'c':
        if (spec.sign != '-') refuse("Sign not allowed with integer format specifier 'c'");
        return aligned(runtime_, "", character_of(value), spec.width, spec.align, spec.fill);
      default:
        return format_float(static_cast<double>(value.integer()), spec);
    }
    if (spec.precision >= 0) refuse("Precision not allowed in integer format specifier");
    int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
    if (spec.grouping == ',' && base != 10) refuse("Cannot specify ',' with this type");
    std::string digits = integer_text(value.integer(), base, spec.type == 'X');
    bool negative = digits[0] == '-';
    if (negative) digits.erase(0, 1);
    std::string prefix(sign_of(negative, spec.sign));
    if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
    return finish(prefix, digits, "", base == 10 ? 3 : 4, spec);
  }

  std::string format_float(double value, const Specification& spec) {
    char type = spec.type;
    if (type != '\0' && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) {
      refuse("Unknown format code '{}' for a float", type);
    }
    double magnitude = std::abs(value) * (type == '%' ? 100 : 1);
    std::string digits;
    if (type == '\0' && spec.precision < 0) {
      digits = float_repr(magnitude);
    } else {
      char printf_type = type == '%' ? 'f' : type == 'n' || type == '\0' ? 'g' : type;
      digits = float_digits(runtime_, magnitude, printf_type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
      if (type == '\0') digits = with_fraction(std::move(digits), magnitude, spec.precision);
    }
    if (type == '%') digits += '%';
    std::string prefix(sign_of(std::signbit(value) && !std::isnan(value), spec.sign));
    size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    return finish(prefix, digits.substr(0, whole), digits.substr(whole), 3, spec);
  }

  /// Without a type, a float keeps at least one digit behind the point: %g does not.
  std::string with_fraction(std::string digits, double magnitude, Int precision) {
    if (!std::isfinite(magnitude) || digits.find_first_of(".e") != std::string::npos) return digits;
    if (static_cast<Int>(digits.size()) < std::max<Int>(precision, 1)) return digits + ".0";
    return float_digits(runtime_, magnitude, 'e', std::max<Int>(precision - 1, 0), false);
  }

  std::string finish(const std::string& prefix, std::string digits, const std::string& rest, size_t group,
                     const Specification& spec) {
    bool zero_filled = spec.align == '=' && spec.fill == "0";
    if (spec.grouping != '\0' && !digits.empty()) {
      Int width = zero_filled ? std::min<Int>(spec.width, 1 << 20) - static_cast<Int>(prefix.size() + rest.size()) : 0;
      digits = grouped(std::move(digits), spec.grouping, group, width);
    }
    return aligned(runtime_, prefix, digits + rest, spec.width, spec.align, spec.fill);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  bool escapes_;
  size_t next_ = 0;
  bool manual_ = false;
};

}  // namespace

Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments) {
  BraceFormatter formatter(runtime, arguments, format.as<StringObject>().markup);
  return string_like(runtime, format, formatter.run(text_of(format), 0));
}

}  // namespace cohort::jinja
