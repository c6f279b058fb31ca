// Expressions and calls.
#include <algorithm>

#include "text/template/interpreter.h"
#include "text/template/operations.h"

namespace cohort::jinja {

Value Interpreter::evaluate(const Expr& expression, Activation& activation) {
  RecursionGuard guard(runtime_);
  runtime_.spend();
  switch (expression.type) {
    case ExprType::constant:
      return expression.constant;
    case ExprType::name:
    case ExprType::namespace_attribute: {
      const Value& value = activation.at(expression.ref);
      return value.is_missing() ? runtime_.undefined_name(expression.name) : value;
    }
    case ExprType::tuple:
    case ExprType::list:
      return evaluate_sequence(expression, activation);
    case ExprType::dict:
      return evaluate_dict(expression, activation);
    case ExprType::negate:
    case ExprType::plus:
    case ExprType::logical_not:
      return evaluate_unary(expression, activation);
    case ExprType::arithmetic:
      return evaluate_arithmetic(expression, activation);
    case ExprType::logical_and:
    case ExprType::logical_or:
      return evaluate_logical(expression, activation);
    case ExprType::compare:
      return evaluate_compare(expression, activation);
    case ExprType::concat:
      return evaluate_concat(expression, activation);
    case ExprType::attribute:
      return evaluate_attribute(expression, activation);
    case ExprType::item:
      return evaluate_item(expression, activation);
    case ExprType::slice:
      return evaluate_slice(expression, activation);
    case ExprType::call:
      return evaluate_call(expression, activation);
    case ExprType::filter:
    case ExprType::test:
      return evaluate_filter_or_test(expression, activation);
    case ExprType::conditional:
      return evaluate_conditional(expression, activation);
  }
  return Value::none();
}

Value Interpreter::evaluate_sequence(const Expr& expression, Activation& activation) {
  ListBuilder items(runtime_);
  for (const ExprPtr& child : expression.children) items.push(evaluate(*child, activation));
  return expression.type == ExprType::list ? runtime_.list(items.take()) : runtime_.tuple(items.take());
}

Value Interpreter::evaluate_dict(const Expr& expression, Activation& activation) {
  Ref<DictObject> dict = runtime_.dict();
  for (size_t i = 0; i < expression.children.size(); i += 2) {
    Value key = evaluate(*expression.children[i], activation);
    Value value = evaluate(*expression.children[i + 1], activation);
    line_ = expression.line;
    dict->set(runtime_, std::move(key), std::move(value));
  }
  return runtime_.dict(std::move(dict));
}

Value Interpreter::evaluate_unary(const Expr& expression, Activation& activation) {
  Value operand = evaluate(*expression.children[0], activation);
  line_ = expression.line;
  if (expression.type == ExprType::logical_not) return Value::boolean(!truthy(operand));
  return expression.type == ExprType::negate ? negate(operand) : plus(operand);
}

Value Interpreter::evaluate_arithmetic(const Expr& expression, Activation& activation) {
  Value left = evaluate(*expression.children[0], activation);
  Value right = evaluate(*expression.children[1], activation);
  line_ = expression.line;
  return arithmetic(runtime_, expression.operation, left, right);
}

Value Interpreter::evaluate_logical(const Expr& expression, Activation& activation) {
  Value left = evaluate(*expression.children[0], activation);
  if (truthy(left) == (expression.type == ExprType::logical_or)) return left;
  return evaluate(*expression.children[1], activation);
}

Value Interpreter::evaluate_compare(const Expr& expression, Activation& activation) {
  Value left = evaluate(*expression.children[0], activation);
  for (size_t i = 1; i < expression.children.size(); ++i) {
    Value right = evaluate(*expression.children[i], activation);
    line_ = expression.line;
    if (!compare(runtime_, expression.comparisons[i - 1], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concat(const Expr& expression, Activation& activation) {
  Text text(runtime_);
  for (const ExprPtr& child : expression.children) append_str(text, evaluate(*child, activation));
  return runtime_.string(text.take());
}

Value Interpreter::evaluate_attribute(const Expr& expression, Activation& activation) {
  Value value = evaluate(*expression.children[0], activation);
  line_ = expression.line;
  return get_attribute(runtime_, value, expression.constant);
}

Value Interpreter::evaluate_item(const Expr& expression, Activation& activation) {
  Value value = evaluate(*expression.children[0], activation);
  Value key = evaluate(*expression.children[1], activation);
  line_ = expression.line;
  return get_item(runtime_, value, key);
}

Value Interpreter::evaluate_slice(const Expr& expression, Activation& activation) {
  Value value = evaluate(*expression.children[0], activation);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expression.children[i + 1];
    bounds[i] = bound ? evaluate(*bound, activation) : Value::none();
  }
  line_ = expression.line;
  return slice(runtime_, value, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::evaluate_conditional(const Expr& expression, Activation& activation) {
  if (truthy(evaluate(*expression.children[0], activation))) return evaluate(*expression.children[1], activation);
  if (expression.children[2]) return evaluate(*expression.children[2], activation);
  return runtime_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined", expression.line));
}

Value Interpreter::evaluate_filter_or_test(const Expr& expression, Activation& activation) {
  bool is_filter = expression.type == ExprType::filter;
  Value value = expression.children[0] ? evaluate(*expression.children[0], activation) : block_;
  Arguments arguments = evaluate_arguments(expression, activation);
  line_ = expression.line;
  if (expression.native == nullptr) refuse("no {} named '{}'", is_filter ? "filter" : "test", expression.name);
  return invoke(runtime_, *expression.native, value, arguments);
}

Arguments Interpreter::evaluate_arguments(const Expr& expression, Activation& activation) {
  Arguments arguments;
  size_t positional = expression.children.size() - expression.keywords.size();
  for (size_t i = 1; i < positional; ++i) arguments.positional.push_back(evaluate(*expression.children[i], activation));
  for (size_t i = 0; i < expression.keywords.size(); ++i) {
    arguments.keywords.emplace_back(expression.keywords[i], evaluate(*expression.children[positional + i], activation));
  }
  if (expression.spread_list) {
    std::vector<Value> more = collect(runtime_, evaluate(*expression.spread_list, activation));
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (expression.spread_dict) {
    Value more = evaluate(*expression.spread_dict, activation);
    line_ = expression.line;
    if (!more.is(Kind::dict)) refuse("the argument after ** must be a dict, not {}", type_name(more));
    for (const auto& [key, value] : more.as<DictObject>().entries) {
      const std::string& name = text_argument(key, "a name after **");
      runtime_.spend(1 + arguments.keywords.size() / 8);
      if (arguments.keyword(name) != nullptr) refuse("got two values for the argument '{}'", name);
      arguments.keywords.emplace_back(name, value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expression, Activation& activation, const Value* caller) {
  Value callee = evaluate(*expression.children[0], activation);
  Arguments arguments = evaluate_arguments(expression, activation);
  line_ = expression.line;
  if (caller != nullptr) {
    if (arguments.keyword("caller") != nullptr) refuse("a call block already sets the argument 'caller'");
    arguments.keywords.emplace_back("caller", *caller);
  }
  Value result = call(callee, arguments);
  line_ = expression.line;
  return result;
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::undefined:
      refuse("{}", callee.as<UndefinedObject>().message);
    case Kind::function: {
      const auto& function = callee.as<FunctionObject>();
      return invoke(runtime_, *function.native, function.self, arguments);
    }
    case Kind::macro:
      return call_macro(callee.as<MacroObject>(), arguments);
    case Kind::joiner: {
      if (!arguments.positional.empty() || !arguments.keywords.empty()) refuse("a joiner takes no arguments");
      auto& joiner = callee.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : runtime_.string("");
    }
    case Kind::loop: {
      auto& loop = callee.as<LoopObject>();
      if (loop.statement == nullptr) refuse("only the variable of a recursive loop can be called");
      if (arguments.positional.size() != 1 || !arguments.keywords.empty()) refuse("loop() takes one argument");
      return run_recursive(*loop.statement, loop.definition, arguments[0], loop.depth0 + 1);
    }
    default:
      refuse("'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::make_macro(const Stmt& statement, Activation& activation) {
  keep(Ref<Activation>(&activation));
  auto macro = runtime_.make<MacroObject>(0, 0);
  macro->statement = &statement;
  macro->definition = Ref<Activation>(&activation);
  return {Kind::macro, std::move(macro)};
}

Value Interpreter::call_macro(const MacroObject& macro, Arguments& arguments) {
  RecursionGuard guard(runtime_);
  const Stmt& s = *macro.statement;
  Ref<Activation> own = activate(s.function, macro.definition);
  size_t count = s.parameters.size(), given = std::min(count, arguments.positional.size());
  auto take_keyword = [&](std::string_view name) {
    runtime_.spend(1 + arguments.keywords.size() / 8);
    auto found = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                              [&](const auto& keyword) { return keyword.first == name; });
    if (found == arguments.keywords.end()) return Value();
    Value value = std::move(found->second);
    arguments.keywords.erase(found);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    const Expr& parameter = *s.parameters[i];
    own->at(parameter.ref) = i < given ? arguments.positional[i] : take_keyword(parameter.name);
  }
  if (s.takes_caller) {
    Value caller = take_keyword("caller");
    own->slots[s.caller_slot] = caller.is_missing() ? runtime_.undefined("No caller defined") : caller;
  }
  if (s.takes_kwargs) {
    Ref<DictObject> rest = runtime_.dict();
    for (auto& [name, value] : arguments.keywords) rest->set(runtime_, runtime_.string(name), std::move(value));
    own->slots[s.kwargs_slot] = runtime_.dict(std::move(rest));
  } else if (!arguments.keywords.empty()) {
    refuse("macro '{}' takes no argument '{}'", s.name, arguments.keywords[0].first);
  }
  if (s.takes_varargs) {
    auto begin = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    own->slots[s.varargs_slot] = runtime_.tuple({begin, arguments.positional.end()});
  } else if (arguments.positional.size() > count) {
    refuse("macro '{}' takes at most {} arguments, {} were given", s.name, count, arguments.positional.size());
  }
  enter(s.scope, *own);
  size_t without_default = count - s.expressions.size();
  for (size_t i = 0; i < count; ++i) {
    const Expr& parameter = *s.parameters[i];
    if (!own->at(parameter.ref).is_missing()) continue;
    Value value = i < without_default
                      ? runtime_.undefined(fmt::format("parameter '{}' was not provided", parameter.name))
                      : evaluate(*s.expressions[i - without_default], *own);
    own->at(parameter.ref) = std::move(value);
  }
  Text out(runtime_);
  execute(s.body, *own, out);
  return runtime_.string(out.take());
}

}  // namespace cohort::jinja
