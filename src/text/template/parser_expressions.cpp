#include <algorithm>
#include <cstdlib>
#include <optional>

#include "text/template/parser.h"
#include "text/template/unicode.h"

namespace cohort::jinja {
namespace {

std::optional<Arithmetic> sum_operator(const Token& token) {
  if (token.type != TokenType::symbol) return std::nullopt;
  if (token.text == "+") return Arithmetic::add;
  if (token.text == "-") return Arithmetic::subtract;
  return std::nullopt;
}

std::optional<Arithmetic> product_operator(const Token& token) {
  if (token.type != TokenType::symbol) return std::nullopt;
  if (token.text == "*") return Arithmetic::multiply;
  if (token.text == "/") return Arithmetic::divide;
  if (token.text == "//") return Arithmetic::floor_divide;
  if (token.text == "%") return Arithmetic::modulo;
  return std::nullopt;
}

}  // namespace

ExprPtr Parser::make(ExprType type, int line) const {
  auto expression = std::make_unique<Expr>();
  expression->type = type;
  expression->line = line;
  return expression;
}

ExprPtr Parser::make(ExprType type, int line, ExprPtr first, ExprPtr second) {
  ExprPtr expression = make(type, line);
  expression->children.push_back(std::move(first));
  if (second) expression->children.push_back(std::move(second));
  return finish(std::move(expression));
}

ExprPtr Parser::constant(Value value, int line) const {
  ExprPtr expression = make(ExprType::constant, line);
  expression->constant = std::move(value);
  return expression;
}

ExprPtr Parser::text_constant(std::string bytes, int line) const {
  auto text = Ref<StringObject>(new StringObject);
  text->length = count_code_points(bytes);
  text->bytes = std::move(bytes);
  return constant(Value(Kind::string, std::move(text)), line);
}

ExprPtr Parser::finish(ExprPtr expression) const {
  uint32_t below = 0;
  auto visit = [&](const ExprPtr& child) {
    if (child) below = std::max(below, child->depth);
  };
  for (const ExprPtr& child : expression->children) visit(child);
  visit(expression->spread_list);
  visit(expression->spread_dict);
  expression->depth = below + 1;
  if (expression->depth > limits_.syntax_depth) fail_depth();
  return expression;
}

ExprPtr Parser::parse_tuple(const TupleRules& rules) {
  int line = current().line;
  ExprPtr tuple = make(ExprType::tuple, line);
  bool has_comma = false;
  while (true) {
    if (!tuple->children.empty()) expect_symbol(",");
    if (at(TokenType::variable_end) || at(TokenType::block_end) || at_symbol(")")) break;
    if (rules.only_primaries) {
      tuple->children.push_back(parse_primary(rules.with_namespace));
    } else {
      tuple->children.push_back(rules.conditional ? parse_conditional() : parse_or());
    }
    if (!at_symbol(",")) break;
    has_comma = true;
  }
  if (!has_comma) {
    if (!tuple->children.empty()) return std::move(tuple->children[0]);
    if (!rules.parenthesised) fail(fmt::format("expected an expression, got '{}'", describe(current())));
  }
  return finish(std::move(tuple));
}

ExprPtr Parser::parse_conditional() {
  Nesting nesting(*this);
  int line = current().line;
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    ExprPtr conditional = make(ExprType::conditional, line);
    conditional->children.push_back(parse_or());
    conditional->children.push_back(std::move(value));
    conditional->children.push_back(skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(conditional));
    line = current().line;
  }
  return value;
}

ExprPtr Parser::parse_or() {
  int line = current().line;
  ExprPtr left = parse_and();
  while (skip_name("or")) left = make(ExprType::logical_or, line, std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  int line = current().line;
  ExprPtr left = parse_not();
  while (skip_name("and")) left = make(ExprType::logical_and, line, std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  Nesting nesting(*this);
  int line = take().line;
  return make(ExprType::logical_not, line, parse_not());
}

ExprPtr Parser::parse_compare() {
  constexpr std::string_view kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr compare;
  while (true) {
    Comparison comparison = Comparison::in;
    if (at(TokenType::symbol)) {
      auto symbol = std::find(std::begin(kSymbols), std::end(kSymbols), current().text);
      if (symbol == std::end(kSymbols)) break;
      comparison = static_cast<Comparison>(symbol - std::begin(kSymbols));
    } else if (at_name("not") && peek().type == TokenType::name && peek().text == "in") {
      comparison = Comparison::not_in;
      take();
    } else if (!at_name("in")) {
      break;
    }
    take();
    if (!compare) compare = make(ExprType::compare, line, std::move(first));
    compare->comparisons.push_back(comparison);
    compare->children.push_back(parse_sum());
  }
  return compare ? finish(std::move(compare)) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  int line = current().line;
  ExprPtr left = parse_concat();
  while (auto operation = sum_operator(current())) {
    take();
    left = make(ExprType::arithmetic, line, std::move(left), parse_concat());
    left->operation = *operation;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  int line = current().line;
  ExprPtr first = parse_product();
  if (!at_symbol("~")) return first;
  ExprPtr concat = make(ExprType::concat, line, std::move(first));
  while (skip_symbol("~")) concat->children.push_back(parse_product());
  return finish(std::move(concat));
}

ExprPtr Parser::parse_product() {
  int line = current().line;
  ExprPtr left = parse_power();
  while (auto operation = product_operator(current())) {
    take();
    left = make(ExprType::arithmetic, line, std::move(left), parse_power());
    left->operation = *operation;
  }
  return left;
}

ExprPtr Parser::parse_power() {
  int line = current().line;
  ExprPtr left = parse_unary(true);
  while (skip_symbol("**")) {
    left = make(ExprType::arithmetic, line, std::move(left), parse_unary(true));
    left->operation = Arithmetic::power;
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr expression;
  if (at_symbol("-") || at_symbol("+")) {
    Nesting nesting(*this);
    Token sign = take();
    expression = make(sign.text == "-" ? ExprType::negate : ExprType::plus, sign.line, parse_unary(false));
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filter ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  int line = current().line;
  if (at(TokenType::name)) {
    std::string name = take().text;
    if (name == "true" || name == "True") return constant(Value::boolean(true), line);
    if (name == "false" || name == "False") return constant(Value::boolean(false), line);
    if (name == "none" || name == "None") return constant(Value::none(), line);
    bool is_attribute = with_namespace && skip_symbol(".");
    ExprPtr expression = make(is_attribute ? ExprType::namespace_attribute : ExprType::name, line);
    expression->name = std::move(name);
    if (is_attribute) expression->attribute = expect_identifier();
    return expression;
  }
  if (at(TokenType::string)) return parse_text();
  if (at(TokenType::integer) || at(TokenType::floating)) return parse_number();
  if (skip_symbol("(")) {
    Nesting nesting(*this);
    ExprPtr tuple = parse_tuple({.parenthesised = true});
    expect_symbol(")");
    return tuple;
  }
  if (at_symbol("[")) return parse_list();
  if (at_symbol("{")) return parse_dict();
  fail(fmt::format("unexpected '{}'", describe(current())));
}

ExprPtr Parser::parse_text() {
  int line = current().line;
  std::string text;
  while (at(TokenType::string)) text += take().text;  // adjacent literals are one, as in Python
  return text_constant(std::move(text), line);
}

ExprPtr Parser::parse_number() {
  Token token = take();
  if (token.type == TokenType::floating)
    return constant(Value::floating(std::strtod(token.text.c_str(), nullptr)), token.line);
  try {
    return constant(Value::integer(parse_integer(token.text, 0).value()), token.line);
  } catch (const Failure& failure) {
    fail_at(token.line, failure.message, failure.code);
  }
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(ExprType::list, take().line);
  while (!at_symbol("]")) {
    if (!list->children.empty()) expect_symbol(",");
    if (at_symbol("]")) break;
    list->children.push_back(parse_expression());
  }
  take();
  return finish(std::move(list));
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(ExprType::dict, take().line);
  while (!at_symbol("}")) {
    if (!dict->children.empty()) expect_symbol(",");
    if (at_symbol("}")) break;
    dict->children.push_back(parse_expression());
    expect_symbol(":");
    dict->children.push_back(parse_expression());
  }
  take();
  return finish(std::move(dict));
}

}  // namespace cohort::jinja
