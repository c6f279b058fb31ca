#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace cohort {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

/// The UTF-8 character at the start of `text` (not empty); overlong forms, surrogates and codes beyond U+10FFFF are
/// invalid.
Character first_character(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  uint32_t code = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {code, length, true};
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    Character c = first_character(text);
    if (!c.valid) {
      out += "\uFFFD";
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0)) {  // C0, DEL and C1
      out += fmt::format("\\x{:02x}", c.code);
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace cohort
