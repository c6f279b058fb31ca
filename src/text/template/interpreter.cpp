// Statements, variables and loops.
#include "text/template/interpreter.h"

#include <nlohmann/json.hpp>

#include "text/template/operations.h"

namespace cohort::jinja {

std::string Interpreter::run() {
  Text out(runtime_, program_.limits.output_bytes);
  Ref<Activation> root = activate(program_.function, {});
  enter(program_.scope, *root);
  execute(program_.body, *root, out);
  return out.take();
}

Interpreter::Flow Interpreter::execute(const Body& body, Activation& activation, Text& out) {
  for (const Stmt& statement : body) {
    if (Flow flow = execute(statement, activation, out); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement, Activation& activation, Text& out) {
  RecursionGuard guard(runtime_);
  runtime_.spend();
  line_ = statement.line;
  switch (statement.type) {
    case StmtType::output:
      execute_output(statement, activation, out);
      return Flow::normal;
    case StmtType::loop:
      return execute_loop(statement, activation, out);
    case StmtType::condition:
      return execute_condition(statement, activation, out);
    case StmtType::macro:
      activation.at(statement.name_ref) = make_macro(statement, activation);
      return Flow::normal;
    case StmtType::call_block:
      execute_call_block(statement, activation, out);
      return Flow::normal;
    case StmtType::generation:
      execute_generation(statement, activation, out);
      return Flow::normal;
    case StmtType::filter_block:
      return execute_filter_block(statement, activation, out);
    case StmtType::with:
      return execute_with(statement, activation, out);
    case StmtType::set:
      execute_set(statement, activation);
      return Flow::normal;
    case StmtType::set_block:
      return execute_set_block(statement, activation);
    case StmtType::break_loop:
      return Flow::break_loop;
    case StmtType::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

void Interpreter::execute_output(const Stmt& statement, Activation& activation, Text& out) {
  for (const ExprPtr& expression : statement.expressions) {
    if (expression->type == ExprType::constant) {
      append_str(out, expression->constant);
    } else {
      append_str(out, evaluate(*expression, activation));
    }
  }
}

Interpreter::Flow Interpreter::execute_condition(const Stmt& statement, Activation& activation, Text& out) {
  if (truthy(evaluate(*statement.value, activation))) return execute(statement.body, activation, out);
  for (const Stmt& alternative : statement.alternatives) {
    runtime_.spend();
    if (truthy(evaluate(*alternative.value, activation))) return execute(alternative.body, activation, out);
  }
  return execute(statement.otherwise, activation, out);
}

void Interpreter::execute_set(const Stmt& statement, Activation& activation) {
  require_namespaces(*statement.target, activation);
  Value value = evaluate(*statement.value, activation);
  assign(*statement.target, std::move(value), activation);
}

/// The text of a block, through the filters that stand behind its tag.
Value Interpreter::apply_to_block(const ExprPtr& filter, Text& block, Activation& activation) {
  Value text = runtime_.string(block.take());
  if (!filter) return text;
  Value outer = std::exchange(block_, std::move(text));
  Value result = evaluate(*filter, activation);
  block_ = std::move(outer);
  return result;
}

Interpreter::Flow Interpreter::execute_set_block(const Stmt& statement, Activation& activation) {
  enter(statement.scope, activation);
  Text block(runtime_);
  if (Flow flow = execute(statement.body, activation, block); flow != Flow::normal) return flow;
  assign(*statement.target, apply_to_block(statement.value, block, activation), activation);
  leave(statement.scope, activation);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_filter_block(const Stmt& statement, Activation& activation, Text& out) {
  enter(statement.scope, activation);
  Text block(runtime_);
  if (Flow flow = execute(statement.body, activation, block); flow != Flow::normal) return flow;
  Value filtered = apply_to_block(statement.value, block, activation);
  if (!filtered.is_string()) refuse("a filter block must give a text, not {}", type_name(filtered));
  append_str(out, filtered);
  leave(statement.scope, activation);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_with(const Stmt& statement, Activation& activation, Text& out) {
  enter(statement.scope, activation);
  for (size_t i = 0; i < statement.parameters.size(); ++i) {
    assign(*statement.parameters[i], evaluate(*statement.expressions[i], activation), activation);
  }
  Flow flow = execute(statement.body, activation, out);
  leave(statement.scope, activation);
  return flow;
}

void Interpreter::execute_call_block(const Stmt& statement, Activation& activation, Text& out) {
  Value caller = make_macro(statement, activation);
  Value result = evaluate_call(*statement.value, activation, &caller);
  if (!result.is_string()) refuse("a call block must give a text, not {}", type_name(result));
  append_str(out, result);
}

void Interpreter::execute_generation(const Stmt& statement, Activation& activation, Text& out) {
  Ref<Activation> own = activate(statement.function, Ref<Activation>(&activation));
  enter(statement.scope, *own);
  execute(statement.body, *own, out);
}

Interpreter::Flow Interpreter::execute_loop(const Stmt& statement, Activation& activation, Text& out) {
  Value iterable = evaluate(*statement.value, activation);
  if (!statement.recursive) return run_loop(statement, activation, Ref<Activation>(&activation), iterable, 0, out);
  append_str(out, run_recursive(statement, Ref<Activation>(&activation), iterable, 0));
  return Flow::normal;
}

Value Interpreter::run_recursive(const Stmt& statement, const Ref<Activation>& definition, const Value& iterable,
                                 Int depth0) {
  RecursionGuard guard(runtime_);
  Ref<Activation> own = activate(statement.function, definition);
  Text out(runtime_);
  run_loop(statement, *own, definition, iterable, depth0, out);
  return runtime_.string(out.take());
}

Interpreter::Flow Interpreter::run_loop(const Stmt& statement, Activation& activation,
                                        const Ref<Activation>& definition, const Value& iterable, Int depth0,
                                        Text& out) {
  // What loop.changed remembers may contain the loop itself; it is dropped however the loop ends.
  struct LoopEnd {
    Ref<LoopObject> loop;
    ~LoopEnd() {
      if (!loop) return;
      loop->last_changed.reset();
      loop->ended = true;
    }
  } end;
  line_ = statement.line;
  Value source = statement.test ? filtered(statement, definition, iterable) : iterable;
  Ref<IteratorObject> iterator = iterate(runtime_, source);
  if (statement.uses_loop) {
    end.loop = runtime_.make<LoopObject>(0, source.depth() + 1);
    end.loop->iterable = source;
    end.loop->iterator = iterator;
    end.loop->depth0 = depth0;
    if (statement.recursive) {
      keep(definition);
      end.loop->statement = &statement;
      end.loop->definition = definition;
    }
  }
  bool completed = false;  // whether the body ran to its end at least once; else the else branch runs, as in Jinja
  for (Value item; end.loop ? end.loop->advance(runtime_, item) : iterator->next(runtime_, item);) {
    runtime_.spend();
    assign(*statement.target, item, activation);
    if (end.loop) activation.slots[statement.loop_slot] = Value(Kind::loop, end.loop);
    enter(statement.scope, activation);
    Flow flow = execute(statement.body, activation, out);
    if (flow == Flow::break_loop) break;
    if (flow == Flow::normal) completed = true;
  }
  leave(statement.scope, activation);
  if (completed || statement.otherwise.empty()) return Flow::normal;
  enter(statement.otherwise_scope, activation);
  Flow flow = execute(statement.otherwise, activation, out);
  leave(statement.otherwise_scope, activation);
  return flow;
}

/// The items of `iterable` that pass the filter of a loop, tested as the loop reaches them.
Value Interpreter::filtered(const Stmt& statement, Ref<Activation> definition, const Value& iterable) {
  keep(definition);
  Ref<IteratorObject> source = iterate(runtime_, iterable);
  Ref<Activation> own = activate(statement.test_function, std::move(definition));
  return runtime_.iterator(source->depth,
                           [this, &statement, source, own, entered = false](Runtime& rt, Value& value) mutable {
                             RecursionGuard guard(rt);
                             if (!std::exchange(entered, true)) enter(statement.test_scope, *own);
                             for (Value item; source->next(rt, item);) {
                               assign(*statement.test_target, item, *own);
                               if (!truthy(evaluate(*statement.test, *own))) continue;
                               value = rebuilt(*statement.test_target, *own);
                               return true;
                             }
                             return false;
                           });
}

/// The value that the variables of a target hold: an unpacked item becomes a tuple.
Value Interpreter::rebuilt(const Expr& target, Activation& activation) {
  if (target.type != ExprType::tuple) return activation.at(target.ref);
  std::vector<Value> items;
  for (const ExprPtr& child : target.children) items.push_back(rebuilt(*child, activation));
  return runtime_.tuple(std::move(items));
}

void Interpreter::enter(const Scope& scope, Activation& activation) {
  runtime_.spend(scope.loads.size());
  for (const SlotLoad& load : scope.loads) {
    Value& slot = activation.slots[load.slot];
    switch (load.action) {
      case SlotLoad::Action::parameter:
        break;
      case SlotLoad::Action::resolve:
        slot = lookup(load.name);
        break;
      case SlotLoad::Action::alias:
        slot = activation.at(load.source);
        break;
      case SlotLoad::Action::undefined:
        slot = Value();
        break;
    }
  }
}

void Interpreter::leave(const Scope& scope, Activation& activation) {
  for (const SlotLoad& load : scope.loads) activation.slots[load.slot] = Value();
}

Value Interpreter::lookup(const std::string& name) {
  if (auto found = resolved_.find(name); found != resolved_.end()) return found->second;
  Value value;
  if (auto member = context_.find(name); member != context_.end()) {
    value = from_json(runtime_, *member);
  } else if (const Native* native = find_global(name)) {
    auto function = runtime_.make<FunctionObject>(0, 0);
    function->native = native;
    value = Value(Kind::function, std::move(function));
  }
  return resolved_.emplace(name, std::move(value)).first->second;
}

void Interpreter::require_namespaces(const Expr& target, Activation& activation) {
  if (target.type == ExprType::namespace_attribute && !activation.at(target.ref).is(Kind::name_space)) {
    refuse("cannot set the attribute '{}' of '{}', which is no namespace", target.attribute, target.name);
  }
  for (const ExprPtr& child : target.children) require_namespaces(*child, activation);
}

void Interpreter::assign(const Expr& target, Value value, Activation& activation) {
  if (target.type == ExprType::name) {
    activation.at(target.ref) = std::move(value);
    return;
  }
  if (target.type == ExprType::namespace_attribute) {
    require_namespaces(target, activation);
    if (target.attribute[0] == '_')
      refuse("the attribute '{}' of a namespace may not start with '_'", target.attribute);
    auto& object = activation.at(target.ref).as<NamespaceObject>();
    runtime_.spend(object.attributes.size() / 8);
    object.set(target.attribute, std::move(value));
    return;
  }
  auto iterator = iterate(runtime_, value);
  std::vector<Value> items;
  for (Value item; items.size() <= target.children.size() && iterator->next(runtime_, item);) items.push_back(item);
  if (items.size() > target.children.size()) refuse("too many values to unpack (expected {})", target.children.size());
  if (items.size() < target.children.size()) {
    refuse("not enough values to unpack (expected {}, got {})", target.children.size(), items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], std::move(items[i]), activation);
}

Ref<Activation> Interpreter::activate(const Function& function, Ref<Activation> outer) {
  runtime_.spend(1 + function.slots / 8);
  auto activation = runtime_.make<Activation>(function.slots * sizeof(Value), 0);
  activation->outer = std::move(outer);
  activation->slots.resize(function.slots);
  return activation;
}

/// Marks an activation that a macro or an iterator holds on to.
void Interpreter::keep(Ref<Activation> activation) {
  if (std::exchange(activation->kept, true)) return;
  runtime_.keep(Ref<MutableObject>(std::move(activation)));
}

}  // namespace cohort::jinja
