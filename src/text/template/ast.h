// The syntax tree of a template, and where its variables live.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/template/operations.h"
#include "text/template/template.h"
#include "text/template/value.h"

namespace cohort::jinja {

struct Native;

/// A variable: `slot` of the activation `hops` functions outwards.
struct SlotRef {
  uint32_t hops = 0, slot = 0;
};

enum class ExprType : uint8_t {
  constant,             // constant
  name,                 // name, access, ref
  namespace_attribute,  // target of set: name, attribute, ref
  tuple,                // children
  list,                 // children
  dict,                 // children: key, value, key, value, ...
  negate,               // children: operand
  plus,                 // children: operand
  logical_not,          // children: operand
  arithmetic,           // children: left, right; arithmetic
  logical_and,          // children: left, right
  logical_or,           // children: left, right
  compare,              // children: first, others; comparisons, one for each of the others
  concat,               // children
  attribute,            // children: value; constant: the name
  item,                 // children: value, key
  slice,                // children: value, start, stop, step (null where absent)
  call,                 // children: callee, arguments, values of keywords; keywords, spread_list, spread_dict
  filter,               // children: value (null in a filter block), then as call; name, native
  test,                 // as filter
  conditional,          // children: condition, value, alternative (null where absent)
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// What a name in the source does.
enum class Access : uint8_t { load, store, parameter };

struct Expr {
  ExprType type = ExprType::constant;
  Access access = Access::load;
  Arithmetic operation = Arithmetic::add;
  int line = 0;
  uint32_t depth = 1;  // of the tree below
  std::string name, attribute;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Comparison> comparisons;
  std::vector<std::string> keywords;  // names of the last keywords.size() children
  ExprPtr spread_list, spread_dict;   // *list, **dict
  const Native* native = nullptr;     // filter, test; null: unknown, fails when it is reached
  SlotRef ref;
};

/// What happens to a variable when its scope is entered.
struct SlotLoad {
  enum class Action : uint8_t { parameter, resolve, alias, undefined } action = Action::undefined;
  uint32_t slot = 0;  // of the current function
  SlotRef source;     // alias: the outer variable whose value it starts with
  std::string name;   // resolve: looked up in the context
};

/// A scope of variables. Leaving it forgets their values.
struct Scope {
  std::vector<SlotLoad> loads;
};

/// Code with variables of its own: the template, a macro, a call block, the filter of a loop, a recursive loop.
struct Function {
  uint32_t slots = 0;
};

enum class StmtType : uint8_t {
  output,     // expressions
  loop,       // for
  condition,  // if
  macro,
  call_block,
  generation,  // the generation tag: a call block without a callee
  filter_block,
  with,
  set,
  set_block,
  break_loop,
  continue_loop,
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Stmt {
  StmtType type = StmtType::output;
  int line = 0;
  bool recursive = false;     // loop
  bool uses_loop = false;     // loop: the body reads the variable loop
  std::string name;           // macro
  ExprPtr target;             // loop, set, set_block
  ExprPtr value;              // loop: iterable; condition: test; set; call_block: call; filter_block, set_block: filter
  ExprPtr test, test_target;  // loop: its filter, and the target with the variables of the filter
  std::vector<ExprPtr> expressions;  // output; with: values; macro, call_block: defaults of the last parameters
  std::vector<ExprPtr> parameters;   // macro, call_block; with: targets
  Body body, otherwise;              // otherwise: else
  std::vector<Stmt> alternatives;    // condition: elif

  // Set by the resolver.
  Scope scope, otherwise_scope, test_scope;
  Function function, test_function;
  SlotRef name_ref;        // macro
  uint32_t loop_slot = 0;  // loop with uses_loop
  // macro, call_block: special variables that the body reads without setting them
  bool takes_caller = false, takes_kwargs = false, takes_varargs = false;
  uint32_t caller_slot = 0, kwargs_slot = 0, varargs_slot = 0;
};

struct Program {
  TemplateLimits limits;
  Body body;
  Scope scope;
  Function function;
};

/// Parses `source`. Throws a ParseFailure.
struct ParseFailure {
  ErrorCode code;
  int line;
  std::string message;
};
void parse(std::string_view source, Program& program);
/// Gives every variable of a parsed program its slot, by Jinja's rules of scope. Throws a ParseFailure.
void resolve(Program& program);

}  // namespace cohort::jinja
