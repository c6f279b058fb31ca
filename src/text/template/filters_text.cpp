// Filters that make texts.
#include <algorithm>

#include "base/escape_html.h"
#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/text_tools.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

/// Applies a change of case to str(value).
template <std::string (*change)(std::string_view)>
Value change_case(Runtime& runtime, const Value& self, Arguments&) {
  Value text = to_string(runtime, self);
  runtime.spend_bytes(text_of(text).size() * 16);  // looks up every character
  return string_like(runtime, text, change(text_of(text)));
}

bool begins_word(char32_t c) {
  return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

/// Words begin after white space and opening brackets: not the same as str.title.
Value title(Runtime& runtime, const Value& self, Arguments&) {
  Value text = to_string(runtime, self);
  std::string_view bytes = text_of(text);
  runtime.spend_bytes(bytes.size() * 16);
  std::string out;
  for (size_t position = 0; position < bytes.size();) {
    size_t begin = position, next = position;
    bool separators = begins_word(decode(bytes, next));
    while (position < bytes.size()) {
      next = position;
      if (begins_word(decode(bytes, next)) != separators) break;
      position = next;
    }
    std::string_view word = bytes.substr(begin, position - begin);
    size_t first = byte_offset(word, 1);
    out += to_upper(word.substr(0, first));
    out += to_lower(word.substr(first));
  }
  return runtime.string(std::move(out));
}

Value trim(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value text = to_string(runtime, self);
  bool has_chars = arguments.has(0) && !arguments[0].is_none();
  const std::string* chars = has_chars ? &text_argument(arguments[0], "the characters to trim") : nullptr;
  runtime.spend_bytes(text_of(text).size() * (chars != nullptr ? 1 + chars->size() : 1));
  return string_like(runtime, text, std::string(strip(text_of(text), chars, true, true)));
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int count = arguments.has(2) && !arguments[2].is_none() ? integer_argument(arguments[2], "the count of replace") : -1;
  Value text = to_string(runtime, self), old = to_string(runtime, arguments[0]), to = to_string(runtime, arguments[1]);
  return runtime.string(replace_all(runtime, text_of(text), text_of(old), text_of(to), count));
}

Value center(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value text = to_string(runtime, self);
  Int width = arguments.has(0) ? integer_argument(arguments[0], "the width") : 80;
  return string_like(runtime, text, centered(runtime, text_of(text), *length(text), width, " "));
}

Value indent(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = text_argument(self, "the value of indent");
  std::string indentation(4, ' ');
  if (arguments.has(0) && arguments[0].is_string()) {
    indentation = text_of(arguments[0]);
  } else if (arguments.has(0)) {
    indentation = padded(runtime, "", integer_argument(arguments[0], "the width of indent"), 0, " ");
  }
  bool first = arguments.has(1) && truthy(arguments[1]), blank = arguments.has(2) && truthy(arguments[2]);
  runtime.spend_bytes(text.size() * 8);
  std::string terminated = text + "\n";
  Text out(runtime);
  bool is_first = true;
  for (std::string_view line : split_lines(terminated, false)) {
    bool indented = is_first ? first : blank || !line.empty();
    if (!is_first) out.append("\n");
    if (indented) out.append(indentation);
    out.append(line);
    is_first = false;
  }
  return string_like(runtime, self, out.take());
}

Value truncate(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int limit = arguments.has(0) ? integer_argument(arguments[0], "the length of truncate") : 255;
  bool kill_words = arguments.has(1) && truthy(arguments[1]);
  std::string end = arguments.has(2) ? text_argument(arguments[2], "the end of truncate") : "...";
  Int leeway =
      arguments.has(3) && !arguments[3].is_none() ? integer_argument(arguments[3], "the leeway of truncate") : 5;
  auto end_length = static_cast<Int>(count_code_points(end));
  if (limit < end_length)
    refuse("truncate needs a length of at least {}, the length of its end", integer_text(end_length));
  if (leeway < 0) refuse("truncate needs a leeway of at least 0");
  std::optional<Int> size = length(self);
  if (!size) refuse("object of type '{}' has no len()", type_name(self));
  if (*size <= limit || *size - limit <= leeway) return self;
  text_argument(self, "the value of truncate");
  Value start = substring(runtime, self, 0, static_cast<size_t>(limit - end_length));
  std::string kept = text_of(start);
  if (!kill_words) kept = kept.substr(0, kept.rfind(' '));
  return string_like(runtime, self, kept + end);
}

Value wordcount(Runtime& runtime, const Value& self, Arguments&) {
  Value text = to_string(runtime, self);
  runtime.spend_bytes(text_of(text).size() * 16);
  Int words = 0;
  bool inside = false;
  for (size_t position = 0; position < text_of(text).size();) {
    char32_t c = decode(text_of(text), position);
    bool is_word = c == '_' || is_alphanumeric(c);
    if (is_word && !inside) ++words;
    inside = is_word;
  }
  return Value::integer(words);
}

Value string(Runtime& runtime, const Value& self, Arguments&) {
  return to_string(runtime, self);
}

Value safe(Runtime& runtime, const Value& self, Arguments&) {
  return runtime.string(text_of(to_string(runtime, self)), true);
}

Value force_escape(Runtime& runtime, const Value& self, Arguments&) {
  Value text = to_string(runtime, self);
  runtime.check_memory(text_of(text).size() * 5);
  return runtime.string(escape_html(text_of(text)), true);
}

Value escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (self.is_string() && self.as<StringObject>().markup) return self;
  return force_escape(runtime, self, arguments);
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  Value text = to_string(runtime, self);
  if (arguments.keywords.empty()) return format_percent(runtime, text, runtime.tuple(arguments.positional));
  if (!arguments.positional.empty()) refuse("format takes positional or named arguments, not both");
  Ref<DictObject> names = runtime.dict();
  for (auto& [name, value] : arguments.keywords) names->set(runtime, runtime.string(name), std::move(value));
  return format_percent(runtime, text, runtime.dict(std::move(names)));
}

/// json.dumps as transformers calls it: (ensure_ascii, indent, separators, sort_keys).
Value to_json(Runtime& runtime, const Value& self, Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.has(0) && truthy(arguments[0]);
  style.sort_keys = arguments.has(3) && truthy(arguments[3]);
  std::string indentation;
  if (arguments.has(1) && !arguments[1].is_none()) {
    if (arguments[1].is_string()) {
      indentation = text_of(arguments[1]);
    } else {
      indentation = padded(runtime, "", integer_argument(arguments[1], "the indent of tojson"), 0, " ");
    }
    style.indent = &indentation;
    style.item_separator.pop_back();  // no space before a line break
  }
  if (arguments.has(2) && !arguments[2].is_none()) {
    std::vector<Value> separators = collect(runtime, arguments[2]);
    if (separators.size() != 2) refuse("the separators of tojson must be a pair, not {} values", separators.size());
    style.item_separator = text_argument(separators[0], "the item separator of tojson");
    style.key_separator = text_argument(separators[1], "the key separator of tojson");
  }
  Text out(runtime);
  append_json(out, self, style);
  return runtime.string(out.take());
}

constexpr Native kFilters[] = {
    {"tojson", "ensure_ascii= indent= separators= sort_keys=", to_json},
    {"trim", "chars=", trim},
    {"string", "", string},
    {"replace", "old new count=", replace},
    {"upper", "", change_case<to_upper>},
    {"lower", "", change_case<to_lower>},
    {"capitalize", "", change_case<to_capitalized>},
    {"title", "", title},
    {"indent", "width= first= blank=", indent},
    {"safe", "", safe},
    {"escape", "", escape},
    {"e", "", escape},
    {"forceescape", "", force_escape},
    {"format", "*", format},
    {"center", "width=", center},
    {"truncate", "length= killwords= end= leeway=", truncate},
    {"wordcount", "", wordcount},
};

}  // namespace

NativeTable text_filters() {
  return {kFilters, std::size(kFilters)};
}

}  // namespace cohort::jinja
