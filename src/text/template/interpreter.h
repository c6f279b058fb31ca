// Runs a program: walks its tree, statement by statement, over one context.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "text/template/ast.h"
#include "text/template/callable.h"
#include "text/template/loop.h"
#include "text/template/runtime.h"

namespace cohort::jinja {

class Interpreter {
 public:
  /// `context` must be an object; both outlive the interpreter.
  Interpreter(const Program& program, Runtime& runtime, const nlohmann::ordered_json& context)
      : program_(program), runtime_(runtime), context_(context) {}
  /// The rendered text. Throws a Failure; line() then says where.
  std::string run();
  int line() const { return line_; }

 private:
  /// What a statement asks of the loop around it.
  enum class Flow : uint8_t { normal, break_loop, continue_loop };

  // Statements.
  Flow execute(const Body& body, Activation& activation, Text& out);
  Flow execute(const Stmt& statement, Activation& activation, Text& out);
  void execute_output(const Stmt& statement, Activation& activation, Text& out);
  Flow execute_condition(const Stmt& statement, Activation& activation, Text& out);
  void execute_set(const Stmt& statement, Activation& activation);
  Flow execute_set_block(const Stmt& statement, Activation& activation);
  Flow execute_filter_block(const Stmt& statement, Activation& activation, Text& out);
  Flow execute_with(const Stmt& statement, Activation& activation, Text& out);
  void execute_call_block(const Stmt& statement, Activation& activation, Text& out);
  void execute_generation(const Stmt& statement, Activation& activation, Text& out);
  Value apply_to_block(const ExprPtr& filter, Text& block, Activation& activation);

  // Loops.
  Flow execute_loop(const Stmt& statement, Activation& activation, Text& out);
  Flow run_loop(const Stmt& statement, Activation& activation, const Ref<Activation>& definition, const Value& iterable,
                Int depth0, Text& out);
  Value run_recursive(const Stmt& statement, const Ref<Activation>& definition, const Value& iterable, Int depth0);
  Value filtered(const Stmt& statement, Ref<Activation> definition, const Value& iterable);
  Value rebuilt(const Expr& target, Activation& activation);

  // Variables.
  void enter(const Scope& scope, Activation& activation);
  static void leave(const Scope& scope, Activation& activation);
  Value lookup(const std::string& name);
  void assign(const Expr& target, Value value, Activation& activation);
  void require_namespaces(const Expr& target, Activation& activation);
  Ref<Activation> activate(const Function& function, Ref<Activation> outer);
  void keep(Ref<Activation> activation);

  // Expressions.
  Value evaluate(const Expr& expression, Activation& activation);
  Value evaluate_sequence(const Expr& expression, Activation& activation);
  Value evaluate_dict(const Expr& expression, Activation& activation);
  Value evaluate_unary(const Expr& expression, Activation& activation);
  Value evaluate_arithmetic(const Expr& expression, Activation& activation);
  Value evaluate_logical(const Expr& expression, Activation& activation);
  Value evaluate_compare(const Expr& expression, Activation& activation);
  Value evaluate_concat(const Expr& expression, Activation& activation);
  Value evaluate_attribute(const Expr& expression, Activation& activation);
  Value evaluate_item(const Expr& expression, Activation& activation);
  Value evaluate_slice(const Expr& expression, Activation& activation);
  Value evaluate_conditional(const Expr& expression, Activation& activation);
  Value evaluate_filter_or_test(const Expr& expression, Activation& activation);
  Value evaluate_call(const Expr& expression, Activation& activation, const Value* caller = nullptr);
  Arguments evaluate_arguments(const Expr& expression, Activation& activation);

  // Calls.
  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const MacroObject& macro, Arguments& arguments);
  Value make_macro(const Stmt& statement, Activation& activation);

  const Program& program_;
  Runtime& runtime_;
  const nlohmann::ordered_json& context_;
  std::map<std::string, Value, std::less<>> resolved_;  // variables of the context, once they are values
  Value block_;  // what a filter without a value is applied to: the text of a filter or set block
  int line_ = 1;
};

/// The value of parsed JSON. Refuses texts that are not UTF-8.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json);

}  // namespace cohort::jinja
