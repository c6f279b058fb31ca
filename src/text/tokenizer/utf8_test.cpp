#include "text/tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace cohort::text {
namespace {

TEST(Utf8, DecodesEveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text);
    ASSERT_TRUE(decoded.valid);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(decoded.size, text.size());
    ASSERT_EQ(utf8_size(text[0]), text.size());
    ASSERT_EQ(last_utf8_char("x" + text), c);
    uint32_t size = 0;
    ASSERT_EQ(decode_valid_utf8(text.data(), size), c);
    ASSERT_EQ(size, text.size());
    // Every proper prefix is unfinished, and followed by another character it is one replacement.
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_TRUE(decode_utf8(text.substr(0, cut)).truncated);
      ASSERT_EQ(repair_utf8(text.substr(0, cut) + "z"), "\uFFFDz");
    }
  }
}

TEST(Utf8, SurrogatesAndLargeValuesBecomeReplacements) {
  std::string text;
  append_utf8(text, 0xD800);
  append_utf8(text, 0x110000);
  EXPECT_EQ(text, "\uFFFD\uFFFD");
}

// Expected values: Python 3.11's bytes.decode("utf-8", errors="replace").
TEST(Utf8, RepairsMaximalSubparts) {
  EXPECT_EQ(repair_utf8("\xFF\xFE abc \xC3( \xE2\x82 \xF0\x9F\x98 end\xE2"),
            "\uFFFD\uFFFD abc \uFFFD( \uFFFD \uFFFD end\uFFFD");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(repair_utf8("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98\xF0\x9F\x98\x80"), "\uFFFD\U0001F600");
  EXPECT_EQ(repair_utf8("plain"), "plain");
  EXPECT_EQ(repair_utf8(""), "");
}

TEST(Utf8, StreamEqualsRepairHoweverTheBytesAreCut) {
  const std::string samples[] = {"a\u00E9\u4E2D\U0001F600z", "\xE2\x82(\xF0\x9F\x98",
                                 "\xF0\x9F\xF0\x9F\x98\x80\xC3\xC3\xA9", "\xED\xA0\x80x"};
  for (const auto& sample : samples) {
    const size_t cuts = size_t{1} << (sample.size() - 1);
    for (size_t mask = 0; mask < cuts; ++mask) {  // every way to cut it into pieces
      Utf8Stream stream;
      std::string out;
      std::string piece;
      for (size_t i = 0; i < sample.size(); ++i) {
        piece += sample[i];
        if (i + 1 == sample.size() || (mask >> i & 1) != 0) {
          stream.push(piece, out);
          EXPECT_TRUE(is_valid_utf8(out));
          piece.clear();
        }
      }
      stream.finish(out);
      ASSERT_EQ(out, repair_utf8(sample));
      ASSERT_TRUE(stream.empty());
    }
  }
}

TEST(Utf8, StreamHoldsBackOnlyTheUnfinishedCharacter) {
  Utf8Stream stream;
  std::string out;
  stream.push("ab\xE4\xBD", out);
  EXPECT_EQ(out, "ab");
  EXPECT_FALSE(stream.empty());
  stream.push("\xA0", out);
  EXPECT_EQ(out, "ab\u4F60");
}

}  // namespace
}  // namespace cohort::text
