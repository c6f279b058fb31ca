#include "text/tokenizer/byte_alphabet.h"

#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 512> byte{};
};

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.byte) {
    byte = -1;
  }
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    tables.character[static_cast<size_t>(byte)] = c;
    tables.byte[c] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_char(unsigned char byte) {
  return kTables.character[byte];
}

int char_to_byte(char32_t c) {
  return c < kTables.byte.size() ? kTables.byte[c] : -1;
}

void append_byte_alphabet(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    append_utf8(out, byte_to_char(static_cast<unsigned char>(byte)));
  }
}

bool append_alphabet_bytes(std::string& out, std::string_view characters) {
  const size_t before = out.size();
  while (!characters.empty()) {
    const Utf8Char c = decode_utf8(characters);
    const int byte = c.valid ? char_to_byte(c.value) : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(byte));
    characters.remove_prefix(c.size);
  }
  return true;
}

}  // namespace cohort::text
