// Jinja's rules of scope, which are decided before a template runs: every scope (template, loop body, macro, block)
// knows the names it reads and sets. A name that is read and nowhere set comes from the context when its scope is
// entered; a name that an inner scope sets starts as a copy of the outer variable and is forgotten at the end. Scopes
// of one function share its activation; a variable is known by the depth of its scope and its name, as the names in
// Jinja's generated code are.
#include <algorithm>
#include <optional>
#include <set>

#include "text/template/ast.h"
#include "text/template/callable.h"
#include "text/template/scope.h"

namespace cohort::jinja {
namespace {

/// Calls visit(expression) for `expression` and all below it, in the order of the source.
template <class Visit>
void walk(const ExprPtr& expression, Visit&& visit) {
  if (!expression) return;
  visit(*expression);
  for (const ExprPtr& child : expression->children) walk(child, visit);
  walk(expression->spread_list, visit);
  walk(expression->spread_dict, visit);
}

/// The same for all expressions of statements and their bodies.
template <class Visit>
void walk(const Body& body, Visit&& visit) {
  for (const Stmt& s : body) {
    walk(s.target, visit);
    walk(s.value, visit);
    for (const ExprPtr& parameter : s.parameters) walk(parameter, visit);
    for (const ExprPtr& expression : s.expressions) walk(expression, visit);
    walk(s.body, visit);
    walk(s.alternatives, visit);
    walk(s.otherwise, visit);
    walk(s.test, visit);
  }
}

/// Which of `names` the body reads before it sets them.
std::set<std::string> find_undeclared(const Body& body, std::set<std::string> names) {
  std::set<std::string> undeclared;
  walk(body, [&](const Expr& expression) {
    if (expression.type != ExprType::name) return;
    if (expression.access != Access::load) {
      names.erase(expression.name);
    } else if (names.count(expression.name) != 0) {
      undeclared.insert(expression.name);
    }
  });
  return undeclared;
}

/// The target of a loop again, for the variables of its filter.
ExprPtr copy_target(const Expr& target) {
  auto copy = std::make_unique<Expr>();
  copy->type = target.type;
  copy->access = target.access;
  copy->line = target.line;
  copy->name = target.name;
  for (const ExprPtr& child : target.children) copy->children.push_back(copy_target(*child));
  return copy;
}

[[noreturn]] void fail(int line, std::string message, ErrorCode code = ErrorCode::corrupt) {
  throw ParseFailure{code, line, std::move(message)};
}

class Resolver {
 public:
  void resolve_program(Program& program) {
    FunctionScope function;
    Symbols symbols(function, nullptr);
    analyze(program.body, symbols);
    assign(program.body, symbols, {});
    program.scope = symbols.scope();
    program.function.slots = static_cast<uint32_t>(function.slots.size());
  }

 private:
  /// Where a statement stands.
  struct Place {
    bool in_loop = false;  // break and continue have a loop of this function
    bool soft = false;     // in a branch: unknown filters fail only when they are reached
  };

  // First pass over a scope: what it reads and sets, without looking into inner scopes.

  static void analyze(const ExprPtr& expression, Symbols& symbols) {
    walk(expression, [&](const Expr& e) {
      if (e.type == ExprType::namespace_attribute) symbols.load(e.name);
      if (e.type != ExprType::name) return;
      if (e.access == Access::load) symbols.load(e.name);
      if (e.access == Access::store) symbols.store(e.name);
      if (e.access == Access::parameter) symbols.declare_parameter(e.name);
    });
  }

  static void analyze(const Body& body, Symbols& symbols) {
    for (const Stmt& s : body) analyze(s, symbols);
  }

  static void analyze(const Stmt& s, Symbols& symbols) {
    switch (s.type) {
      case StmtType::output:
      case StmtType::with:
        for (const ExprPtr& expression : s.expressions) analyze(expression, symbols);
        break;
      case StmtType::loop:
      case StmtType::call_block:
      case StmtType::filter_block:
        analyze(s.value, symbols);
        break;
      case StmtType::condition: {
        analyze(s.value, symbols);
        std::vector<Symbols> branches;
        branches.push_back(symbols.branch());
        analyze(s.body, branches.back());
        branches.push_back(symbols.branch());
        analyze(s.alternatives, branches.back());
        branches.push_back(symbols.branch());
        analyze(s.otherwise, branches.back());
        symbols.merge(branches);
        break;
      }
      case StmtType::macro:
        symbols.store(s.name);
        break;
      case StmtType::set:
        analyze(s.value, symbols);
        analyze(s.target, symbols);
        break;
      case StmtType::set_block:
        analyze(s.target, symbols);
        break;
      case StmtType::generation:
      case StmtType::break_loop:
      case StmtType::continue_loop:
        break;
    }
  }

  static void analyze_parameters(const ExprPtr& target, Symbols& symbols) {
    walk(target, [&](const Expr& e) {
      if (e.type == ExprType::name) symbols.declare_parameter(e.name);
    });
  }

  // Second pass: every name gets its slot, and inner scopes are analysed in turn.

  static void assign(const ExprPtr& expression, const Symbols& symbols, Place place) {
    if (!expression) return;
    Expr& e = *expression;
    if (e.type == ExprType::name || e.type == ExprType::namespace_attribute) {
      std::optional<Variable> variable = symbols.find(e.name);
      if (!variable) fail(e.line, "the variable '" + e.name + "' cannot be used here");
      e.ref = symbols.reference(*variable);
    }
    bool called = e.type == ExprType::filter || e.type == ExprType::test;
    if (called && e.native == nullptr && !place.soft) {
      std::string kind = e.type == ExprType::filter ? "filter" : "test";
      if (kind == "filter" && is_unsupported_filter(e.name)) {
        fail(e.line, "the filter '" + e.name + "' is not supported in chat templates", ErrorCode::unsupported);
      }
      fail(e.line, "no " + kind + " named '" + e.name + "'");
    }
    if (e.type == ExprType::conditional) place.soft = true;
    for (const ExprPtr& child : e.children) assign(child, symbols, place);
    assign(e.spread_list, symbols, place);
    assign(e.spread_dict, symbols, place);
  }

  void assign(Body& body, const Symbols& symbols, Place place) {
    for (Stmt& s : body) assign(s, symbols, place);
  }

  void assign(Stmt& s, const Symbols& symbols, Place place) {
    Place inner = place;
    inner.soft = false;
    switch (s.type) {
      case StmtType::output:
        for (const ExprPtr& expression : s.expressions) assign(expression, symbols, place);
        break;
      case StmtType::loop:
        assign_loop(s, symbols, place);
        break;
      case StmtType::condition:
        place.soft = true;
        assign(s.value, symbols, place);
        assign(s.body, symbols, place);
        assign(s.alternatives, symbols, place);
        assign(s.otherwise, symbols, place);
        break;
      case StmtType::macro:
        assign_macro(s, symbols);
        s.name_ref = symbols.reference(symbols.find(s.name).value());
        break;
      case StmtType::call_block:
        assign_macro(s, symbols);
        assign(s.value, symbols, place);
        break;
      case StmtType::generation:
        assign_macro(s, symbols);
        break;
      case StmtType::filter_block:
      case StmtType::set_block: {
        Symbols block(symbols.function(), &symbols);
        analyze(s.body, block);
        analyze(s.value, block);
        assign(s.body, block, inner);
        assign(s.value, block, inner);
        assign(s.target, symbols, place);
        s.scope = block.scope();
        break;
      }
      case StmtType::with: {
        Symbols block(symbols.function(), &symbols);
        for (const ExprPtr& target : s.parameters) analyze_parameters(target, block);
        analyze(s.body, block);
        for (const ExprPtr& target : s.parameters) assign(target, block, inner);
        for (const ExprPtr& value : s.expressions) assign(value, symbols, place);
        assign(s.body, block, inner);
        s.scope = block.scope();
        break;
      }
      case StmtType::set:
        assign(s.target, symbols, place);
        assign(s.value, symbols, place);
        break;
      case StmtType::break_loop:
      case StmtType::continue_loop:
        if (!place.in_loop) fail(s.line, "'break' and 'continue' belong into a loop");
        break;
    }
  }

  void assign_loop(Stmt& s, const Symbols& symbols, Place place) {
    s.uses_loop = s.recursive || !find_undeclared(s.body, {"loop"}).empty();
    auto refuse_loop_target = [&](const Expr& e) {
      if (e.type == ExprType::name && e.access == Access::store && e.name == "loop") {
        fail(e.line, "the variable 'loop' cannot be set inside of a loop");
      }
    };
    walk(s.target, refuse_loop_target);
    walk(s.body, refuse_loop_target);
    walk(s.otherwise, refuse_loop_target);

    assign(s.value, symbols, place);
    if (s.test) {
      FunctionScope function{&symbols.function(), {}};
      Symbols test(function, &symbols);
      analyze_parameters(s.target, test);
      analyze(s.test, test);
      s.test_target = copy_target(*s.target);
      assign(s.test_target, test, {});
      assign(s.test, test, {});
      s.test_scope = test.scope();
      s.test_function.slots = static_cast<uint32_t>(function.slots.size());
    }

    FunctionScope own{&symbols.function(), {}};
    FunctionScope& function = s.recursive ? own : symbols.function();
    Symbols body(function, &symbols);
    if (s.uses_loop) {
      body.declare_parameter("loop");
      s.loop_slot = body.find("loop")->slot;
    }
    analyze_parameters(s.target, body);
    analyze(s.body, body);
    assign(s.target, body, {});
    assign(s.body, body, {.in_loop = true, .soft = false});
    s.scope = body.scope();

    Symbols otherwise(function, &symbols);
    analyze(s.otherwise, otherwise);
    assign(s.otherwise, otherwise, {.in_loop = place.in_loop && !s.recursive, .soft = false});
    s.otherwise_scope = otherwise.scope();
    if (s.recursive) s.function.slots = static_cast<uint32_t>(own.slots.size());
  }

  void assign_macro(Stmt& s, const Symbols& symbols) {
    FunctionScope function{&symbols.function(), {}};
    Symbols frame(function, &symbols);
    for (const ExprPtr& parameter : s.parameters) frame.declare_parameter(parameter->name);
    for (const ExprPtr& value : s.expressions) analyze(value, frame);
    analyze(s.body, frame);
    std::set<std::string> undeclared = find_undeclared(s.body, {"caller", "kwargs", "varargs"});
    size_t without_default = s.parameters.size() - s.expressions.size();
    auto special = [&](const std::string& name, bool& takes, uint32_t& slot) {
      if (undeclared.count(name) == 0) return;
      for (size_t i = 0; i < s.parameters.size(); ++i) {
        if (s.parameters[i]->name != name) continue;
        if (name == "caller" && i < without_default) fail(s.line, "the parameter 'caller' of a macro needs a default");
        return;
      }
      frame.declare_parameter(name);
      takes = true;
      slot = frame.find(name)->slot;
    };
    special("caller", s.takes_caller, s.caller_slot);
    special("kwargs", s.takes_kwargs, s.kwargs_slot);
    special("varargs", s.takes_varargs, s.varargs_slot);
    for (const ExprPtr& parameter : s.parameters) assign(parameter, frame, {});
    for (const ExprPtr& value : s.expressions) assign(value, frame, {});
    assign(s.body, frame, {});
    s.scope = frame.scope();
    s.function.slots = static_cast<uint32_t>(function.slots.size());
  }
};

}  // namespace

void resolve(Program& program) {
  Resolver().resolve_program(program);
}

}  // namespace cohort::jinja
