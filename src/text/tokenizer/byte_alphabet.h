// The byte alphabet of byte-level BPE: one printable character for each byte, so that vocabularies are text. Printable
// Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up (a space is U+0120).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::text {

/// The character that stands for a byte.
char32_t byte_to_char(unsigned char byte);

/// The byte that a character stands for, or -1.
int char_to_byte(char32_t c);

/// Every byte of `bytes` as its character, in UTF-8; appended.
void append_byte_alphabet(std::string& out, std::string_view bytes);

/// The bytes that a vocabulary entry stands for; false (and nothing appended) if a character is not of the alphabet.
bool append_alphabet_bytes(std::string& out, std::string_view characters);

}  // namespace cohort::text
