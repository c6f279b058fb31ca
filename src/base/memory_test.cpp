#include "base/memory.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(memory, sizes_are_read_with_their_units) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("123"), 123U);
  EXPECT_EQ(parse_bytes("123B"), 123U);
  EXPECT_EQ(parse_bytes("2K"), 2048U);
  EXPECT_EQ(parse_bytes("2KiB"), 2048U);
  EXPECT_EQ(parse_bytes("2KB"), 2000U);
  EXPECT_EQ(parse_bytes("800M"), size_t{800} << 20);
  EXPECT_EQ(parse_bytes("1.5G"), size_t{3} << 29);
  EXPECT_EQ(parse_bytes("24GB"), 24000000000U);
  EXPECT_EQ(parse_bytes("1T"), size_t{1} << 40);
}

TEST(memory, what_is_no_size_is_refused) {
  for (const char* text :
       {"", "G", "-1", "-1G", "1X", "1iB", "1GiBs", "1 G", "1g", "1e3", "nan", "inf", "0x10", "99999999999T", "1.2.3"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

}  // namespace
}  // namespace cohort
