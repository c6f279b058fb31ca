#include <algorithm>

#include "text/template/parser.h"

namespace cohort::jinja {

void parse(std::string_view source, Program& program) {
  program.body = Parser(tokenize(source), program.limits).parse_template();
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail(fmt::format("expected '{}', got '{}'", symbol, describe(current())));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(fmt::format("expected '{}', got '{}'", name, describe(current())));
}

std::string Parser::expect_identifier() {
  if (!at(TokenType::name)) fail(fmt::format("expected a name, got '{}'", describe(current())));
  return take().text;
}

void Parser::expect(TokenType type, std::string_view what) {
  if (!at(type)) fail(fmt::format("expected {}, got '{}'", what, describe(current())));
  take();
}

void Parser::fail(std::string message, ErrorCode code) const {
  fail_at(current().line, std::move(message), code);
}

void Parser::fail_at(int line, std::string message, ErrorCode code) const {
  throw ParseFailure{code, line, std::move(message)};
}

void Parser::fail_depth() const {
  fail(fmt::format("the template nests deeper than the limit 'syntax_depth' of {}", limits_.syntax_depth),
       ErrorCode::capacity);
}

Stmt Parser::statement(StmtType type) const {
  Stmt statement;
  statement.type = type;
  statement.line = current().line;
  return statement;
}

Body Parser::parse_template() {
  return parse_body({});
}

Body Parser::parse_body(Names ends) {
  Nesting nesting(*this);
  Body body;
  auto output = [&]() -> Stmt& {
    if (body.empty() || body.back().type != StmtType::output) body.push_back(statement(StmtType::output));
    return body.back();
  };
  while (!at(TokenType::end)) {
    if (at(TokenType::data)) {
      Token data = take();
      output().expressions.push_back(text_constant(std::move(data.text), data.line));
    } else if (at(TokenType::variable_begin)) {
      take();
      Stmt& statement = output();
      statement.expressions.push_back(parse_tuple({}));
      expect(TokenType::variable_end, "'}}'");
    } else {
      expect(TokenType::block_begin, "a tag");
      if (at(TokenType::name) && std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
      body.push_back(parse_statement());
      expect(TokenType::block_end, "'%}'");
    }
  }
  if (ends.size() > 0) {
    fail(
        fmt::format("unexpected end of template: '{}' is missing to close '{}'", *(ends.end() - 1), open_tags_.back()));
  }
  return body;
}

Body Parser::parse_block(Names ends) {
  skip_symbol(":");  // allowed, as in Python
  expect(TokenType::block_end, "'%}'");
  return parse_body(ends);
}

Body Parser::parse_block_and_end(std::string_view end) {
  Body body = parse_block({end});
  take();
  return body;
}

Stmt Parser::parse_statement() {
  if (!at(TokenType::name)) fail(fmt::format("expected the name of a tag, got '{}'", describe(current())));
  std::string tag = current().text;
  open_tags_.push_back(tag);
  Stmt parsed;
  if (tag == "for") {
    parsed = parse_for();
  } else if (tag == "if") {
    parsed = parse_if();
  } else if (tag == "set") {
    parsed = parse_set();
  } else if (tag == "macro") {
    parsed = parse_macro();
  } else if (tag == "call") {
    parsed = parse_call_block();
  } else if (tag == "filter") {
    parsed = parse_filter_block();
  } else if (tag == "with") {
    parsed = parse_with();
  } else if (tag == "generation") {
    parsed = statement(StmtType::generation);
    take();
    parsed.body = parse_block_and_end("endgeneration");
  } else if (tag == "break" || tag == "continue") {
    parsed = statement(tag == "break" ? StmtType::break_loop : StmtType::continue_loop);
    take();
  } else if (tag == "print") {
    parsed = statement(StmtType::output);
    take();
    while (!at(TokenType::block_end)) {
      if (!parsed.expressions.empty()) expect_symbol(",");
      parsed.expressions.push_back(parse_expression());
    }
  } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "block" ||
             tag == "autoescape") {
    fail(fmt::format("the tag '{}' is not supported: a chat template stands alone and writes plain text", tag),
         ErrorCode::unsupported);
  } else {
    open_tags_.pop_back();
    fail(open_tags_.empty() ? fmt::format("unknown tag '{}'", tag)
                            : fmt::format("unknown tag '{}'; the innermost open tag is '{}'", tag, open_tags_.back()));
  }
  open_tags_.pop_back();
  return parsed;
}

Stmt Parser::parse_for() {
  Stmt loop = statement(StmtType::loop);
  take();
  loop.target = parse_target(false);
  mark_target(*loop.target, Access::store);
  expect_name("in");
  loop.value = parse_tuple({.conditional = false});
  if (skip_name("if")) loop.test = parse_expression();
  loop.recursive = skip_name("recursive");
  loop.body = parse_block({"else", "endfor"});
  if (take().text == "else") loop.otherwise = parse_block_and_end("endfor");
  return loop;
}

Stmt Parser::parse_if() {
  Stmt condition = statement(StmtType::condition);
  take();
  Stmt* branch = &condition;
  while (true) {
    branch->value = parse_tuple({.conditional = false});
    branch->body = parse_block({"elif", "else", "endif"});
    std::string tag = take().text;
    if (tag == "elif") {
      condition.alternatives.push_back(statement(StmtType::condition));
      branch = &condition.alternatives.back();
      continue;
    }
    if (tag == "else") condition.otherwise = parse_block_and_end("endif");
    return condition;
  }
}

Stmt Parser::parse_set() {
  Stmt set = statement(StmtType::set);
  take();
  set.target = parse_target(true);
  mark_target(*set.target, Access::store);
  if (skip_symbol("=")) {
    set.value = parse_tuple({});
    return set;
  }
  set.type = StmtType::set_block;
  set.value = parse_filter_chain(nullptr);
  set.body = parse_block_and_end("endset");
  return set;
}

Stmt Parser::parse_macro() {
  Stmt macro = statement(StmtType::macro);
  take();
  macro.name = parse_variable_name();
  parse_parameters(macro);
  macro.body = parse_block_and_end("endmacro");
  return macro;
}

Stmt Parser::parse_call_block() {
  Stmt call = statement(StmtType::call_block);
  take();
  if (at_symbol("(")) parse_parameters(call);
  call.value = parse_expression();
  if (call.value->type != ExprType::call) fail_at(call.line, "the tag 'call' needs the call of a macro");
  call.body = parse_block_and_end("endcall");
  return call;
}

Stmt Parser::parse_filter_block() {
  Stmt block = statement(StmtType::filter_block);
  take();
  block.value = parse_filter_chain(parse_filter(nullptr));
  block.body = parse_block_and_end("endfilter");
  return block;
}

Stmt Parser::parse_with() {
  Stmt with = statement(StmtType::with);
  take();
  while (!at(TokenType::block_end)) {
    if (!with.parameters.empty()) expect_symbol(",");
    with.parameters.push_back(parse_target(false));
    mark_target(*with.parameters.back(), Access::parameter);
    expect_symbol("=");
    with.expressions.push_back(parse_expression());
  }
  with.body = parse_block_and_end("endwith");
  return with;
}

void Parser::parse_parameters(Stmt& statement) {
  expect_symbol("(");
  while (!at_symbol(")")) {
    if (!statement.parameters.empty()) expect_symbol(",");
    ExprPtr parameter = make(ExprType::name, current().line);
    parameter->access = Access::parameter;
    parameter->name = parse_variable_name();
    for (const ExprPtr& other : statement.parameters) {
      if (other->name == parameter->name) fail(fmt::format("duplicate parameter '{}'", other->name));
    }
    statement.parameters.push_back(std::move(parameter));
    if (skip_symbol("=")) {
      statement.expressions.push_back(parse_expression());
    } else if (!statement.expressions.empty()) {
      fail("a parameter without a default follows one with a default");
    }
  }
  expect_symbol(")");
}

ExprPtr Parser::parse_target(bool with_namespace) {
  return parse_tuple({.only_primaries = true, .with_namespace = with_namespace});
}

/// A name that can be assigned to.
std::string Parser::parse_variable_name() {
  std::string name = expect_identifier();
  for (std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) fail(fmt::format("cannot assign to '{}'", name));
  }
  return name;
}

/// Turns what was parsed as an expression into the target of an assignment.
void Parser::mark_target(Expr& target, Access access) {
  if (target.type == ExprType::tuple) {
    for (ExprPtr& child : target.children) mark_target(*child, access);
  } else if (target.type == ExprType::name) {
    target.access = access;
  } else if (target.type != ExprType::namespace_attribute) {
    fail_at(target.line, "only names, attributes of a namespace, and tuples of them can be assigned to");
  }
}

}  // namespace cohort::jinja
