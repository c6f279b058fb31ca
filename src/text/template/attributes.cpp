// value.name and value[key] with the rules of Jinja's immutable sandbox: attributes are methods of the type (those that
// would change a value, and private ones, read as undefined), items are those of dicts and sequences.
#include <algorithm>

#include "text/template/callable.h"
#include "text/template/loop.h"
#include "text/template/operations.h"

namespace cohort::jinja {
namespace {

NativeTable methods_of(Kind kind) {
  switch (kind) {
    case Kind::string:
      return string_methods();
    case Kind::list:
      return list_methods();
    case Kind::tuple:
      return tuple_methods();
    case Kind::dict:
      return dict_methods();
    case Kind::range:
      return range_methods();
    case Kind::floating:
      return number_methods();
    case Kind::cycler:
      return cycler_methods();
    default:
      return {};
  }
}

/// Methods that change the value: the sandbox hides them.
bool changes_value(Kind kind, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::list) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return kind == Kind::dict && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : fmt::format("{} object", type_name(value));
}

Value number_attribute(const Value& value, std::string_view name) {
  bool integral = value.is_integral();
  auto as_number = [&]() { return integral ? Value::integer(value.integer()) : value; };
  if (name == "real" || (integral && name == "numerator")) return as_number();
  if (name == "imag") return integral ? Value::integer(0) : Value::floating(0);
  if (integral && name == "denominator") return Value::integer(1);
  return Value();
}

Value macro_attribute(Runtime& runtime, const MacroObject& macro, std::string_view name) {
  const Stmt& statement = *macro.statement;
  if (name == "name") return statement.name.empty() ? Value::none() : runtime.string(statement.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const ExprPtr& parameter : statement.parameters) names.push_back(runtime.string(parameter->name));
    return runtime.tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::boolean(statement.takes_kwargs);
  if (name == "catch_varargs") return Value::boolean(statement.takes_varargs);
  if (name == "caller") return Value::boolean(statement.takes_caller);
  return Value();
}

/// getattr(value, name); missing where Python has no such attribute.
Value attribute_of(Runtime& runtime, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::undefined:
      refuse("{}", value.as<UndefinedObject>().message);
    case Kind::name_space: {
      runtime.spend(value.as<NamespaceObject>().attributes.size() / 8);
      const Value* found = value.as<NamespaceObject>().find(name);
      return found != nullptr ? *found : Value();
    }
    case Kind::loop:
      return value.as<LoopObject>().attribute(runtime, name);
    case Kind::macro:
      return macro_attribute(runtime, value.as<MacroObject>(), name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::floating:
      if (Value number = number_attribute(value, name); !number.is_missing()) return number;
      break;
    case Kind::range: {
      const auto& range = value.as<RangeObject>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      break;
    }
    case Kind::tuple:
      if (value.as<ListObject>().is_group && name == "grouper") return items_of(value)[0];
      if (value.as<ListObject>().is_group && name == "list") return items_of(value)[1];
      break;
    case Kind::cycler: {
      const auto& cycler = value.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      break;
    }
    default:
      break;
  }
  bool is_private = name.size() >= 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
  if (is_private || changes_value(value.kind(), name)) {
    return runtime.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  }
  const Native* method = methods_of(value.kind()).find(name);
  if (method == nullptr && value.is_string()) method = string_search_methods().find(name);
  if (method == nullptr) return Value();
  auto function = runtime.make<FunctionObject>(0, value.depth() + 1);
  function->native = method;
  function->self = value;
  return {Kind::function, std::move(function)};
}

Value indexed(Runtime& runtime, const Value& value, Int index) {
  std::optional<Int> size = length(value);
  if (index < 0) index += *size;
  if (index < 0 || index >= *size) return Value();
  auto i = static_cast<size_t>(index);
  if (value.is_string()) return substring(runtime, value, i, i + 1);
  if (value.is(Kind::range)) {
    const auto& range = value.as<RangeObject>();
    return Value::integer(range.start + index * range.step);
  }
  return items_of(value)[i];
}

/// value[key]; missing where Python raises a TypeError or LookupError.
Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) refuse("{}", value.as<UndefinedObject>().message);
  if (value.is(Kind::dict)) {
    bool unhashable = key.is(Kind::list) || key.is(Kind::dict) || key.is(Kind::view);
    const Value* found = unhashable ? nullptr : value.as<DictObject>().find(runtime, key);
    return found != nullptr ? *found : Value();
  }
  bool sequence = value.is_string() || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
  return sequence && key.is_integral() ? indexed(runtime, value, key.integer()) : Value();
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& value, const Value& name) {
  runtime.spend();
  Value found = attribute_of(runtime, value, text_of(name));
  if (found.is_missing()) found = item_of(runtime, value, name);
  if (!found.is_missing()) return found;
  return runtime.undefined(fmt::format("'{}' has no attribute '{}'", object_name(value), text_of(name)));
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  runtime.spend();
  Value found = item_of(runtime, value, key);
  if (found.is_missing() && key.is_string()) found = attribute_of(runtime, value, text_of(key));
  if (!found.is_missing()) return found;
  if (key.is_string()) {
    return runtime.undefined(fmt::format("'{}' has no attribute '{}'", object_name(value), text_of(key)));
  }
  Text shown(runtime);
  append_repr(shown, key);
  return runtime.undefined(fmt::format("{} has no element {}", object_name(value), shown.take()));
}

}  // namespace cohort::jinja
