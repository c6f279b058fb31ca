// Byte pair encoding by merge ranks. Three ways to encode a word, all with the same result:
//   1. a word that is a token whose own encoding is known to be itself (found once, at load): one lookup;
//   2. a short word: the lowest rank is found by scanning, which for a dozen symbols is faster than any queue;
//   3. a long word: a heap of candidate pairs over a linked list of symbols, O(n log n).
#include <algorithm>

#include "base/result.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/byte_fallback.h"
#include "text/tokenizer/flat_map.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/word_cuts.h"

namespace cohort::text {
namespace {

// Scanning costs n*n/2 steps of about 1 ns, the heap about 60 ns a symbol: they meet near 100 symbols; most words are
// shorter.
constexpr size_t kMaxScanned = 48;
// Longer tokens are not tried at load: a word is rarely one, and a file could hold megabytes of them.
constexpr size_t kMaxTriedBytes = 64;

struct Merge {
  uint32_t rank = 0;
  int32_t merged = -1;
};

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

class Bpe : public Model {
 public:
  static Expected<std::unique_ptr<Model>> create(std::shared_ptr<const Vocabulary> vocabulary, const MergeList& merges,
                                                 const BpeConfig& config, const std::vector<bool>& words,
                                                 const TokenizerLimits& limits) {
    auto bpe = std::make_unique<Bpe>();
    bpe->config_ = config;
    bpe->limits_ = limits;
    bpe->vocabulary_ = std::move(vocabulary);
    COHORT_TRY(bpe->set_merges(merges, limits));
    bpe->set_characters();
    bpe->set_words(words);
    return std::unique_ptr<Model>(std::move(bpe));
  }

  Expected<void> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override {
    if (config_.ignore_merges || config_.whole_newline_runs) {
      const bool whole = config_.ignore_merges || piece.find_first_not_of('\n') == std::string_view::npos;
      if (const auto id = whole ? find_word(piece) : std::nullopt) {
        out.push_back(*id);
        return {};
      }
    }
    return cuts_.for_each(piece, [&](std::string_view word) { return encode_word(word, scratch, out); });
  }

 private:
  Expected<void> set_merges(const MergeList& merges, const TokenizerLimits& limits) {
    if (merges.size() > limits.merges) {
      return fail(ErrorCode::capacity, "{} merges; the limit is {}", merges.size(), limits.merges);
    }
    mergeable_.resize(vocabulary_->size());
    merges_.reserve(merges.size());
    std::string merged;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto& [left, right] = merges[rank];
      merged.assign(left).append(right);
      const auto left_id = vocabulary_->find(left), right_id = vocabulary_->find(right), id = vocabulary_->find(merged);
      if (!left_id || !right_id || !id) {
        return fail(ErrorCode::corrupt,
                    "merge {} (\"{}\" and \"{}\") needs the token \"{}\", which is not in the vocabulary", rank,
                    repair_utf8(left), repair_utf8(right),
                    repair_utf8(!left_id    ? left
                                : !right_id ? right
                                            : merged));
      }
      merges_.set(pair_key(*left_id, *right_id), {static_cast<uint32_t>(rank), *id});
      mergeable_[static_cast<size_t>(*id)] = true;
    }
    return {};
  }

  /// Single symbols: bytes or characters.
  void set_characters() {
    fallback_ = config_.byte_fallback ? ByteFallback(*vocabulary_) : ByteFallback();
    std::vector<std::pair<char32_t, int32_t>> others;
    first_.fill(-1);
    for (size_t i = 0; i < vocabulary_->size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const std::string_view text = vocabulary_->text(id);
      const Utf8Char c = decode_utf8(text);
      if (text.empty() || !c.valid || c.size != text.size()) {
        continue;
      }
      if (config_.byte_level) {
        if (const int byte = char_to_byte(c.value); byte >= 0) {
          first_[static_cast<size_t>(byte)] = id;
        }
      } else if (c.value < 0x80) {
        first_[c.value] = id;
      } else {
        others.emplace_back(c.value, id);
      }
    }
    others_.reserve(others.size());
    for (const auto& [c, id] : others) {
      others_.set(c, id);
    }
    if (!config_.byte_level) {
      cuts_ = WordCuts(*vocabulary_, mergeable_, fallback_.complete());
    }
  }

  /// The tokens that whole words may become, and which of them their own merges lead to.
  void set_words(const std::vector<bool>& words) {
    index_.reserve(static_cast<size_t>(std::count(words.begin(), words.end(), true)));
    std::string bytes;
    for (size_t i = 0; i < words.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      if (!words[i] || !vocabulary_->has(id) || vocabulary_->text(id).empty()) {
        continue;
      }
      bytes.clear();
      if (!config_.byte_level) {
        bytes = vocabulary_->text(id);
      } else if (!append_alphabet_bytes(bytes, vocabulary_->text(id))) {
        continue;
      }
      word_texts_.set(id, bytes);
      index_.insert(word_texts_[id], id);
      longest_word_ = std::max(longest_word_, bytes.size());
    }
    word_texts_.resize(words.size());
    own_.resize(words.size());
    ModelScratch scratch;
    std::vector<int32_t> ids;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string_view text = word_texts_[static_cast<int32_t>(i)];
      ids.clear();
      own_[i] = !text.empty() && text.size() <= kMaxTriedBytes && merge_word(text, scratch, ids).has_value() &&
                ids.size() == 1 && ids[0] == static_cast<int32_t>(i);
    }
  }

  std::optional<int32_t> find_word(std::string_view word) const {
    if (word.size() > longest_word_) {
      return std::nullopt;
    }
    return index_.find(word, [this](int32_t id) { return word_texts_[id]; });
  }

  Expected<void> encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
    if (const auto id = find_word(word); id && own_[static_cast<size_t>(*id)]) {
      out.push_back(*id);
      return {};
    }
    return merge_word(word, scratch, out);
  }

  Expected<void> merge_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
    COHORT_TRY(check_word_size(word, limits_));
    const size_t start = out.size();
    COHORT_TRY(append_symbols(word, out));
    const size_t count = out.size() - start;
    if (count > kMaxScanned) {
      merge_with_heap(scratch, out, start);
    } else if (count > 1) {
      merge_by_scanning(out, start);
    }
    return {};
  }

  Expected<void> append_symbols(std::string_view word, std::vector<int32_t>& out) const {
    if (config_.byte_level) {
      for (const char byte : word) {
        out.push_back(first_[static_cast<unsigned char>(byte)]);
      }
      return {};
    }
    bool after_unknown = false;
    for (size_t i = 0; i < word.size();) {
      uint32_t size = 0;
      const char32_t c = decode_valid_utf8(word.data() + i, size);
      const std::string_view bytes = word.substr(i, size);
      i += size;
      int32_t id = -1;
      if (c < 0x80) {
        id = first_[c];
      } else if (const int32_t* found = others_.find(c)) {
        id = *found;
      }
      if (id >= 0) {
        out.push_back(id);
        after_unknown = false;
      } else if (fallback_.append(bytes, out)) {
        after_unknown = false;
      } else if (config_.unknown) {
        if (!after_unknown || !config_.fuse_unknown) {
          out.push_back(*config_.unknown);
        }
        after_unknown = true;
      } else {
        return fail(ErrorCode::unsupported,
                    "the vocabulary has no token for U+{:04X}, none for its bytes and none for unknown characters",
                    static_cast<uint32_t>(c));
      }
    }
    return {};
  }

  void merge_by_scanning(std::vector<int32_t>& ids, size_t start) const {
    std::array<Merge, kMaxScanned> pairs;  // of symbols i and i + 1; merged < 0: no merge
    const auto lookup = [&](size_t i) {
      const Merge* merge = merges_.find(pair_key(ids[start + i], ids[start + i + 1]));
      pairs[i] = merge != nullptr ? *merge : Merge{UINT32_MAX, -1};
    };
    size_t count = ids.size() - start;
    for (size_t i = 0; i + 1 < count; ++i) {
      lookup(i);
    }
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i) {
        best = pairs[i].rank < pairs[best].rank ? i : best;
      }
      if (pairs[best].merged < 0) {
        break;
      }
      ids[start + best] = pairs[best].merged;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(start + best + 1));
      --count;
      std::copy(pairs.begin() + static_cast<ptrdiff_t>(best + 1), pairs.begin() + static_cast<ptrdiff_t>(count),
                pairs.begin() + static_cast<ptrdiff_t>(best));
      if (best + 1 < count) {
        lookup(best);
      }
      if (best > 0) {
        lookup(best - 1);
      }
    }
  }

  void merge_with_heap(ModelScratch& scratch, std::vector<int32_t>& ids, size_t start) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    const auto later = [](const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
      return a.order > b.order;
    };
    const auto count = static_cast<int32_t>(ids.size() - start);
    for (int32_t i = 0; i < count; ++i) {
      symbols.push_back({ids[start + static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, 0, 1});
    }
    const auto candidate = [&](int32_t position) -> std::optional<ModelScratch::Candidate> {
      const auto& left = symbols[static_cast<size_t>(position)];
      if (left.next < 0) {
        return std::nullopt;
      }
      const int32_t right = symbols[static_cast<size_t>(left.next)].id;
      const Merge* merge = merges_.find(pair_key(left.id, right));
      if (merge == nullptr) {
        return std::nullopt;
      }
      const uint64_t order = (static_cast<uint64_t>(merge->rank) << 32) | static_cast<uint32_t>(position);
      return ModelScratch::Candidate{order, left.id, right, merge->merged, 0};
    };
    const auto push = [&](int32_t position) {
      if (const auto found = candidate(position)) {
        heap.push_back(*found);
        std::push_heap(heap.begin(), heap.end(), later);
      }
    };
    for (int32_t i = 0; i < count; ++i) {
      if (const auto found = candidate(i)) {
        heap.push_back(*found);
      }
    }
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      const auto top = heap.front();
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      const auto position = static_cast<int32_t>(top.order & 0xFFFFFFFF);
      auto& left = symbols[static_cast<size_t>(position)];
      // A candidate is out of date once either of its symbols was merged with another one.
      if (left.size == 0 || left.id != top.left || left.next < 0 ||
          symbols[static_cast<size_t>(left.next)].id != top.right) {
        continue;
      }
      auto& right = symbols[static_cast<size_t>(left.next)];
      left.id = top.merged;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0) {
        symbols[static_cast<size_t>(left.next)].previous = position;
      }
      push(position);
      if (left.previous >= 0) {
        push(left.previous);
      }
    }
    ids.resize(start);
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      ids.push_back(symbols[static_cast<size_t>(i)].id);
    }
  }

  BpeConfig config_;
  TokenizerLimits limits_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  FlatMap<Merge> merges_;
  std::vector<bool> mergeable_;
  std::array<int32_t, 256> first_{};  // by byte (byte level) or ASCII character
  FlatMap<int32_t> others_;           // by character
  ByteFallback fallback_;
  WordCuts cuts_;
  StringIndex index_;      // whole words
  TokenTexts word_texts_;  // by id; bytes (byte level) or characters
  size_t longest_word_ = 0;
  std::vector<bool> own_;  // by id: merging the token's text gives the token
};

}  // namespace

Expected<std::unique_ptr<Model>> make_bpe(std::shared_ptr<const Vocabulary> vocabulary, const MergeList& merges,
                                          const BpeConfig& config, const std::vector<bool>& words,
                                          const TokenizerLimits& limits) {
  return Bpe::create(std::move(vocabulary), merges, config, words, limits);
}

Expected<void> check_word_size(std::string_view word, const TokenizerLimits& limits) {
  if (word.size() > limits.word_bytes) {
    return fail(ErrorCode::capacity, "a stretch of {} bytes without a place to cut it; the limit is {}", word.size(),
                limits.word_bytes);
  }
  return {};
}

bool has_all_bytes(const Vocabulary& vocabulary) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text.clear();
    append_utf8(text, byte_to_char(static_cast<unsigned char>(byte)));
    if (!vocabulary.find(text)) {
      return false;
    }
  }
  return true;
}

}  // namespace cohort::text
