// What stands behind a value: attributes, items, slices, calls, filters and tests.
#include <algorithm>
#include <utility>

#include "text/template/callable.h"
#include "text/template/parser.h"

namespace cohort::jinja {

ExprPtr Parser::parse_postfix(ExprPtr expression) {
  while (true) {
    if (at_symbol(".") || at_symbol("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (at_symbol("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expression) {
  while (true) {
    if (at_symbol("|")) {
      expression = parse_filter_chain(std::move(expression));
    } else if (at_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (at_symbol("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr expression) {
  Token opening = take();
  if (opening.text == ".") {
    if (at(TokenType::name)) {
      ExprPtr attribute = make(ExprType::attribute, opening.line, std::move(expression));
      attribute->constant = text_constant(take().text, opening.line)->constant;
      return attribute;
    }
    if (!at(TokenType::integer))
      fail(fmt::format("expected a name or a number after '.', got '{}'", describe(current())));
    return make(ExprType::item, opening.line, std::move(expression), parse_number());
  }
  bool is_slice = false;
  std::vector<ExprPtr> keys;
  while (!at_symbol("]")) {
    if (!keys.empty()) expect_symbol(",");
    ExprPtr key = parse_subscript_part(expression, is_slice);
    if (is_slice) {
      if (!keys.empty() || !at_symbol("]")) fail("a slice cannot be one of several keys");
      take();
      return key;
    }
    keys.push_back(std::move(key));
  }
  take();
  if (keys.size() == 1) return make(ExprType::item, opening.line, std::move(expression), std::move(keys[0]));
  ExprPtr tuple = make(ExprType::tuple, opening.line);
  tuple->children = std::move(keys);
  return make(ExprType::item, opening.line, std::move(expression), finish(std::move(tuple)));
}

/// A key, or a whole slice of `value`, which then moves into the slice.
ExprPtr Parser::parse_subscript_part(ExprPtr& value, bool& is_slice) {
  int line = current().line;
  ExprPtr start = at_symbol(":") ? nullptr : parse_expression();
  if (!skip_symbol(":")) return start;
  is_slice = true;
  ExprPtr slice = make(ExprType::slice, line);
  auto bound = [&]() { return at_symbol(":") || at_symbol("]") || at_symbol(",") ? nullptr : parse_expression(); };
  slice->children.push_back(std::move(value));
  slice->children.push_back(std::move(start));
  slice->children.push_back(bound());
  slice->children.push_back(skip_symbol(":") ? bound() : nullptr);
  return finish(std::move(slice));
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprType::call, current().line);
  call->children.push_back(std::move(callee));
  parse_call_arguments(*call);
  return finish(std::move(call));
}

void Parser::parse_call_arguments(Expr& call) {
  int line = current().line;
  expect_symbol("(");
  auto require = [&](bool condition) {
    if (!condition)
      fail_at(line, "invalid order of arguments: positional ones come first, then names, then *list and **dict");
  };
  bool first = true;
  while (!at_symbol(")")) {
    if (!std::exchange(first, false)) {
      expect_symbol(",");
      if (at_symbol(")")) break;
    }
    if (skip_symbol("*")) {
      require(!call.spread_list && !call.spread_dict);
      call.spread_list = parse_expression();
    } else if (skip_symbol("**")) {
      require(!call.spread_dict);
      call.spread_dict = parse_expression();
    } else if (at(TokenType::name) && peek().type == TokenType::symbol && peek().text == "=") {
      require(!call.spread_dict);
      std::string name = take().text;
      take();
      if (std::find(call.keywords.begin(), call.keywords.end(), name) != call.keywords.end()) {
        fail(fmt::format("the argument '{}' is given twice", name));
      }
      call.keywords.push_back(std::move(name));
      call.children.push_back(parse_expression());
    } else {
      require(!call.spread_list && !call.spread_dict && call.keywords.empty());
      call.children.push_back(parse_expression());
    }
  }
  take();
}

ExprPtr Parser::parse_filter_chain(ExprPtr value) {
  while (skip_symbol("|")) value = parse_filter(std::move(value));
  return value;
}

ExprPtr Parser::parse_filter(ExprPtr value) {
  ExprPtr filter = make(ExprType::filter, current().line);
  filter->name = parse_dotted_name();
  filter->native = find_filter(filter->name);
  filter->children.push_back(std::move(value));
  if (at_symbol("(")) parse_call_arguments(*filter);
  return finish(std::move(filter));
}

ExprPtr Parser::parse_test(ExprPtr value) {
  ExprPtr test = make(ExprType::test, take().line);
  bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->native = find_test(test->name);
  test->children.push_back(std::move(value));
  bool starts_operand = at(TokenType::name) || at(TokenType::string) || at(TokenType::integer) ||
                        at(TokenType::floating) || at_symbol("[") || at_symbol("{");
  if (at_symbol("(")) {
    parse_call_arguments(*test);
  } else if (starts_operand && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail("tests cannot be chained with 'is'");
    test->children.push_back(parse_postfix(parse_primary()));
  }
  int line = test->line;
  test = finish(std::move(test));
  return negated ? make(ExprType::logical_not, line, std::move(test)) : std::move(test);
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (skip_symbol(".")) name.append(1, '.').append(expect_identifier());
  return name;
}

}  // namespace cohort::jinja
