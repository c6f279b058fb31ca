// Character classes and normal forms, as the tokenizers of published models use them.
#pragma once

#include <string>
#include <string_view>

namespace cohort::text {

/// Unicode White_Space.
bool is_white_space(char32_t c);
/// General category N (Nd, Nl, No).
bool is_numeric(char32_t c);
/// General category P as of Unicode 8, or ASCII punctuation (which includes the symbols $ + < = > ^ ` | ~).
bool is_punctuation(char32_t c);
/// General category M.
bool is_mark(char32_t c);
/// Unicode word characters (UTS 18 \w): Alphabetic, M, Nd, Pc, Join_Control.
bool is_word(char32_t c);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Appends the normal form of valid UTF-8 text. Linear in time, up to sorting within runs of combining marks.
void append_normalized(std::string& out, std::string_view text, NormalForm form);

/// Appends the full lower-case mapping of one character (context-free, as Rust's char::to_lowercase).
void append_lowercase(std::string& out, char32_t c);

}  // namespace cohort::text
