// json.dumps.
#include <algorithm>
#include <cmath>

#include "text/template/callable.h"
#include "text/template/operations.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

void append_json_string(Text& out, std::string_view text, bool ensure_ascii) {
  out.runtime().spend_bytes(text.size());
  std::string quoted = "\"";
  for (size_t position = 0; position < text.size();) {
    size_t begin = position;
    char32_t c = decode(text, position);
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (size_t k = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
        k != std::string_view::npos) {
      quoted += '\\', quoted += kLetters[k];
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (ensure_ascii && c >= 0x10000) {
      auto pair = static_cast<uint32_t>(c) - 0x10000;
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (pair >> 10), 0xDC00 + (pair & 0x3FF));
    } else {
      quoted += text.substr(begin, position - begin);
    }
    if (quoted.size() > 4096) out.append(std::exchange(quoted, {}));
  }
  out.append(quoted + "\"");
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

std::string json_key(const Value& key) {
  switch (key.kind()) {
    case Kind::string:
      return text_of(key);
    case Kind::none:
      return "null";
    case Kind::boolean:
      return key.boolean() ? "true" : "false";
    case Kind::integer:
      return integer_text(key.integer());
    case Kind::floating:
      return json_number(key.floating());
    default:
      refuse("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void append_break(Text& out, const JsonStyle& style, size_t level) {
  if (style.indent == nullptr) return;
  out.append("\n");
  for (size_t i = 0; i < level; ++i) out.append(*style.indent);
}

void append_object(Text& out, const DictObject& dict, const JsonStyle& style, size_t level) {
  if (dict.entries.empty()) return out.append("{}");
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto* a, const auto* b) { return less(out.runtime(), a->first, b->first); });
  }
  out.append("{");
  for (const auto* entry : entries) {
    if (entry != entries.front()) out.append(style.item_separator);
    append_break(out, style, level + 1);
    append_json_string(out, json_key(entry->first), style.ensure_ascii);
    out.append(style.key_separator);
    append_json(out, entry->second, style, level + 1);
  }
  append_break(out, style, level);
  out.append("}");
}

void append_array(Text& out, const std::vector<Value>& items, const JsonStyle& style, size_t level) {
  if (items.empty()) return out.append("[]");
  out.append("[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(style.item_separator);
    append_break(out, style, level + 1);
    append_json(out, items[i], style, level + 1);
  }
  append_break(out, style, level);
  out.append("]");
}

}  // namespace

void append_json(Text& out, const Value& value, const JsonStyle& style, size_t level) {
  out.runtime().spend();
  switch (value.kind()) {
    case Kind::none:
      return out.append("null");
    case Kind::boolean:
      return out.append(value.boolean() ? "true" : "false");
    case Kind::integer:
      return out.append(integer_text(value.integer()));
    case Kind::floating:
      return out.append(json_number(value.floating()));
    case Kind::string:
      return append_json_string(out, text_of(value), style.ensure_ascii);
    case Kind::list:
    case Kind::tuple:
      return append_array(out, items_of(value), style, level);
    case Kind::dict:
      return append_object(out, value.as<DictObject>(), style, level);
    case Kind::undefined:
      refuse("an undefined value cannot be written as JSON: {}", value.as<UndefinedObject>().message);
    default:
      refuse("object of type {} cannot be written as JSON", type_name(value));
  }
}

}  // namespace cohort::jinja
