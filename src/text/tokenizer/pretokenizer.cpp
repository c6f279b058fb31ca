#include "text/tokenizer/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

struct Span {
  size_t begin = 0, end = 0;
  bool match = false;
};

/// Turns the spans of one piece, in order and without gaps, into pieces by a behavior.
class Splitter {
 public:
  Splitter(Piece piece, SplitBehavior behavior, bool invert, std::vector<Piece>& out)
      : piece_(piece), behavior_(behavior), invert_(invert), out_(out) {}

  void span(size_t begin, size_t end, bool match) {
    match = match != invert_;
    switch (behavior_) {
      case SplitBehavior::isolated:
        emit(begin, end);
        return;
      case SplitBehavior::removed:
        if (!match) {
          emit(begin, end);
        }
        return;
      case SplitBehavior::merged_with_next:  // is decided from the right
        spans_.push_back({begin, end, match});
        return;
      case SplitBehavior::contiguous:
        if (!spans_.empty() && match == previous_) {
          spans_.back().end = end;
        } else {
          spans_.push_back({begin, end, match});
        }
        break;
      case SplitBehavior::merged_with_previous:
        if (!spans_.empty() && match && !previous_) {
          spans_.back().end = end;
        } else {
          spans_.push_back({begin, end, match});
        }
        break;
    }
    previous_ = match;
  }

  void finish() {
    if (behavior_ == SplitBehavior::merged_with_next) {
      // Reading from the right, a match joins what stands behind it unless that is a match itself.
      size_t kept = spans_.size();
      bool previous = false;
      for (size_t i = spans_.size(); i-- > 0;) {
        const Span span = spans_[i];
        if (span.match && !previous && kept < spans_.size()) {
          spans_[kept].begin = span.begin;
        } else {
          spans_[--kept] = span;
        }
        previous = span.match;
      }
      spans_.erase(spans_.begin(), spans_.begin() + static_cast<ptrdiff_t>(kept));
    }
    for (const auto& span : spans_) {
      emit(span.begin, span.end);
    }
  }

 private:
  void emit(size_t begin, size_t end) {
    if (begin < end) {
      out_.push_back({piece_.text.substr(begin, end - begin), piece_.first && begin == 0});
    }
  }

  Piece piece_;
  SplitBehavior behavior_;
  bool invert_;
  std::vector<Piece>& out_;
  std::vector<Span> spans_;
  bool previous_ = false;
};

template <class Belongs>
void split_characters(Piece piece, SplitBehavior behavior, std::vector<Piece>& out, Belongs&& belongs) {
  Splitter splitter(piece, behavior, false, out);
  size_t done = 0;
  for (size_t i = 0; i < piece.text.size();) {
    uint32_t size = 0;
    if (belongs(decode_valid_utf8(piece.text.data() + i, size))) {
      if (done < i) {
        splitter.span(done, i, false);
      }
      splitter.span(i, i + size, true);
      done = i + size;
    }
    i += size;
  }
  if (done < piece.text.size()) {
    splitter.span(done, piece.text.size(), false);
  }
  splitter.finish();
}

struct Cut {
  Piece piece;
  std::vector<Piece>& out;
  std::deque<std::string>& storage;
  MatchScratch& scratch;

  Expected<void> operator()(const split::ByPattern& step) const {
    MatchIterator matches(*step.pattern, piece.text, scratch);
    Splitter splitter(piece, step.behavior, step.invert, out);
    size_t done = 0;
    while (true) {
      Match match;
      COHORT_ASSIGN(const bool found, matches.next(match));
      if (!found) {
        break;
      }
      if (done < match.begin) {
        splitter.span(done, match.begin, false);
      }
      splitter.span(match.begin, match.end, true);
      done = match.end;
    }
    if (done < piece.text.size()) {
      splitter.span(done, piece.text.size(), false);
    }
    splitter.finish();
    return {};
  }

  Expected<void> operator()(const split::ByClass& step) const {
    split_characters(piece, step.behavior, out, step.belongs);
    return {};
  }

  Expected<void> operator()(const split::ByCharacter& step) const {
    split_characters(piece, step.behavior, out, [&](char32_t c) { return c == step.character; });
    return {};
  }

  Expected<void> operator()(const split::ByLength& step) const {
    size_t begin = 0, characters = 0;
    for (size_t i = 0; i < piece.text.size();) {
      i += utf8_size(piece.text[i]);
      if (++characters == step.length || i == piece.text.size()) {
        out.push_back({piece.text.substr(begin, i - begin), piece.first && begin == 0});
        begin = i;
        characters = 0;
      }
    }
    return {};
  }

  Expected<void> operator()(const split::PrefixSpace&) const {
    if (piece.text.front() == ' ') {
      out.push_back(piece);
    } else {
      std::string& text = storage.emplace_back(1, ' ');
      text.append(piece.text);
      out.push_back({text, piece.first});
    }
    return {};
  }

  Expected<void> operator()(const split::ByteAlphabet&) const {
    std::string& text = storage.emplace_back();
    append_byte_alphabet(text, piece.text);
    out.push_back({text, piece.first});
    return {};
  }

  Expected<void> operator()(const split::Metaspace& step) const {
    std::string& text = storage.emplace_back();
    text.reserve(piece.text.size() + piece.text.size() / 4 + step.replacement.size());
    const bool starts = piece.text.front() == ' ' || piece.text.substr(0, step.replacement.size()) == step.replacement;
    const bool wanted = step.prepend == split::Metaspace::Prepend::always ||
                        (step.prepend == split::Metaspace::Prepend::first && piece.first);
    if (wanted && !starts) {
      text = step.replacement;
    }
    for (const char c : piece.text) {
      if (c == ' ') {
        text += step.replacement;
      } else {
        text += c;
      }
    }
    const Piece whole{text, piece.first};
    if (!step.split) {
      out.push_back(whole);
      return {};
    }
    uint32_t size = 0;
    const char32_t replacement = decode_valid_utf8(step.replacement.data(), size);
    split_characters(whole, SplitBehavior::merged_with_next, out, [&](char32_t c) { return c == replacement; });
    return {};
  }
};

}  // namespace

bool PreTokenizer::ends_with_byte_alphabet() const {
  return !steps_.empty() && std::holds_alternative<split::ByteAlphabet>(steps_.back());
}

Expected<void> PreTokenizer::apply(Piece piece, std::vector<Piece>& out, std::deque<std::string>& storage,
                                   MatchScratch& scratch) const {
  if (piece.text.empty()) {
    return {};
  }
  if (steps_.empty()) {
    out.push_back(piece);
    return {};
  }
  // All steps but the last go through local lists; the last one appends to the result.
  std::vector<Piece> current{piece}, next;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool last = i + 1 == steps_.size();
    next.clear();
    for (const Piece& part : current) {
      COHORT_TRY(std::visit(Cut{part, last ? out : next, storage, scratch}, steps_[i]));
    }
    std::swap(current, next);
  }
  return {};
}

}  // namespace cohort::text
