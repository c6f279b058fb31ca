#include "text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "base/result.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

// The layout of a unit (Darts-clone): bits 0-7 the label, bit 8 "a value hangs here", bits 10-30 the offset, which bit
// 9 scales by 256; in a value, bits 0-30 are the value and bit 31 is set.
bool has_leaf(uint32_t unit) {
  return ((unit >> 8) & 1) == 1;
}
uint32_t value(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

size_t grapheme_size(std::string_view text) {
  uint32_t size = 0;
  auto previous = static_cast<utf8proc_int32_t>(decode_valid_utf8(text.data(), size));
  utf8proc_int32_t state = 0;
  size_t end = size;
  while (end < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(decode_valid_utf8(text.data() + end, size));
    if (utf8proc_grapheme_break_stateful(previous, next, &state) != 0) {
      break;
    }
    end += size;
    previous = next;
  }
  return end;
}

}  // namespace

Expected<CharsMap> CharsMap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) {
    return fail(ErrorCode::corrupt, "precompiled character map of {} bytes: too short for its header", blob.size());
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size()) {
    return fail(ErrorCode::corrupt, "precompiled character map: a trie of {} bytes in {} bytes", trie_bytes,
                blob.size());
  }
  CharsMap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.strings_ = std::string(blob.substr(trie_bytes));
  map.strings_.push_back('\0');
  if (!is_valid_utf8(map.strings_)) {
    return fail(ErrorCode::corrupt, "precompiled character map: its strings are not UTF-8");
  }
  return map;
}

std::optional<CharsMap::Hit> CharsMap::find(std::string_view text, bool longest) const {
  std::optional<Hit> hit;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) {
      break;
    }
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (has_leaf(unit)) {
      if (node >= units_.size() || value(units_[node]) >= strings_.size() ||
          (static_cast<unsigned char>(strings_[value(units_[node])]) & 0xC0) == 0x80) {
        break;  // a corrupt map: no such replacement, or one that starts inside of a character
      }
      hit = Hit{i + 1, std::string_view(strings_.c_str() + value(units_[node]))};
      if (!longest) {
        break;
      }
    }
  }
  return hit;
}

void append_mapped(std::string& out, std::string_view text, const CharsMap& map, size_t limit) {
  for (size_t i = 0; i < text.size() && out.size() <= limit;) {
    const auto hit = map.longest(text.substr(i));
    // A prefix that ends inside of a character would leave broken UTF-8: only a corrupt map has one.
    const bool whole =
        hit && (i + hit->size == text.size() || (static_cast<unsigned char>(text[i + hit->size]) & 0xC0) != 0x80);
    if (whole) {
      out.append(hit->replacement);
      i += hit->size;
    } else {
      const uint32_t size = utf8_size(text[i]);
      out.append(text.substr(i, size));
      i += size;
    }
  }
}

void append_mapped_by_grapheme(std::string& out, std::string_view text, const CharsMap& map, size_t limit) {
  for (size_t i = 0; i < text.size() && out.size() <= limit;) {
    const std::string_view grapheme = text.substr(i, grapheme_size(text.substr(i)));
    i += grapheme.size();
    if (grapheme.size() < 6) {
      if (const auto hit = map.shortest(grapheme)) {
        out.append(hit->replacement);
        continue;
      }
    }
    for (size_t at = 0; at < grapheme.size();) {
      const std::string_view part = grapheme.substr(at, utf8_size(grapheme[at]));
      const auto hit = map.shortest(part);
      out.append(hit ? hit->replacement : part);
      at += part.size();
    }
  }
}

}  // namespace cohort::text
