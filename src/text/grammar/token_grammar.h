// A grammar bound to a vocabulary: which tokens may come next. Never leads into a dead end: every byte that the grammar
// may need is a token by itself, and what cannot be completed has been taken out (rules.h).
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cohort/constraint.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace cohort::grammar {

/// Tokens, however it is shorter.
struct TokenSet {
  std::vector<uint64_t> mask;  // empty: `few`
  std::vector<int32_t> few;
};

class TokenGrammar : public Constraint, public std::enable_shared_from_this<TokenGrammar> {
 public:
  /// Errors: those of make_rules; invalid_argument (a token that is not in the vocabulary, or one of `end_tokens`,
  /// which cannot be part of a text).
  static Expected<std::shared_ptr<const TokenGrammar>> create(const Grammar& grammar,
                                                              std::shared_ptr<const TokenTrie> vocabulary,
                                                              std::span<const int32_t> end_tokens);
  std::unique_ptr<ConstraintState> begin() const override;

 private:
  friend class TokenGrammarState;
  /// What a place in the rules allows, whatever is below it on the stack: tokens that end before the rule does, or with
  /// it, and the places in the trie where the rule has ended, so that what is below decides about the bytes after it.
  struct Local {
    TokenSet tokens;
    std::vector<uint32_t> ends;  // nodes of the trie
  };
  /// A place and the repetitions that it is directly in, with their counts: a token of n bytes cannot tell n rounds
  /// left from more.
  using Place = std::vector<std::pair<uint32_t, int32_t>>;
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };

  TokenGrammar(Rules rules, std::shared_ptr<const TokenTrie> vocabulary)
      : rules_(std::move(rules)), vocabulary_(std::move(vocabulary)), automaton_(rules_) {}
  int32_t same_for_a_token(const Item& item, int32_t count) const;
  /// Null when it takes too much work.
  std::shared_ptr<const Local> local(const Place& place) const;

  const Rules rules_;
  const std::shared_ptr<const TokenTrie> vocabulary_;
  mutable std::mutex mutex_;
  // Guarded by the mutex; what they hold depends on the rules alone.
  mutable Automaton automaton_;
  mutable std::unordered_map<Place, std::shared_ptr<const Local>, PlaceHash> locals_;
  mutable size_t local_bytes_ = 0;
};

}  // namespace cohort::grammar
