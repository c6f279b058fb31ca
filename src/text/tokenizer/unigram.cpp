// The unigram language model: of all segmentations into tokens, the one with the largest sum of log probabilities
// (Viterbi).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "text/tokenizer/byte_fallback.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

// An unknown character scores this much less than the least probable token (SentencePiece's kUnkPenalty).
constexpr double kUnknownPenalty = 10.0;

class Unigram : public Model {
 public:
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores, const std::vector<bool>& usable,
          const UnigramConfig& config, const TokenizerLimits& limits)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        usable_(usable),
        config_(config),
        limits_(limits) {
    std::vector<std::pair<std::string_view, int32_t>> entries;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < usable.size(); ++i) {
      if (usable[i]) {
        entries.emplace_back(vocabulary_->text(static_cast<int32_t>(i)), static_cast<int32_t>(i));
        least = std::min(least, scores_[i]);
      }
    }
    unknown_score_ = (entries.empty() ? 0 : least) - kUnknownPenalty;
    trie_ = ByteTrie(std::move(entries));
    if (config.byte_fallback) {
      fallback_ = ByteFallback(*vocabulary_);
    }
  }

  Expected<void> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override {
    COHORT_TRY(check_word_size(piece, limits_));
    auto& path = scratch.path;  // by end offset
    path.assign(piece.size() + 1, {});
    const auto offer = [&](size_t end, double score, int32_t id, uint32_t size) {
      score = config_.single_precision ? static_cast<double>(static_cast<float>(score)) : score;
      auto& node = path[end];
      if (node.size == 0 || score > node.score) {
        node = {score, id, size};
      }
    };
    for (size_t i = 0; i < piece.size();) {
      const double so_far = path[i].score;
      const uint32_t character = utf8_size(piece[i]);
      bool single = false;
      trie_.for_each_prefix(piece.substr(i), [&](size_t size, int32_t id) {
        offer(i + size, so_far + scores_[static_cast<size_t>(id)], id, static_cast<uint32_t>(size));
        single = single || size == character;
      });
      if (!single) {
        offer(i + character, so_far + unknown_score_, kUnknown, character);
      }
      i += character;
    }
    // Backwards along the best path; then forwards through it.
    auto& symbols = scratch.symbols;
    symbols.clear();
    for (size_t end = piece.size(); end > 0; end -= path[end].size) {
      const uint32_t size = path[end].size;
      const int32_t id = path[end].id == config_.unknown ? kUnknown : path[end].id;
      symbols.push_back({id, -1, -1, static_cast<uint32_t>(end - size), size});
    }
    std::reverse(symbols.begin(), symbols.end());
    for (size_t i = 0; i < symbols.size();) {
      if (symbols[i].id != kUnknown) {
        out.push_back(symbols[i++].id);
        continue;
      }
      const size_t begin = symbols[i].begin;
      size_t end = begin;
      for (; i < symbols.size() && symbols[i].id == kUnknown; ++i) {
        end = symbols[i].begin + symbols[i].size;
      }
      const std::string_view run = piece.substr(begin, end - begin);
      const auto id = vocabulary_->find(run);  // the text of the unknown token itself
      if (id && usable_[static_cast<size_t>(*id)]) {
        out.push_back(*id);
        continue;
      }
      if (fallback_.append(run, out)) {
        continue;
      }
      if (!config_.unknown) {
        return fail(ErrorCode::unsupported,
                    "the vocabulary has no token for \"{}\", none for its bytes and none for unknown characters",
                    run.substr(0, utf8_size(run.front())));
      }
      out.push_back(*config_.unknown);
    }
    return {};
  }

 private:
  static constexpr int32_t kUnknown = -2;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;
  std::vector<bool> usable_;
  UnigramConfig config_;
  TokenizerLimits limits_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  ByteFallback fallback_;
};

}  // namespace

Expected<std::unique_ptr<Model>> make_unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                                              const std::vector<bool>& usable, const UnigramConfig& config,
                                              const TokenizerLimits& limits) {
  if (scores.size() != vocabulary->size() || usable.size() != vocabulary->size()) {
    return fail(ErrorCode::corrupt, "{} tokens, but {} scores", vocabulary->size(), scores.size());
  }
  for (const double score : scores) {
    if (!std::isfinite(score)) {
      return fail(ErrorCode::corrupt, "a token score is not a finite number");
    }
  }
  return std::unique_ptr<Model>(
      std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), usable, config, limits));
}

}  // namespace cohort::text
