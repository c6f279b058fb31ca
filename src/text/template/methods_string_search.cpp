// Methods of texts that find something in them or say what they are made of.
#include <algorithm>
#include <iterator>

#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/text_tools.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

/// The part of a text between two indices, as a slice would have it, in bytes; `exists` is false if start lies behind
/// the end.
struct Part {
  size_t begin = 0, end = 0;
  Int first = 0;  // index of the first code point
  bool exists = true;
};

Part part_of(Runtime& runtime, const Value& self, const Arguments& arguments, size_t first_bound) {
  const auto& text = self.as<StringObject>();
  auto size = static_cast<Int>(text.length);
  auto bound = [&](size_t i, Int absent) {
    if (!arguments.has(i) || arguments[i].is_none()) return absent;
    Int index = integer_argument(arguments[i], "a bound");
    return index < 0 ? std::max<Int>(index + size, 0) : index;
  };
  Int start = bound(first_bound, 0), stop = std::min(bound(first_bound + 1, size), size);
  Part part;
  part.first = start;
  part.exists = start <= stop;
  if (!part.exists) return part;
  runtime.spend_bytes(text.bytes.size());
  if (text.is_ascii()) {
    part.begin = static_cast<size_t>(start);
    part.end = static_cast<size_t>(stop);
  } else {
    part.begin = byte_offset(text.bytes, static_cast<size_t>(start));
    part.end =
        part.begin + byte_offset(std::string_view(text.bytes).substr(part.begin), static_cast<size_t>(stop - start));
  }
  return part;
}

std::string_view text_in(const Value& self, const Part& part) {
  return std::string_view(text_of(self)).substr(part.begin, part.end - part.begin);
}

/// Index of the code point where `wanted` is found, or -1.
Int find_index(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
  const std::string& wanted = text_argument(arguments[0], "the text to find");
  Part part = part_of(runtime, self, arguments, 1);
  if (!part.exists) return -1;
  std::string_view text = text_in(self, part);
  size_t found = from_right ? find_last_text(text, wanted) : find_text(text, wanted);
  if (found == std::string_view::npos) return -1;
  return part.first + static_cast<Int>(count_code_points(text.substr(0, found)));
}

template <bool from_right>
Value find(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value::integer(find_index(runtime, self, arguments, from_right));
}

template <bool from_right>
Value index(Runtime& runtime, const Value& self, Arguments& arguments) {
  Int found = find_index(runtime, self, arguments, from_right);
  if (found < 0) refuse("substring not found");
  return Value::integer(found);
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& wanted = text_argument(arguments[0], "the text to count");
  Part part = part_of(runtime, self, arguments, 1);
  if (!part.exists) return Value::integer(0);
  std::string_view text = text_in(self, part);
  if (wanted.empty()) return Value::integer(static_cast<Int>(count_code_points(text)) + 1);
  Int found = 0;
  for (size_t at = find_text(text, wanted); at != std::string_view::npos;
       at = find_text(text, wanted, at + wanted.size())) {
    ++found;
  }
  return Value::integer(found);
}

/// startswith, endswith: of a text or of any text of a tuple.
template <bool at_end>
Value has_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  Part part = part_of(runtime, self, arguments, 1);
  auto matches = [&](const Value& affix) {
    const std::string& wanted = text_argument(affix, at_end ? "the suffix" : "the prefix");
    if (!part.exists) return false;
    std::string_view text = text_in(self, part);
    if (wanted.size() > text.size()) return false;
    return text.substr(at_end ? text.size() - wanted.size() : 0, wanted.size()) == wanted;
  };
  if (!arguments[0].is(Kind::tuple)) return Value::boolean(matches(arguments[0]));
  for (const Value& affix : items_of(arguments[0])) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

/// Whether every character passes, and (unless `empty_passes`) there is one.
template <bool (*test)(char32_t), bool empty_passes = false>
Value all_are(Runtime& runtime, const Value& self, Arguments&) {
  const std::string& text = text_of(self);
  runtime.spend_bytes(text.size() * 16);
  for (size_t position = 0; position < text.size();) {
    if (!test(decode(text, position))) return Value::boolean(false);
  }
  return Value::boolean(empty_passes || !text.empty());
}

bool is_ascii(char32_t c) {
  return c < 0x80;
}

/// Whether all letters with case have the wanted one, and there is one.
template <bool upper>
Value is_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.positional.clear();
  return find_test(upper ? "upper" : "lower")->call(runtime, self, arguments);
}

Value is_title(Runtime& runtime, const Value& self, Arguments&) {
  const std::string& text = text_of(self);
  runtime.spend_bytes(text.size() * 16);
  bool found = false, inside_word = false;
  for (size_t position = 0; position < text.size();) {
    char32_t c = decode(text, position);
    bool upper = is_uppercase(c) || is_titlecase(c), lower = is_lowercase(c);
    if ((upper && inside_word) || (lower && !inside_word)) return Value::boolean(false);
    inside_word = upper || lower;
    found = found || inside_word;
  }
  return Value::boolean(found);
}

Value is_identifier(Runtime&, const Value& self, Arguments&) {
  const std::string& text = text_of(self);
  for (size_t position = 0; position < text.size();) {
    bool first = position == 0;
    char32_t c = decode(text, position);
    if (!(first ? is_identifier_start(c) : is_identifier_part(c))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

constexpr Native kMethods[] = {
    {"startswith", "/prefix start= end=", has_affix<false>},
    {"endswith", "/suffix start= end=", has_affix<true>},
    {"find", "/sub start= end=", find<false>},
    {"rfind", "/sub start= end=", find<true>},
    {"index", "/sub start= end=", index<false>},
    {"rindex", "/sub start= end=", index<true>},
    {"count", "/sub start= end=", count},
    {"isalpha", "", all_are<is_alpha>},
    {"isdigit", "", all_are<is_digit>},
    {"isdecimal", "", all_are<is_decimal>},
    {"isnumeric", "", all_are<is_numeric>},
    {"isalnum", "", all_are<is_alphanumeric>},
    {"isspace", "", all_are<is_space>},
    {"isascii", "", all_are<is_ascii, true>},
    {"isprintable", "", all_are<is_printable, true>},
    {"isupper", "", is_case<true>},
    {"islower", "", is_case<false>},
    {"istitle", "", is_title},
    {"isidentifier", "", is_identifier},
};

}  // namespace

NativeTable string_search_methods() {
  return {kMethods, std::size(kMethods)};
}

}  // namespace cohort::jinja
