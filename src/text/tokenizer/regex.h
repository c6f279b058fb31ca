// Regular expressions of tokenizers: compiled once, matched by PCRE2 (JIT where the platform has it), never out of
// bounds of time or memory, and never with a silent miss: a match that would exceed a limit is an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/error.h"
#include "text/tokenizer/limits.h"

namespace cohort::text {

struct Match {
  size_t begin = 0, end = 0;
};

/// What one thread needs for matching: buffers, and the time spent so far in one encode() call. Reusable, not
/// shareable.
class MatchScratch {
 public:
  /// `text_bytes` scales the time that all matches together may take.
  MatchScratch(const TokenizerLimits& limits, size_t text_bytes);
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch();

  /// Whether the text of this call has characters newer than PCRE2's tables (see unicode_additions.h).
  bool has_additions = false;

 private:
  friend class Pattern;
  friend class MatchIterator;
  struct Buffers;
  Expected<void> check_time();
  /// A larger stack for the JIT; false if it has it already, or there is no memory.
  bool grow_stack();

  std::unique_ptr<Buffers> buffers_;
  std::chrono::steady_clock::time_point deadline_;
  double seconds_ = 0;
};

/// True if `text` (valid UTF-8) has a character of unicode_additions.h.
bool has_unicode_additions(std::string_view text);

/// A compiled pattern. Immutable and shareable.
class Pattern {
 public:
  /// From Oniguruma's dialect, as tokenizer files have it.
  static Expected<Pattern> compile(std::string_view pattern, const TokenizerLimits& limits);
  /// A pattern that matches `text` itself.
  static Expected<Pattern> literal(std::string_view text, const TokenizerLimits& limits);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern();

 private:
  friend class MatchIterator;
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

/// The successive matches of a pattern in valid UTF-8 text. Empty matches right behind a match are skipped, as in
/// Rust's and Oniguruma's find_iter.
class MatchIterator {
 public:
  MatchIterator(const Pattern& pattern, std::string_view text, MatchScratch& scratch);

  /// False at the end. Errors: capacity, when the pattern costs more than the limits allow.
  Expected<bool> next(Match& match);

 private:
  Expected<bool> find(size_t from, Match& match);

  const Pattern& pattern_;
  std::string_view text_;
  MatchScratch& scratch_;
  size_t position_ = 0;
  size_t last_end_ = static_cast<size_t>(-1);
  unsigned calls_ = 0;
};

}  // namespace cohort::text
