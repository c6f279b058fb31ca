// Methods of texts that make texts or lists of them.
#include <algorithm>
#include <iterator>

#include "base/escape_html.h"
#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/text_tools.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

bool is_markup(const Value& text) {
  return text.as<StringObject>().markup;
}

template <std::string (*change)(std::string_view)>
Value change_case(Runtime& runtime, const Value& self, Arguments&) {
  runtime.spend_bytes(text_of(self).size() * 16);
  return string_like(runtime, self, change(text_of(self)));
}

template <bool left, bool right>
Value strip_ends(Runtime& runtime, const Value& self, Arguments& arguments) {
  bool has_chars = arguments.has(0) && !arguments[0].is_none();
  const std::string* chars = has_chars ? &text_argument(arguments[0], "the characters to strip") : nullptr;
  runtime.spend_bytes(text_of(self).size() * (chars != nullptr ? 1 + chars->size() : 1));
  return string_like(runtime, self, std::string(strip(text_of(self), chars, left, right)));
}

/// The words of `text` between white space, at most `limit` splits (< 0: all) counted from one end.
std::vector<std::string_view> split_words(std::string_view text, Int limit, bool from_right) {
  std::vector<std::string_view> words;
  text = from_right ? strip_right(text) : strip_left(text);
  while (!text.empty() && limit != 0) {
    size_t begin = from_right ? text.size() : 0, edge = begin;
    while (from_right ? edge > 0 : edge < text.size()) {
      size_t next = edge;
      if (is_space(from_right ? decode_before(text, next) : decode(text, next))) break;
      edge = next;
    }
    if (from_right) {
      words.push_back(text.substr(edge));
      text = strip_right(text.substr(0, edge));
    } else {
      words.push_back(text.substr(0, edge));
      text = strip_left(text.substr(edge));
    }
    if (limit > 0) --limit;
  }
  if (!text.empty()) words.push_back(text);
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, Int limit, bool from_right) {
  std::vector<std::string_view> parts;
  for (; limit != 0; limit -= limit > 0 ? 1 : 0) {
    size_t found = from_right ? find_last_text(text, separator) : find_text(text, separator);
    if (found == std::string_view::npos) break;
    size_t behind = found + separator.size();
    parts.push_back(from_right ? text.substr(behind) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(behind);
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value list_of(Runtime& runtime, const Value& like, const std::vector<std::string_view>& parts) {
  ListBuilder list(runtime);
  for (std::string_view part : parts) list.push(string_like(runtime, like, std::string(part)));
  return runtime.list(list.take());
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int limit = arguments.has(1) ? integer_argument(arguments[1], "maxsplit") : -1;
  const std::string& text = text_of(self);
  runtime.spend_bytes(text.size());
  // Views of the parts are 16 bytes each, at most one for each byte.
  runtime.check_memory(text.size() * sizeof(std::string_view));
  if (!arguments.has(0) || arguments[0].is_none()) return list_of(runtime, self, split_words(text, limit, from_right));
  const std::string& separator = text_argument(arguments[0], "the separator of split");
  if (separator.empty()) refuse("empty separator");
  return list_of(runtime, self, split_at(text, separator, limit, from_right));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  bool keep_ends = arguments.has(0) && truthy(arguments[0]);
  runtime.spend_bytes(text_of(self).size());
  runtime.check_memory(text_of(self).size() * sizeof(std::string_view));
  return list_of(runtime, self, split_lines(text_of(self), keep_ends));
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = text_of(self);
  const std::string& separator = text_argument(arguments[0], "the separator of partition");
  if (separator.empty()) refuse("empty separator");
  size_t found = from_right ? find_last_text(text, separator) : find_text(text, separator);
  auto part = [&](std::string bytes) { return string_like(runtime, self, std::move(bytes)); };
  if (found == std::string::npos) {
    return from_right ? runtime.tuple({part(""), part(""), self}) : runtime.tuple({self, part(""), part("")});
  }
  return runtime.tuple({part(text.substr(0, found)), part(separator), part(text.substr(found + separator.size()))});
}

/// What a markup text takes in is escaped.
std::string taken_in(const Value& self, const Value& text) {
  return is_markup(self) && !is_markup(text) ? escape_html(text_of(text)) : text_of(text);
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  Text out(runtime);
  bool first = true;
  auto iterator = iterate(runtime, arguments[0]);
  for (Value item; iterator->next(runtime, item);) {
    if (!item.is_string()) refuse("join: expected str instance, {} found", type_name(item));
    if (!std::exchange(first, false)) out.append(text_of(self));
    out.append(taken_in(self, item));
  }
  return string_like(runtime, self, out.take());
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& old = text_argument(arguments[0], "the old text of replace");
  text_argument(arguments[1], "the new text of replace");
  Int count = arguments.has(2) ? integer_argument(arguments[2], "the count of replace") : -1;
  return string_like(runtime, self, replace_all(runtime, text_of(self), old, taken_in(self, arguments[1]), count));
}

Value remove_prefix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& prefix = text_argument(arguments[0], "the prefix");
  if (text_of(self).compare(0, prefix.size(), prefix) != 0) return self;
  return string_like(runtime, self, text_of(self).substr(prefix.size()));
}

Value remove_suffix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string &suffix = text_argument(arguments[0], "the suffix"), &text = text_of(self);
  if (suffix.size() > text.size() || text.compare(text.size() - suffix.size(), suffix.size(), suffix) != 0) return self;
  return string_like(runtime, self, text.substr(0, text.size() - suffix.size()));
}

enum class Side : uint8_t { left, right, both };

template <Side text_side>
Value justify(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int width = integer_argument(arguments[0], "the width");
  std::string fill = arguments.has(1) ? text_argument(arguments[1], "the fill character") : " ";
  if (count_code_points(fill) != 1) refuse("the fill character must be exactly one character long");
  Int missing = std::max<Int>(width - *length(self), 0);
  if (text_side == Side::both) {
    return string_like(runtime, self, centered(runtime, text_of(self), *length(self), width, fill));
  }
  bool at_left = text_side == Side::left;
  return string_like(runtime, self, padded(runtime, text_of(self), at_left ? 0 : missing, at_left ? missing : 0, fill));
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int missing = std::max<Int>(integer_argument(arguments[0], "the width") - *length(self), 0);
  const std::string& text = text_of(self);
  size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  std::string filled = padded(runtime, text.substr(sign), missing, 0, "0");
  return string_like(runtime, self, text.substr(0, sign) + filled);
}

Value expand_tabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int size = arguments.has(0) ? integer_argument(arguments[0], "the size of a tab") : 8;
  if (size > (1 << 20)) refuse("the size of a tab is too large");
  runtime.spend_bytes(text_of(self).size());
  Text out(runtime);
  Int column = 0;
  for (size_t position = 0; position < text_of(self).size();) {
    size_t begin = position;
    char32_t c = decode(text_of(self), position);
    if (c == '\t') {
      Int spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out.append(std::string_view(text_of(self)).substr(begin, position - begin));
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return string_like(runtime, self, out.take());
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return format_braces(runtime, self, arguments);
}

Value format_map(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments[0].is(Kind::dict)) refuse("format_map needs a dict, not {}", type_name(arguments[0]));
  Arguments names;
  for (const auto& [key, value] : arguments[0].as<DictObject>().entries) {
    if (key.is_string()) names.keywords.emplace_back(text_of(key), value);
  }
  return format_braces(runtime, self, names);
}

Value unsupported(Runtime&, const Value&, Arguments&) {
  throw Failure{ErrorCode::unsupported,
                "the methods encode, maketrans and translate are not supported in chat templates"};
}

constexpr Native kMethods[] = {
    {"strip", "/chars=", strip_ends<true, true>},
    {"lstrip", "/chars=", strip_ends<true, false>},
    {"rstrip", "/chars=", strip_ends<false, true>},
    {"split", "sep= maxsplit=", split<false>},
    {"rsplit", "sep= maxsplit=", split<true>},
    {"splitlines", "keepends=", splitlines},
    {"replace", "/old new count=", replace},
    {"join", "/iterable", join},
    {"upper", "", change_case<to_upper>},
    {"lower", "", change_case<to_lower>},
    {"title", "", change_case<to_title>},
    {"capitalize", "", change_case<to_capitalized>},
    {"swapcase", "", change_case<to_swapped_case>},
    {"casefold", "", change_case<to_folded>},
    {"partition", "/sep", partition<false>},
    {"rpartition", "/sep", partition<true>},
    {"removeprefix", "/prefix", remove_prefix},
    {"removesuffix", "/suffix", remove_suffix},
    {"ljust", "/width fillchar=", justify<Side::left>},
    {"rjust", "/width fillchar=", justify<Side::right>},
    {"center", "/width fillchar=", justify<Side::both>},
    {"zfill", "/width", zfill},
    {"expandtabs", "tabsize=", expand_tabs},
    {"format", "*", format},
    {"format_map", "/mapping", format_map},
    {"encode", "*", unsupported},
    {"maketrans", "*", unsupported},
    {"translate", "*", unsupported},
};

}  // namespace

NativeTable string_methods() {
  return {kMethods, std::size(kMethods)};
}

}  // namespace cohort::jinja
