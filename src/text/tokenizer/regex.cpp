#include "text/tokenizer/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/result.h"
#include "text/tokenizer/regex_translate.h"
#include "text/tokenizer/unicode_additions.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct Compiled {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool jit = false;
};

// Start positions that one PCRE2 call may try: between calls the time is checked.
constexpr size_t kSearchWindow = 4096;
// Matches between two looks at the clock, which costs about as much as one match.
constexpr unsigned kMatchesPerCheck = 64;

// The JIT starts with 32 KiB of the thread's stack; only a repeated group over a long run needs more (16 bytes a
// round). Pages are taken from the system as they are touched.
constexpr size_t kSmallStack = size_t{1} << 20;
constexpr size_t kLargeStack = size_t{160} << 20;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

Expected<Compiled> compile_pcre2(const std::string& pattern, std::string_view source, const TokenizerLimits& limits) {
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  Compiled result;
  result.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C, &error_code,
                                  &error_offset, context.get()));
  if (!result.code) {
    return fail(ErrorCode::unsupported, "regular expression \"{}\": {}", repair_utf8(source.substr(0, 200)),
                pcre2_message(error_code));
  }
  (void)limits;
  // Without a JIT (the platform has none, or memory may not be executable) the interpreter gives the same matches.
  result.jit = pcre2_jit_compile(result.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return result;
}

}  // namespace

struct Pattern::Code {
  Compiled plain;
  std::optional<Compiled> with_additions;  // absent where the two are the same
  std::string source;
};

struct MatchScratch::Buffers {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

MatchScratch::MatchScratch(const TokenizerLimits& limits, size_t text_bytes) : buffers_(std::make_unique<Buffers>()) {
  buffers_->data = pcre2_match_data_create(1, nullptr);
  buffers_->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(buffers_->context, limits.pattern_steps);
  pcre2_set_heap_limit(buffers_->context, limits.pattern_kilobytes);
  seconds_ = limits.pattern_seconds + limits.pattern_seconds_per_megabyte * static_cast<double>(text_bytes) / 1e6;
  deadline_ = std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds_));
}

MatchScratch::~MatchScratch() {
  pcre2_match_data_free(buffers_->data);
  pcre2_match_context_free(buffers_->context);
  pcre2_jit_stack_free(buffers_->stack);
}

bool MatchScratch::grow_stack() {
  if (buffers_->stack != nullptr) {
    return false;
  }
  buffers_->stack = pcre2_jit_stack_create(kSmallStack, kLargeStack, nullptr);
  if (buffers_->stack == nullptr) {
    return false;
  }
  pcre2_jit_stack_assign(buffers_->context, nullptr, buffers_->stack);
  return true;
}

Expected<void> MatchScratch::check_time() {
  if (std::chrono::steady_clock::now() > deadline_) {
    return fail(
        ErrorCode::capacity,
        "the tokenizer's patterns took more than {:.1f} s on this text; shorten the text or repair the patterns",
        seconds_);
  }
  return {};
}

bool has_unicode_additions(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    if (*p < 0xE0) {  // the first addition is U+0897, three bytes
      ++p;
      continue;
    }
    uint32_t size = 0;
    const char32_t c = decode_valid_utf8(reinterpret_cast<const char*>(p), size);
    p += size;
    // Kana, CJK and Hangul have none: skip the search for the bulk of East Asian text.
    if (c >= 0x3200 && c < 0xA7CB) {
      continue;
    }
    const auto after = std::upper_bound(kUnicodeAdditions.begin(), kUnicodeAdditions.end(), c,
                                        [](char32_t value, const UnicodeAddition& item) { return value < item.first; });
    if (after != kUnicodeAdditions.begin() && c <= std::prev(after)->last) {
      return true;
    }
  }
  return false;
}

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Expected<Pattern> Pattern::compile(std::string_view pattern, const TokenizerLimits& limits) {
  if (pattern.size() > limits.pattern_bytes) {
    return fail(ErrorCode::capacity, "regular expression of {} bytes; the limit is {}", pattern.size(),
                limits.pattern_bytes);
  }
  COHORT_ASSIGN(const std::string plain, translate_oniguruma(pattern, false));
  COHORT_ASSIGN(const std::string full, translate_oniguruma(pattern, true));
  auto code = std::make_unique<Code>();
  code->source = std::string(pattern);
  COHORT_ASSIGN(code->plain, compile_pcre2(plain, pattern, limits));
  if (full != plain) {
    COHORT_ASSIGN(code->with_additions, compile_pcre2(full, pattern, limits));
  }
  return Pattern(std::move(code));
}

Expected<Pattern> Pattern::literal(std::string_view text, const TokenizerLimits& limits) {
  std::string pattern;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text.substr(i));
    pattern += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c.value));
    i += c.size;
  }
  if (pattern.size() > limits.pattern_bytes) {
    return fail(ErrorCode::capacity, "a pattern of {} bytes; the limit is {}", pattern.size(), limits.pattern_bytes);
  }
  auto code = std::make_unique<Code>();
  code->source = std::string(text);
  COHORT_ASSIGN(code->plain, compile_pcre2(pattern, text, limits));
  return Pattern(std::move(code));
}

MatchIterator::MatchIterator(const Pattern& pattern, std::string_view text, MatchScratch& scratch)
    : pattern_(pattern), text_(text), scratch_(scratch) {}

Expected<bool> MatchIterator::next(Match& match) {
  while (position_ <= text_.size()) {
    if (++calls_ % kMatchesPerCheck == 0) {
      COHORT_TRY(scratch_.check_time());
    }
    COHORT_ASSIGN(const bool found, find(position_, match));
    if (!found) {
      position_ = text_.size() + 1;
      return false;
    }
    if (match.begin == match.end && match.end == last_end_) {
      position_ += position_ < text_.size() ? utf8_size(text_[position_]) : 1;
      continue;
    }
    position_ = match.end;
    last_end_ = match.end;
    return true;
  }
  return false;
}

Expected<bool> MatchIterator::find(size_t from, Match& match) {
  const auto& code = *pattern_.code_;
  const Compiled& compiled = scratch_.has_additions && code.with_additions ? *code.with_additions : code.plain;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data() == nullptr ? "" : text_.data());
  pcre2_match_data* data = scratch_.buffers_->data;
  pcre2_match_context* context = scratch_.buffers_->context;
  while (true) {
    size_t limit = text_.size() - from > kSearchWindow ? from + kSearchWindow : text_.size();
    while (limit < text_.size() && (static_cast<unsigned char>(text_[limit]) & 0xC0) == 0x80) {
      ++limit;
    }
    pcre2_set_offset_limit(context, limit);
    int rc = compiled.jit
                 ? pcre2_jit_match(compiled.code.get(), subject, text_.size(), from, 0, data, context)
                 : pcre2_match(compiled.code.get(), subject, text_.size(), from, PCRE2_NO_UTF_CHECK, data, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && scratch_.grow_stack()) {
      continue;
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
      rc = pcre2_match(compiled.code.get(), subject, text_.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                       context);
    }
    if (rc >= 0) {
      const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
      // \K does not exist in the dialect, so a match never starts behind its end or before `from`.
      match.begin = offsets[0];
      match.end = offsets[1];
      return true;
    }
    if (rc != PCRE2_ERROR_NOMATCH) {
      return fail(ErrorCode::capacity, "regular expression \"{}\": {} at byte {} of a text of {} bytes",
                  repair_utf8(std::string_view(code.source).substr(0, 200)), pcre2_message(rc), from, text_.size());
    }
    if (limit == text_.size()) {
      return false;
    }
    COHORT_TRY(scratch_.check_time());
    from = limit + utf8_size(text_[limit]);
  }
}

}  // namespace cohort::text
