// What templates can call: functions written here (filters, tests, methods, globals) and how their arguments are bound.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/runtime.h"
#include "text/template/value.h"

namespace cohort::jinja {

/// As written by the caller; after bind(), `positional` has one value for each parameter, missing where none was given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  bool has(size_t i) const { return i < positional.size() && !positional[i].is_missing(); }
  const Value& operator[](size_t i) const { return positional[i]; }
  const Value* keyword(std::string_view name) const;
};

/// A function written here. `parameters` lists the names in order: "old new count=" (= marks what may be left out); a
/// first "/" says that names cannot be used by callers; "*" alone takes the arguments as they are.
struct Native {
  std::string_view name;
  std::string_view parameters;
  /// self: the value left of the filter, test or method.
  Value (*call)(Runtime& runtime, const Value& self, Arguments& arguments);
};

struct FunctionObject : Object {
  const Native* native = nullptr;
  Value self;
};

/// Binds the arguments to the parameters and calls.
Value invoke(Runtime& runtime, const Native& native, const Value& self, Arguments& arguments);

// Lookups; nullptr where there is none.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_global(std::string_view name);
/// Filters of Jinja that chat templates have no use for: known, so that the error can say so.
bool is_unsupported_filter(std::string_view name);

/// A table of functions for one of the lookups above.
struct NativeTable {
  const Native* begin = nullptr;
  size_t size = 0;
  const Native* find(std::string_view name) const;
};
NativeTable text_filters();
NativeTable number_filters();
NativeTable sequence_filters();
NativeTable selection_filters();
NativeTable string_methods();
NativeTable string_search_methods();
NativeTable list_methods();
NativeTable tuple_methods();
NativeTable dict_methods();
NativeTable range_methods();
NativeTable number_methods();
NativeTable cycler_methods();

/// repr() of what is no data: functions, macros, loops, generators.
std::string describe(Runtime& runtime, const Value& value);

/// Writes `value` as json.dumps does.
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  const std::string* indent = nullptr;  // none: on one line
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(Text& out, const Value& value, const JsonStyle& style, size_t level = 0);

/// An argument that must be an integer (or bool), as int; `what` names it in the error.
Int integer_argument(const Value& value, std::string_view what);
/// An argument that must be a text.
const std::string& text_argument(const Value& value, std::string_view what);

}  // namespace cohort::jinja
