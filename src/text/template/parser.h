// Recursive descent over the tokens, with the grammar and the precedence of Jinja.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace cohort::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits) : tokens_(std::move(tokens)), limits_(limits) {}
  Body parse_template();

 private:
  using Names = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& peek() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token take() {
    if (at(TokenType::end)) return current();
    return std::move(tokens_[position_++]);
  }
  bool at(TokenType type) const { return current().type == type; }
  bool at_symbol(std::string_view symbol) const { return at(TokenType::symbol) && current().text == symbol; }
  bool at_name(std::string_view name) const { return at(TokenType::name) && current().text == name; }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  void expect(TokenType type, std::string_view what);
  [[noreturn]] void fail(std::string message, ErrorCode code = ErrorCode::corrupt) const;
  [[noreturn]] void fail_at(int line, std::string message, ErrorCode code = ErrorCode::corrupt) const;

  // Nesting of the source, so that hostile input cannot exhaust the stack.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > parser_.limits_.syntax_depth) {
        --parser_.nesting_;
        parser_.fail_depth();
      }
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };
  [[noreturn]] void fail_depth() const;

  // Statements.
  Body parse_body(Names ends);                     // up to a tag of one of these names, whose name is the current token
  Body parse_block(Names ends);                    // the end of the begin tag, then as parse_body
  Body parse_block_and_end(std::string_view end);  // ... and the name of the end tag
  Stmt parse_statement();
  Stmt parse_for();
  Stmt parse_if();
  Stmt parse_macro();
  Stmt parse_call_block();
  Stmt parse_filter_block();
  Stmt parse_with();
  Stmt parse_set();
  void parse_parameters(Stmt& statement);
  ExprPtr parse_target(bool with_namespace);
  std::string parse_variable_name();
  void mark_target(Expr& target, Access access);
  Stmt statement(StmtType type) const;

  // Expressions, from the loosest to the tightest binding.
  struct TupleRules {
    bool conditional = true;      // a conditional expression may stand in it
    bool parenthesised = false;   // it may be empty
    bool only_primaries = false;  // targets of assignments
    bool with_namespace = false;
  };
  ExprPtr parse_tuple(const TupleRules& rules);
  ExprPtr parse_expression() { return parse_conditional(); }
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_number();
  ExprPtr parse_text();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expression);
  ExprPtr parse_filters_and_tests(ExprPtr expression);
  ExprPtr parse_subscript(ExprPtr expression);
  ExprPtr parse_subscript_part(ExprPtr& value, bool& is_slice);
  ExprPtr parse_call(ExprPtr callee);
  void parse_call_arguments(Expr& call);
  ExprPtr parse_filter(ExprPtr value);        // one, from its name
  ExprPtr parse_filter_chain(ExprPtr value);  // "| filter | filter"
  ExprPtr parse_test(ExprPtr value);
  std::string parse_dotted_name();

  ExprPtr make(ExprType type, int line) const;
  ExprPtr make(ExprType type, int line, ExprPtr first, ExprPtr second = nullptr);
  ExprPtr constant(Value value, int line) const;
  ExprPtr text_constant(std::string bytes, int line) const;
  /// Sets the depth of a finished node from its parts, against the limit.
  ExprPtr finish(ExprPtr expression) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  const TemplateLimits& limits_;
  size_t nesting_ = 0;
  std::vector<std::string> open_tags_;
};

}  // namespace cohort::jinja
