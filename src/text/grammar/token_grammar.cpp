#include "text/grammar/token_grammar.h"

#include <algorithm>

#include "base/result.h"

namespace cohort::grammar {
namespace {

/// Frames looked at for one mask; a step of a model takes longer than this takes.
constexpr uint64_t kWork = 300'000;
/// A state's own memory; above, it starts again from where it is.
constexpr size_t kStateBytes = size_t{8} << 20;
/// Of what is kept for all states of a grammar; above, it is forgotten.
constexpr size_t kSharedBytes = size_t{64} << 20;
/// States with more places than this walk the trie once instead of once for each place.
constexpr size_t kPlaces = 12;

void set_bit(std::span<uint64_t> mask, int32_t token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<unsigned>(token) % 64);
}

/// Calls visit(node, state) for the nodes begin..end of the trie that can be reached; `from` is the state above them,
/// at `depth`.
template <class Visit>
void walk(const TokenTrie& trie, Automaton& automaton, Stacks from, uint32_t begin, uint32_t end, size_t depth,
          std::vector<Stacks>& path, Visit&& visit) {
  const auto nodes = trie.nodes();
  path.resize(std::max(path.size(), trie.longest() + 1));
  path[depth] = from;
  for (uint32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    const Stacks state = automaton.step(path[node.depth - 1U], node.byte);
    if (state == Automaton::kNone) {
      i = node.end;
      continue;
    }
    path[node.depth] = state;
    visit(i, state);
    ++i;
  }
}

tl::unexpected<Error> too_much() {
  return fail(ErrorCode::capacity,
              "the grammar or schema has too many ways to read this text; make its alternatives differ earlier");
}

}  // namespace

class TokenGrammarState : public ConstraintState {
 public:
  explicit TokenGrammarState(std::shared_ptr<const TokenGrammar> grammar)
      : grammar_(std::move(grammar)), automaton_(std::make_unique<Automaton>(grammar_->rules_)) {
    automaton_->allow(kWork);
    state_ = automaton_->start();
    failed_ = automaton_->exhausted();
  }

  Expected<void> allowed(std::span<uint64_t> mask) override {
    if (failed_) return too_much();
    if (state_ != masked_) {
      mask_.assign((grammar_->vocabulary_->vocabulary() + 63) / 64, 0);
      automaton_->allow(kWork);
      if (automaton_->frames(state_).size() > kPlaces) {
        mark_all();
      } else {
        // By value: the frames may move.
        const std::vector<Frame> frames(automaton_->frames(state_).begin(), automaton_->frames(state_).end());
        for (const Frame& frame : frames) {
          if (!mark(frame)) return too_much();
        }
      }
      if (automaton_->exhausted()) return too_much();
      masked_ = state_;
    }
    std::ranges::fill(mask, 0);
    std::copy_n(mask_.begin(), std::min(mask_.size(), mask.size()), mask.begin());
    return {};
  }

  bool may_end() const override { return automaton_->complete(state_); }
  bool must_end() const override { return may_end() && automaton_->frames(state_).empty(); }

  void advance(int32_t token) override {
    automaton_->allow(kWork);
    Stacks next = state_;
    const std::string_view piece = grammar_->vocabulary_->piece(token);
    for (const char c : piece) next = automaton_->step(next, static_cast<unsigned char>(c));
    if (piece.empty()) next = Automaton::kNone;
    next = automaton_->unite(next, automaton_->step_token(state_, token));
    failed_ |= automaton_->exhausted();
    state_ = next;
    if (automaton_->bytes() < kStateBytes) return;
    auto fresh = std::make_unique<Automaton>(grammar_->rules_);
    state_ = fresh->copy(*automaton_, state_);
    automaton_ = std::move(fresh);
    masked_ = Automaton::kNone;
  }

 private:
  void mark_tokens(uint32_t node) {
    for (const int32_t token : grammar_->vocabulary_->tokens(node)) set_bit(mask_, token);
  }

  void mark_all() {
    for (const Frame& frame : automaton_->frames(state_)) {
      if (automaton_->item(frame).kind == Item::Kind::token) set_bit(mask_, automaton_->item(frame).index);
    }
    const TokenTrie& trie = *grammar_->vocabulary_;
    walk(trie, *automaton_, state_, 0, static_cast<uint32_t>(trie.nodes().size()), 0, path_,
         [&](uint32_t node, Stacks) { mark_tokens(node); });
  }

  /// What one frame of the state allows.
  bool mark(const Frame& frame) {
    const Item& item = automaton_->item(frame);
    if (item.kind == Item::Kind::token) {
      set_bit(mask_, item.index);
      return true;
    }
    TokenGrammar::Place place{{frame.item, 0}};
    Stacks below = frame.below;
    while (automaton_->frames(below).size() == 1 && !automaton_->complete(below)) {
      const Frame& next = automaton_->frames(below).front();
      const Item& repeat = automaton_->item(next);
      if (repeat.kind != Item::Kind::repeat) break;
      place.emplace_back(next.item, grammar_->same_for_a_token(repeat, next.count));
      below = next.below;
    }
    const auto local = grammar_->local(place);
    if (local == nullptr) return false;
    for (size_t i = 0; i < local->tokens.mask.size(); ++i) mask_[i] |= local->tokens.mask[i];
    for (const int32_t token : local->tokens.few) set_bit(mask_, token);
    if (local->ends.empty()) return true;
    const Stacks after = automaton_->enter(below);
    if (automaton_->frames(after).empty()) return true;
    const TokenTrie& trie = *grammar_->vocabulary_;
    for (const uint32_t node : local->ends) {
      walk(trie, *automaton_, after, node + 1, trie.nodes()[node].end, trie.nodes()[node].depth, path_,
           [&](uint32_t reached, Stacks) { mark_tokens(reached); });
    }
    return true;
  }

  std::shared_ptr<const TokenGrammar> grammar_;
  std::unique_ptr<Automaton> automaton_;
  Stacks state_ = Automaton::kNone;
  Stacks masked_ = Automaton::kNone;  // the state that mask_ is of
  std::vector<uint64_t> mask_;
  std::vector<Stacks> path_;
  bool failed_ = false;
};

size_t TokenGrammar::PlaceHash::operator()(const Place& place) const {
  size_t hash = place.size();
  for (const auto& [item, count] : place)
    hash = (hash ^ (uint64_t{item} << 32 | static_cast<uint32_t>(count))) * 0x9E3779B97F4A7C15U;
  return hash ^ hash >> 29;
}

Expected<std::shared_ptr<const TokenGrammar>> TokenGrammar::create(const Grammar& grammar,
                                                                   std::shared_ptr<const TokenTrie> vocabulary,
                                                                   std::span<const int32_t> end_tokens) {
  COHORT_ASSIGN(Rules rules, make_rules(grammar, vocabulary->single_bytes()));
  for (const Item& item : rules.items) {
    if (item.kind != Item::Kind::token) continue;
    if (static_cast<size_t>(item.index) >= vocabulary->vocabulary()) {
      return fail(ErrorCode::invalid_argument, "the grammar names token {}; the vocabulary has 0 to {}", item.index,
                  vocabulary->vocabulary() - 1);
    }
    if (std::ranges::find(end_tokens, item.index) != end_tokens.end()) {
      return fail(ErrorCode::invalid_argument,
                  "the grammar names token {}, which ends answers; it comes by itself when the text is complete",
                  item.index);
    }
  }
  return std::shared_ptr<const TokenGrammar>(new TokenGrammar(std::move(rules), std::move(vocabulary)));
}

std::unique_ptr<ConstraintState> TokenGrammar::begin() const {
  return std::make_unique<TokenGrammarState>(shared_from_this());
}

/// The count that stands for all counts which no token can tell from this one.
int32_t TokenGrammar::same_for_a_token(const Item& item, int32_t count) const {
  const auto longest = static_cast<int32_t>(vocabulary_->longest()) + 1;
  if (count < item.low) return std::max(count, item.low - longest);
  if (item.high < 0) return count;
  return std::max(count, item.high - longest);
}

std::shared_ptr<const TokenGrammar::Local> TokenGrammar::local(const Place& place) const {
  const std::scoped_lock lock(mutex_);
  if (const auto found = locals_.find(place); found != locals_.end()) return found->second;
  if (local_bytes_ + automaton_.bytes() > kSharedBytes) {
    locals_.clear();
    local_bytes_ = 0;
    automaton_ = Automaton(rules_);
  }
  Stacks below = Automaton::kUnknown;
  for (size_t i = place.size(); i-- > 0;)
    below = automaton_.intern({{place[i].first, place[i].second, below}}, false, false);
  automaton_.allow(kWork);
  auto out = std::make_shared<Local>();
  std::vector<Stacks> path;
  const TokenTrie& trie = *vocabulary_;
  walk(trie, automaton_, below, 0, static_cast<uint32_t>(trie.nodes().size()), 0, path,
       [&](uint32_t node, Stacks state) {
         const auto tokens = trie.tokens(node);
         out->tokens.few.insert(out->tokens.few.end(), tokens.begin(), tokens.end());
         if (automaton_.unknown(state) && trie.nodes()[node].end > node + 1) out->ends.push_back(node);
       });
  if (automaton_.exhausted()) return nullptr;
  const size_t words = (trie.vocabulary() + 63) / 64;
  if (out->tokens.few.size() > words) {
    out->tokens.mask.assign(words, 0);
    for (const int32_t token : out->tokens.few) set_bit(out->tokens.mask, token);
    out->tokens.few = {};
  }
  out->tokens.few.shrink_to_fit();
  local_bytes_ += out->tokens.mask.size() * 8 + out->tokens.few.size() * 4 + out->ends.size() * 4 + 256;
  locals_.emplace(place, out);
  return out;
}

}  // namespace cohort::grammar
