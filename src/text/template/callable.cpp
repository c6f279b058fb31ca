#include "text/template/callable.h"

#include <algorithm>
#include <array>

#include "text/template/loop.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

struct Parameter {
  std::string_view name;
  bool optional = false;
};

/// Reads "old new count=".
std::vector<Parameter> parameters_of(std::string_view text) {
  std::vector<Parameter> parameters;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    std::string_view name = text.substr(0, end);
    bool optional = name.back() == '=';
    if (optional) name.remove_suffix(1);
    parameters.push_back({name, optional});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parameters;
}

void bind(const Native& native, Arguments& arguments) {
  std::string_view text = native.parameters;
  bool positional_only = text.substr(0, 1) == "/";
  if (positional_only) text.remove_prefix(1);
  std::vector<Parameter> parameters = parameters_of(text);
  if (arguments.positional.size() > parameters.size()) {
    refuse("{}() takes at most {} arguments, {} were given", native.name, parameters.size(),
           arguments.positional.size());
  }
  arguments.positional.resize(parameters.size());
  for (auto& [name, value] : arguments.keywords) {
    auto found = std::find_if(parameters.begin(), parameters.end(),
                              [&wanted = name](const Parameter& p) { return p.name == wanted; });
    if (positional_only || found == parameters.end()) refuse("{}() got an unexpected argument '{}'", native.name, name);
    Value& slot = arguments.positional[static_cast<size_t>(found - parameters.begin())];
    if (!slot.is_missing()) refuse("{}() got two values for the argument '{}'", native.name, name);
    slot = std::move(value);
  }
  arguments.keywords.clear();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].optional && arguments.positional[i].is_missing()) {
      refuse("{}() needs the argument '{}'", native.name, parameters[i].name);
    }
  }
}

template <class Tables>
const Native* find_in(const Tables& tables, std::string_view name) {
  for (const NativeTable& table : tables) {
    if (const Native* found = table.find(name)) return found;
  }
  return nullptr;
}

}  // namespace

const Value* Arguments::keyword(std::string_view name) const {
  for (const auto& [key, value] : keywords) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Native* NativeTable::find(std::string_view name) const {
  const Native* found = std::find_if(begin, begin + size, [&](const Native& native) { return native.name == name; });
  return found == begin + size ? nullptr : found;
}

Value invoke(Runtime& runtime, const Native& native, const Value& self, Arguments& arguments) {
  RecursionGuard guard(runtime);
  runtime.spend();
  if (native.parameters != "*") bind(native, arguments);
  return native.call(runtime, self, arguments);
}

const Native* find_filter(std::string_view name) {
  return find_in(std::array{text_filters(), number_filters(), sequence_filters(), selection_filters()}, name);
}

bool is_unsupported_filter(std::string_view name) {
  constexpr std::string_view kNames[] = {"filesizeformat", "pprint", "random",   "striptags",
                                         "urlencode",      "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string describe(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::macro: {
      const Stmt& statement = *value.as<MacroObject>().statement;
      return statement.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", statement.name);
    }
    case Kind::loop: {
      auto& loop = value.as<LoopObject>();
      return fmt::format("<LoopContext {}/{}>", integer_text(loop.index0 + 1), integer_text(loop.length(runtime)));
    }
    case Kind::function: {
      const auto& function = value.as<FunctionObject>();
      if (function.self.is_missing()) return fmt::format("<function {}>", function.native->name);
      return fmt::format("<built-in method {} of {} object>", function.native->name, type_name(function.self));
    }
    default:
      return fmt::format("<{} object>", type_name(value));
  }
}

Int integer_argument(const Value& value, std::string_view what) {
  if (value.is_undefined()) refuse("{}", value.as<UndefinedObject>().message);
  if (!value.is_integral()) refuse("{} must be an integer, not {}", what, type_name(value));
  return value.integer();
}

const std::string& text_argument(const Value& value, std::string_view what) {
  if (!value.is_string()) refuse("{} must be a string, not {}", what, type_name(value));
  return text_of(value);
}

}  // namespace cohort::jinja
