#include "base/printable.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Printable, KeepsText) {
  EXPECT_EQ(printable("plain \u00e9 \u4e2d \U0001f600", 100), "plain \u00e9 \u4e2d \U0001f600");
  EXPECT_EQ(printable("", 0), "");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[2J\tb\nc\x7f", 100), "a\\x1b[2J\\x09b\\nc\\x7f");
  EXPECT_EQ(printable("a\u009b2J", 100), "a\\x9b2J");
}

TEST(Printable, ReplacesInvalidBytes) {
  EXPECT_EQ(printable("a\xff\xc3", 100), "a\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xc0\x80", 100), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80", 100), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xe2\x82", 100), "\uFFFD\uFFFD");
}

TEST(Printable, Cuts) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("ab\u00e9d", 3), "ab\u00e9...");
}

}  // namespace
}  // namespace cohort
