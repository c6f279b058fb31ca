#include "text/tokenizer/normalizer.h"

#include <utility>

#include "base/result.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

template <class Function>
void for_each_char(std::string_view text, Function&& function) {
  for (size_t i = 0; i < text.size();) {
    uint32_t size = 0;
    const char32_t c = decode_valid_utf8(text.data() + i, size);
    function(c, text.substr(i, size));
    i += size;
  }
}

/// What one step makes of one text. `out` is empty on entry.
struct Apply {
  std::string_view text;
  std::string& out;
  const TokenizerLimits& limits;
  MatchScratch& scratch;

  Expected<void> check_size(size_t size) const {
    if (size > limits.text_bytes) {
      return fail(ErrorCode::capacity, "normalized text of more than {} bytes; shorten the text", limits.text_bytes);
    }
    return {};
  }

  Expected<void> operator()(const normalize::Form& step) const {
    append_normalized(out, text, step.form);
    return {};
  }

  Expected<void> operator()(const normalize::Lowercase&) const {
    for_each_char(text, [&](char32_t c, std::string_view) { append_lowercase(out, c); });
    return {};
  }

  Expected<void> operator()(const normalize::StripAccents&) const {
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      if (!is_mark(c)) {
        out.append(bytes);
      }
    });
    return {};
  }

  Expected<void> operator()(const normalize::Nmt&) const {
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      const auto in = [&](char32_t low, char32_t high) { return c >= low && c <= high; };
      if (in(0x01, 0x08) || c == 0x0B || in(0x0E, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
        return;
      }
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || in(0x200B, 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      out.append(space ? std::string_view(" ") : bytes);
    });
    return {};
  }

  Expected<void> operator()(const normalize::Strip& step) const {
    size_t begin = 0, end = text.size();
    while (step.left && begin < end) {
      uint32_t size = 0;
      if (!is_white_space(decode_valid_utf8(text.data() + begin, size))) {
        break;
      }
      begin += size;
    }
    while (step.right && end > begin && is_white_space(last_utf8_char(text.substr(0, end)))) {
      do {
        --end;
      } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
    }
    out.append(text.substr(begin, end - begin));
    return {};
  }

  Expected<void> operator()(const normalize::Prepend& step) const {
    if (!text.empty()) {
      out.append(step.text);
    }
    out.append(text);
    return {};
  }

  Expected<void> operator()(const normalize::ReplaceString& step) const {
    size_t done = 0;
    while (true) {
      const size_t found = text.find(step.from, done);
      if (found == std::string_view::npos) {
        break;
      }
      out.append(text.substr(done, found - done)).append(step.to);
      done = found + step.from.size();
      COHORT_TRY(check_size(out.size()));
    }
    out.append(text.substr(done));
    return {};
  }

  Expected<void> operator()(const normalize::ReplacePattern& step) const {
    MatchIterator matches(*step.from, text, scratch);
    size_t done = 0;
    while (true) {
      Match match;
      COHORT_ASSIGN(const bool found, matches.next(match));
      if (!found) {
        break;
      }
      out.append(text.substr(done, match.begin - done)).append(step.to);
      done = match.end;
      COHORT_TRY(check_size(out.size()));
    }
    out.append(text.substr(done));
    return {};
  }

  Expected<void> operator()(const normalize::ByteAlphabet&) const {
    append_byte_alphabet(out, text);
    return {};
  }

  Expected<void> operator()(const normalize::MapCharacters& step) const {
    if (step.by_grapheme) {
      append_mapped_by_grapheme(out, text, *step.map, limits.text_bytes);
    } else {
      append_mapped(out, text, *step.map, limits.text_bytes);
    }
    return {};
  }
};

}  // namespace

Expected<void> Normalizer::apply(std::string& text, const TokenizerLimits& limits, MatchScratch& scratch) const {
  std::string out;
  for (const auto& step : steps_) {
    out.clear();
    out.reserve(text.size() + 16);
    const Apply apply{text, out, limits, scratch};
    COHORT_TRY(std::visit(apply, step));
    COHORT_TRY(apply.check_size(out.size()));
    std::swap(text, out);
  }
  return {};
}

}  // namespace cohort::text
