// SentencePiece's BPE: symbols are characters; of all neighbours whose concatenation is a token, the one with the
// highest score merges first, leftmost among equals. What is no token at the end becomes bytes or the unknown token.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer/byte_fallback.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/word_cuts.h"

namespace cohort::text {
namespace {

constexpr size_t kMaxTriedBytes = 64;  // as in bpe.cpp

class ScoredBpe : public Model {
 public:
  ScoredBpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores,
            const std::vector<TokenKind>& kinds, std::optional<int32_t> unknown, const TokenizerLimits& limits)
      : vocabulary_(std::move(vocabulary)), kinds_(kinds), unknown_(unknown), limits_(limits), fallback_(*vocabulary_) {
    std::vector<int32_t> order;
    std::vector<bool> mergeable(vocabulary_->size());
    for (size_t i = 0; i < vocabulary_->size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const bool text =
          kinds[i] == TokenKind::normal || kinds[i] == TokenKind::user_defined || kinds[i] == TokenKind::unused;
      if (text && !vocabulary_->text(id).empty()) {
        order.push_back(id);
        mergeable[i] = true;
      }
    }
    // Equal scores share a rank, so that their order is that of the places in the text.
    const auto score = [&](int32_t id) { return scores[static_cast<size_t>(id)]; };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
    rank_.resize(vocabulary_->size());
    index_.reserve(order.size());
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      rank += i > 0 && score(order[i]) < score(order[i - 1]) ? 1 : 0;
      rank_[static_cast<size_t>(order[i])] = rank;
      index_.insert(vocabulary_->text(order[i]), order[i]);
      longest_ = std::max(longest_, vocabulary_->text(order[i]).size());
    }
    cuts_ = WordCuts(*vocabulary_, mergeable, fallback_.complete());
    set_own();
  }

  Expected<void> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override {
    return cuts_.for_each(piece, [&](std::string_view word) -> Expected<void> {
      if (const auto id = find(word); id && own_[static_cast<size_t>(*id)]) {
        out.push_back(*id);
        return {};
      }
      return merge_word(word, scratch, out);
    });
  }

 private:
  using Symbol = ModelScratch::Symbol;
  using Candidate = ModelScratch::Candidate;

  void set_own() {
    own_.resize(vocabulary_->size());
    ModelScratch scratch;
    std::vector<int32_t> ids;
    for (size_t i = 0; i < own_.size(); ++i) {
      const std::string_view text = vocabulary_->text(static_cast<int32_t>(i));
      ids.clear();
      own_[i] = find(text).has_value() && text.size() <= kMaxTriedBytes && merge_word(text, scratch, ids).has_value() &&
                ids.size() == 1 && ids[0] == static_cast<int32_t>(i);
    }
  }

  std::optional<int32_t> find(std::string_view text) const {
    if (text.size() > longest_) {
      return std::nullopt;
    }
    return index_.find(text, [this](int32_t id) { return vocabulary_->text(id); });
  }

  /// The two texts that an unused token was joined from.
  using Halves = std::unordered_map<int32_t, std::pair<std::string_view, std::string_view>>;

  /// The candidate that joins the symbol at `position` with the next one.
  std::optional<Candidate> candidate(std::string_view word, const std::vector<Symbol>& symbols, int32_t position,
                                     Halves& halves) const {
    const Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.next < 0) {
      return std::nullopt;
    }
    const uint32_t size = left.size + symbols[static_cast<size_t>(left.next)].size;
    const auto id = find(word.substr(left.begin, size));
    if (!id) {
      return std::nullopt;
    }
    if (kinds_[static_cast<size_t>(*id)] == TokenKind::unused) {
      halves[*id] = {word.substr(left.begin, left.size), word.substr(left.begin + left.size, size - left.size)};
    }
    const uint64_t order =
        (static_cast<uint64_t>(rank_[static_cast<size_t>(*id)]) << 32) | static_cast<uint32_t>(position);
    return Candidate{order, -1, -1, *id, size};
  }

  Expected<void> merge_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
    COHORT_TRY(check_word_size(word, limits_));
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    for (size_t i = 0; i < word.size();) {
      const uint32_t size = utf8_size(word[i]);
      const auto index = static_cast<int32_t>(symbols.size());
      const bool last = i + size == word.size();
      symbols.push_back({-1, index - 1, last ? -1 : index + 1, static_cast<uint32_t>(i), size});
      i += size;
    }
    Halves halves;  // an unused token takes part in merging but is taken apart again in the end
    const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (const auto found = candidate(word, symbols, static_cast<int32_t>(i), halves)) {
        heap.push_back(*found);
      }
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      const Candidate top = heap.front();
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      const auto position = static_cast<int32_t>(top.order & 0xFFFFFFFF);
      Symbol& left = symbols[static_cast<size_t>(position)];
      if (left.size == 0 || left.next < 0 || left.size + symbols[static_cast<size_t>(left.next)].size != top.size) {
        continue;  // one of the two was merged with another symbol
      }
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      left.size = top.size;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0) {
        symbols[static_cast<size_t>(left.next)].previous = position;
      }
      for (const int32_t at : {position, left.previous}) {
        if (at >= 0) {
          if (const auto found = candidate(word, symbols, at, halves)) {
            heap.push_back(*found);
            std::push_heap(heap.begin(), heap.end(), later);
          }
        }
      }
    }
    bool after_unknown = false;
    const auto emit = [&](auto&& self, std::string_view text) -> Expected<void> {
      if (const auto id = find(text)) {
        const auto parts = halves.find(*id);
        if (parts != halves.end()) {
          COHORT_TRY(self(self, parts->second.first));
          return self(self, parts->second.second);
        }
        out.push_back(*id);
        after_unknown = false;
      } else if (fallback_.append(text, out)) {
        after_unknown = false;
      } else if (unknown_) {
        if (!after_unknown) {
          out.push_back(*unknown_);
        }
        after_unknown = true;
      } else {
        return fail(ErrorCode::unsupported,
                    "the vocabulary has no token for \"{}\", none for its bytes and none for unknown "
                    "characters",
                    text);
      }
      return {};
    };
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      COHORT_TRY(emit(emit, word.substr(symbol.begin, symbol.size)));
    }
    return {};
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<TokenKind> kinds_;
  std::optional<int32_t> unknown_;
  TokenizerLimits limits_;
  ByteFallback fallback_;
  WordCuts cuts_;
  StringIndex index_;           // the tokens that text may become
  std::vector<uint32_t> rank_;  // by id: 0 has the highest score
  size_t longest_ = 0;
  std::vector<bool> own_;  // by id: merging the token's text gives the token
};

}  // namespace

Expected<std::unique_ptr<Model>> make_scored_bpe(std::shared_ptr<const Vocabulary> vocabulary,
                                                 const std::vector<float>& scores, const std::vector<TokenKind>& kinds,
                                                 std::optional<int32_t> unknown, const TokenizerLimits& limits) {
  if (scores.size() != vocabulary->size() || kinds.size() != vocabulary->size()) {
    return fail(ErrorCode::corrupt, "{} tokens, but {} scores and {} token types", vocabulary->size(), scores.size(),
                kinds.size());
  }
  for (const float score : scores) {
    if (score != score) {
      return fail(ErrorCode::corrupt, "a token score is not a number");
    }
  }
  return std::unique_ptr<Model>(std::make_unique<ScoredBpe>(std::move(vocabulary), scores, kinds, unknown, limits));
}

}  // namespace cohort::text
