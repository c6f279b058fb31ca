// UTF-8: decoding one character, appending one, and repairing byte streams without ever splitting a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::text {

constexpr char32_t kReplacementCharacter = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

/// One decoded character. `size` is the bytes it takes, at least 1 unless the text is empty. `valid` is false for a
/// byte sequence that is not UTF-8; `size` then covers the maximal subpart (Unicode 3.9, U+FFFD substitution), and
/// `truncated` says that the sequence is a proper prefix of a character that runs into the end of the text.
struct Utf8Char {
  char32_t value = 0;
  uint32_t size = 0;
  bool valid = false;
  bool truncated = false;
};

/// Decodes the first character of `text`.
Utf8Char decode_utf8(std::string_view text);

/// The first character of text that is known to be valid UTF-8 and not empty; sets its size in bytes.
inline char32_t decode_valid_utf8(const char* text, uint32_t& size) {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  if (p[0] < 0x80) {
    size = 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    size = 2;
    return (static_cast<char32_t>(p[0] & 0x1F) << 6) | (p[1] & 0x3F);
  }
  if (p[0] < 0xF0) {
    size = 3;
    return (static_cast<char32_t>(p[0] & 0x0F) << 12) | (static_cast<char32_t>(p[1] & 0x3F) << 6) | (p[2] & 0x3F);
  }
  size = 4;
  return (static_cast<char32_t>(p[0] & 0x07) << 18) | (static_cast<char32_t>(p[1] & 0x3F) << 12) |
         (static_cast<char32_t>(p[2] & 0x3F) << 6) | (p[3] & 0x3F);
}

/// Bytes of the character that starts with `lead`, in valid UTF-8.
inline uint32_t utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The last character of valid, non-empty UTF-8 text.
char32_t last_utf8_char(std::string_view text);

/// Appends the UTF-8 form of a scalar value (a surrogate or a value above U+10FFFF becomes U+FFFD).
void append_utf8(std::string& out, char32_t value);

/// True if the whole text is valid UTF-8.
bool is_valid_utf8(std::string_view text);

/// The text with every maximal invalid subpart replaced by U+FFFD: Python's bytes.decode("utf-8", errors="replace") and
/// Rust's String::from_utf8_lossy give the same characters.
std::string repair_utf8(std::string_view text);

/// A byte stream that becomes valid UTF-8 in pieces: push() returns the text that is certain so far and keeps back at
/// most three bytes of an unfinished character; finish() turns what is left into U+FFFD. The concatenation of all
/// returned strings equals repair_utf8() of all pushed bytes.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);
  bool empty() const { return pending_size_ == 0; }

 private:
  char pending_[4] = {};
  uint32_t pending_size_ = 0;
};

}  // namespace cohort::text
