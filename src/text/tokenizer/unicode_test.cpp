#include "text/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <chrono>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode_additions.h"
#include "text/tokenizer/utf8.h"

namespace cohort::text {
namespace {

std::string normalized(std::string_view text, NormalForm form) {
  std::string out;
  append_normalized(out, text, form);
  return out;
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalized("e\u0301 \u00E9", NormalForm::nfc), "\u00E9 \u00E9");
  EXPECT_EQ(normalized("e\u0301 \u00E9", NormalForm::nfd), "e\u0301 e\u0301");
  EXPECT_EQ(normalized("\uFB01 \u00BD \u2460", NormalForm::nfkc), "fi 1\u20442 1");
  EXPECT_EQ(normalized("\uAC01", NormalForm::nfd), "\u1100\u1161\u11A8");
  EXPECT_EQ(normalized("\u1100\u1161\u11A8", NormalForm::nfc), "\uAC01");
  EXPECT_EQ(normalized("\u212B", NormalForm::nfc), "\u00C5");
  // Marks are ordered by class, those of one class stay in place, also across what precedes them.
  EXPECT_EQ(normalized("a\u0301\u0323", NormalForm::nfc), "\u1EA1\u0301");
  EXPECT_EQ(normalized("q\u0301\u0323\u0302", NormalForm::nfd), "q\u0323\u0301\u0302");
  // An ASCII character in front of a run belongs to it; the one before does not.
  EXPECT_EQ(normalized("xe\u0301ye\u0301", NormalForm::nfc), "x\u00E9y\u00E9");
  EXPECT_EQ(normalized("\u0301a", NormalForm::nfc), "\u0301a");
  EXPECT_EQ(normalized("", NormalForm::nfc), "");
}

TEST(Unicode, LongRunsOfMarksTakeLinearTime) {
  // Marks in reverse order are the worst case of an insertion sort: 400,000 of them would take minutes.
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) {
    text += "\u0301";
  }
  for (int i = 0; i < 200000; ++i) {
    text += "\u0323";
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string result = normalized(text, NormalForm::nfc);
  EXPECT_EQ(result.substr(0, 5), "\u1EA1\u0323");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Unicode, Classes) {
  int spaces = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    spaces += is_white_space(c) ? 1 : 0;
  }
  EXPECT_EQ(spaces, 25);
  EXPECT_TRUE(is_numeric(U'\u0663') && is_numeric(U'\u00BD') && is_numeric(U'\u216B') && !is_numeric(U'a'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'\u3002') && !is_punctuation(U'\u20AC'));
  EXPECT_TRUE(is_word(U'_') && is_word(U'\u24D0') && is_word(U'\u0301') && is_word(U'\u200D') && !is_word(U'\u00B2'));
  EXPECT_TRUE(is_mark(U'\u0301') && !is_mark(U'a'));
  // Younger than the Unicode of the library.
  EXPECT_TRUE(is_word(0x10D4A) && is_numeric(0x10D40) && is_mark(0x10D69));
}

TEST(Unicode, Lowercase) {
  std::string out;
  for (const char32_t c : {U'A', U'\u0130', U'\u03A3', U'\u1E9E', U'1'}) {
    append_lowercase(out, c);
  }
  EXPECT_EQ(out, "ai\u0307\u03C3\u00DF1");
}

TEST(Unicode, FindsAdditions) {
  EXPECT_FALSE(has_unicode_additions("plain, \u00E9, \u4E2D\u6587, \uD7A3, \U0001F600"));
  for (const auto& addition : kUnicodeAdditions) {
    for (const char32_t c : {addition.first, addition.last}) {
      std::string text = "ab\u4E2D";
      append_utf8(text, c);
      EXPECT_TRUE(has_unicode_additions(text)) << static_cast<uint32_t>(c);
    }
  }
}

TEST(ByteAlphabet, IsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = byte_to_char(static_cast<unsigned char>(byte));
    EXPECT_EQ(char_to_byte(c), byte);
    all.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(byte_to_char(' '), U'\u0120');
  EXPECT_EQ(byte_to_char('\n'), U'\u010A');
  EXPECT_EQ(byte_to_char('a'), U'a');
  EXPECT_EQ(byte_to_char(0xAD), U'\u0143');
  std::string spelled, back;
  append_byte_alphabet(spelled, all);
  ASSERT_TRUE(append_alphabet_bytes(back, spelled));
  EXPECT_EQ(back, all);
  EXPECT_FALSE(append_alphabet_bytes(back, "a b"));
  EXPECT_EQ(back, all);
  EXPECT_EQ(char_to_byte(0x4E00), -1);
}

}  // namespace
}  // namespace cohort::text
